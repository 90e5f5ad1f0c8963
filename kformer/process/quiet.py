"""Keeps messages of TensorFlow that help nobody out of scripts and notebooks, above all those of its start.

TensorFlow writes some ten lines about the machine to standard error (file descriptor 2), where Python cannot catch
them. The environment variable TF_CPP_MIN_LOG_LEVEL stops such messages, but TensorFlow reads it too late for the first
ones. So standard error passes through `grep` while TensorFlow is imported. All other lines appear at once, even if the
process crashes.
"""

import contextlib
import logging
import os
import re
import sys
from collections.abc import Iterator

from kformer.process.import_hooks import ImportHook

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_ALL_BUT_FATAL = "3"
_RETRACING = re.compile(r"calls to <(function|bound method) kformer\..*retracing")  # see `ModelFunction`
_LETTERS = "IWE"  # first letters of the messages that levels 1, 2 and 3 drop: information, warnings, errors


def quiet_tensorflow() -> None:
    """Makes TF_CPP_MIN_LOG_LEVEL take effect from the start of TensorFlow's import, and drops notes of gRPC.

    If the variable is not set, it is set to 3: then TensorFlow's C++ code writes only why it ends the process.
    Python's exceptions and warnings are written as always. If TensorFlow is imported already, nothing is changed.
    gRPC would write a line for each handshake of TLS that fails, between those of a server's log; what fails raises an
    exception, too.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    if "tensorflow" in sys.modules:
        return
    os.environ.setdefault(_LEVEL, _ALL_BUT_FATAL)
    ImportHook("tensorflow", quiet_libraries).install()


@contextlib.contextmanager
def quiet_libraries() -> Iterator[None]:
    """Drops the messages while TensorFlow's libraries are loaded, with or without Python's TensorFlow."""
    level = os.environ.get(_LEVEL, "")
    dropped = _LETTERS[: int(level)] if level.isdigit() else ""
    if not dropped:
        yield
        return
    # A message begins with its letter, or with a date, a time and the letter. Two lines have no letter.
    noise = (
        f"^[{dropped}][0-9]{{4}} |^[-0-9]+ [:.0-9]+: [{dropped}] |^WARNING: All log messages before absl::Init"
        "|^To enable the following instructions:"
    )
    with _without_lines(noise):
        yield


def quiet_retracing() -> None:
    """Drops TensorFlow's warning that kformer's functions are traced too often.

    Each translator traces its own functions once. TensorFlow counts those of all translators as one, and from the fifth
    on it gives advice that does not apply. Warnings about other functions appear as always.
    """
    logging.getLogger("tensorflow").addFilter(_is_no_retracing)


def _is_no_retracing(record: logging.LogRecord) -> bool:
    return not _RETRACING.search(record.getMessage())


@contextlib.contextmanager
def _without_lines(pattern: str) -> Iterator[None]:
    """Drops the lines with this pattern from standard error, those of C++ code included, and passes on the others."""
    import subprocess  # imported here, because it takes as long as all of `import kformer`

    command = ["grep", "--line-buffered", "--invert-match", "--extended-regexp", pattern]
    try:
        grep = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=2)
    except OSError:  # there is no grep, or no standard error
        yield
        return
    assert grep.stdin is not None
    former = os.dup(2)
    os.dup2(grep.stdin.fileno(), 2)
    grep.stdin.close()
    try:
        yield
    finally:
        os.dup2(former, 2)  # closes the pipe, so that grep ends
        os.close(former)
        with contextlib.suppress(subprocess.TimeoutExpired):  # a process started meanwhile may hold the pipe open
            grep.wait(timeout=1)
