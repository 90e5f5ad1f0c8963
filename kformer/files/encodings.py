"""Text in UTF-8, also of data in UTF-16 or UTF-32 that begin with a byte order mark."""

import codecs
import itertools
import re
from collections.abc import Iterator

from kformer.files.blocks import Block, is_recognized, split_beginning
from kformer.files.compression import compression_of

# Byte order marks: the longer ones first, because one of UTF-32 begins like one of UTF-16.
_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32LE",
    codecs.BOM_UTF32_BE: "UTF-32BE",
    codecs.BOM_UTF8: "UTF-8",
    codecs.BOM_UTF16_LE: "UTF-16LE",
    codecs.BOM_UTF16_BE: "UTF-16BE",
}
_CODECS = {"UTF-32LE": "utf-32", "UTF-32BE": "utf-32", "UTF-16LE": "utf-16", "UTF-16BE": "utf-16"}  # Python's
_SURROGATES = re.compile("[\ud800-\udfff]")
_CONTROLS = re.compile(rb"[\0-\x08\x0e-\x1f]")  # none of these is white space


def as_utf8(blocks: Iterator[Block], name: str) -> Iterator[Block]:
    """The same text in UTF-8, without a byte order mark. Without such a mark, the data are taken for UTF-8.

    Args:
        blocks: from `kformer.files.blocks`.
        name: what they are called in messages.

    Raises:
        ValueError: The byte order mark is that of UTF-16 or UTF-32, and the text is not valid.
    """
    beginning, blocks = split_beginning(blocks, lambda beginning: is_recognized(beginning, _MARKS))
    mark = next((mark for mark in _MARKS if beginning.startswith(mark)), b"")
    if mark:
        blocks = itertools.chain([beginning.removeprefix(mark)], itertools.islice(blocks, 1, None))
    if _MARKS.get(mark, "UTF-8") == "UTF-8":
        return blocks
    return _transcoded(blocks, _MARKS[mark], name)


def _transcoded(blocks: Iterator[Block], encoding: str, name: str) -> Iterator[Block]:
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        for block in blocks:
            yield None if block is None else decoder.decode(block).encode("utf-8")
        decoder.decode(b"", final=True)
    except UnicodeError as error:
        raise ValueError(
            f"{name} begins with the byte order mark of {encoding}, but is not valid {encoding}: {error}. Write it "
            "again in UTF-8."
        ) from error


def check_is_text(beginning: bytes, name: str) -> None:
    """Refuses data that look like UTF-16 without a byte order mark: in Latin script, every other byte is a NUL.

    Args:
        beginning: the first bytes, at least a line. A single NUL is no sign of UTF-16.
        name: what the data are called in the message.

    Raises:
        ValueError: They do.
    """
    for encoding, place in (("UTF-16BE", 0), ("UTF-16LE", 1)):
        if beginning[place::2].count(0) > max(1, len(beginning) / 4) > beginning[1 - place :: 2].count(0):
            raise ValueError(
                f"{name} is not UTF-8, but looks like {encoding} without a byte order mark: every other byte is a NUL. "
                f"Convert it: iconv -f {encoding} -t UTF-8."
            )


def encoding_of(beginning: bytes) -> str | None:
    """The encoding that a byte order mark names, at the beginning of some data; None: there is no such mark.

    Examples:
        >>> encoding_of("año".encode("utf-16")), encoding_of("año".encode("utf-8-sig")), encoding_of(b"a")
        ('UTF-16LE', 'UTF-8', None)
    """
    return next((name for mark, name in _MARKS.items() if beginning.startswith(mark)), None)


def fault_of_value(text: str | bytes) -> str | None:
    """What is wrong with a text that a program has, and how to mend it; None if it is text.

    Examples:
        >>> fault_of_value("año".encode("cp1252"))
        'byte 0xf1 at position 2 is not UTF-8. Decode it first, such as by text.decode("cp1252")'
        >>> fault_of_value("año"), fault_of_value("año".encode())
        (None, None)
    """
    if isinstance(text, str):
        if (half := _SURROGATES.search(text)) is not None:
            return f"character {half.start() + 1} is half of a surrogate pair, which is no character. Remove it"
        place = text.find("\0")
        return None if place < 0 else f"character {place + 1} is a NUL, which no text has. Remove it"
    try:
        return fault_of_value(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        mark, compression = encoding_of(text), compression_of(text)
        if compression is not None:
            return f"these are bytes compressed by {compression}. Decompress and decode them first"
        if mark in _CODECS:
            return f'these are bytes of {mark}. Decode them first: text.decode("{_CODECS[mark]}")'
        return f'{_not_utf8(error)}. Decode it first, such as by text.decode("cp1252")'


def _not_utf8(error: UnicodeDecodeError) -> str:
    return f"byte {error.object[error.start]:#04x} at position {error.start + 1} is not UTF-8"


def fault_of(line: bytes) -> str | None:
    """What is wrong with a line, and how to mend it; None if it is text in UTF-8.

    Examples:
        >>> fault_of("año".encode()), fault_of("año".encode("cp1252"))
        (None, 'byte 0xf1 at position 2 is not UTF-8. Convert the file, such as by iconv -f CP1252 -t UTF-8')
    """
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        found = _not_utf8(error)
        if _CONTROLS.search(line):
            return f"{found}, and other bytes are no text at all. Name a text file"
        return f"{found}. Convert the file, such as by iconv -f CP1252 -t UTF-8"
    if b"\0" not in line:
        return None
    return (
        f"byte 0x00 at position {line.index(0) + 1} is a NUL, which no text has. Remove the NULs, for example by "
        'tr -d "\\000", or convert the file if it is UTF-16 without a byte order mark'
    )
