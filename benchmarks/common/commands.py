"""Commands of kformer, as a user types them."""

import json
import pathlib
import shlex
import subprocess
import sys


def kformer(*arguments: object) -> str:
    """Prints a command and runs it. What it prints is given back if it is an evaluation, and shown if not.

    Raises:
        SystemExit: The command failed.
    """
    words = [str(argument) for argument in arguments]
    print(f"$ kformer {shlex.join(words)}", file=sys.stderr, flush=True)
    stdout = subprocess.PIPE if words[0] == "evaluate" else sys.stderr
    command = [sys.executable, "-m", "kformer", *words]
    done = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, stdout=stdout, text=True)
    if done.returncode:
        raise SystemExit(f"The command ended with the status {done.returncode}. Start this script again to go on.")
    return done.stdout or ""


def trained(folder: pathlib.Path, name: str, options: list[object]) -> pathlib.Path:
    """The run folder of this name, which `kformer train` trains to its end if it was not yet."""
    run, summary = folder / name, folder / f"{name}.json"
    if not summary.exists() or json.loads(summary.read_text(encoding="utf-8"))["exit_status"] != 0:
        kformer("train", *options, "--output", run, "--auto-resume", "--summary", summary)
    return run
