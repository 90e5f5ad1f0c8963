"""Consoles for a person: nothing that is printed can end a program, whatever the stream can write."""

import os
import re
from typing import IO, Any

import rich.console

# A character that the encoding of a stream lacks, such as ñ in ASCII, becomes an escape: \xf1.
ERRORS = "backslashreplace"


_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def without_controls(text: str) -> str:
    r"""The text with escapes in place of control characters: a name or a server's words must not steer a terminal.

    Examples:
        >>> without_controls("a\x1b[31mb")
        'a\\x1b[31mb'
    """
    return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)


def discard(stream: Any) -> None:
    """Sends to nowhere what a stream holds that cannot be written. Otherwise Python's flush at exit would fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


class Console(rich.console.Console):
    """A console that prints texts as they are: without emoji codes, colours of its own and broken lines.

    Characters that the stream cannot write become escapes. When the output pipe is closed, as by `| head`, it stops
    printing, and the program goes on.

    Args:
        file: Where to print; None: standard output.
        markup: Whether `[bold]` in a text is markup.
        quiet: True: prints nothing.
    """

    def __init__(self, file: IO[str] | None = None, *, markup: bool = False, quiet: bool = False) -> None:
        super().__init__(file=file, markup=markup, quiet=quiet, emoji=False, highlight=False, soft_wrap=True)

    @property  # type: ignore[misc]
    def file(self) -> Any:
        return _EscapingStream(super().file)

    def on_broken_pipe(self) -> None:
        self.quiet = True
        discard(self.file)


class _EscapingStream:
    """A stream to which any text can be written."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        encoding = getattr(self._stream, "encoding", None) or "utf-8"  # a StringIO has none
        return self._stream.write(text.encode(encoding, ERRORS).decode(encoding))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
