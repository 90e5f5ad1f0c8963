"""A message about a process that JAX or the system ends before it can print a message itself."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def watchdog(message: str) -> Iterator[None]:
    """Prints the message on standard error if this process ends within the block, for whatever reason.

    A small helper process reads from a pipe, which closes when this process is gone. At the end of the block, this
    process tells the helper through the pipe that there is nothing to print.
    """
    program = "import sys\nif not sys.stdin.buffer.read(): print(sys.argv[1], file=sys.stderr)"
    helper = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", program, message],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # so that Ctrl-C does not reach the helper
    )
    try:
        yield
    finally:
        helper.communicate(b"nothing to print")
