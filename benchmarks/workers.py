"""A benchmark's systems, each in a separate process that answers a line of JSON with a line of JSON."""

import json
import pathlib
import subprocess
import sys
from typing import Any


class Worker:
    """A running process.

    Args:
        script: A script beside this file, such as systems.py.
        arguments: For its command line.
    """

    def __init__(self, script: str, *arguments: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(pathlib.Path(__file__).with_name(script)), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, request: Any) -> dict[str, Any]:
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"A worker died. Run `{' '.join(self.process.args)}` and give it: {json.dumps(request)}")
        return json.loads(line)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
