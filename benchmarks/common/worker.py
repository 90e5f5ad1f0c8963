"""A benchmark's systems, each in a separate process that answers a line of JSON with a line of JSON."""

import json
import subprocess
import sys
from typing import Any


class Worker:
    """A running process.

    Args:
        system: The module of this folder that it runs, such as "translators".
        arguments: For its command line.
    """

    def __init__(self, system: str, *arguments: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"benchmarks.common.{system}", *map(str, arguments)],
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
