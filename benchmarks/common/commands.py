"""Commands of kformer, as a user types them."""

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
