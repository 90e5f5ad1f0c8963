"""Pairs from files; every damaged file is refused with its name, line and remedy."""

import gzip
import lzma
import pathlib
import re

import pytest

from kformer.data import read_parallel, read_tsv


def write(path: pathlib.Path, content: bytes) -> pathlib.Path:
    path.write_bytes(content)
    return path


def test_tsv(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "a.tsv", "one\tuno\n\ttwo\nñ\té".encode())
    assert read_tsv(path) == [("one", "uno"), ("", "two"), ("ñ", "é")]


def test_tsv_named_columns(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "a.tsv", b"1\tuno\tone\n2\tdos\ttwo\n")
    assert read_tsv(path, columns=("id", "target", "source")) == [("one", "uno"), ("two", "dos")]


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_compressed(suffix: str, compress, tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / f"a.tsv{suffix}", compress(b"one\tuno\n"))
    assert read_tsv(path) == [("one", "uno")]


def test_byte_order_mark_and_carriage_returns_are_dropped(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "a.tsv", b"\xef\xbb\xbfone\tuno\r\n\xef\xbb\xbftwo\td\ros\r\n")
    assert read_tsv(path) == [("one", "uno"), ("\ufefftwo", "d\ros")]


def test_only_line_feeds_end_lines(tmp_path: pathlib.Path) -> None:
    text = "a\u2028b\u0085c\vd\x1ce\f\tx\n"
    assert read_tsv(write(tmp_path / "a.tsv", text.encode())) == [("a\u2028b\u0085c\vd\x1ce\f", "x")]


def test_parallel(tmp_path: pathlib.Path) -> None:
    source = write(tmp_path / "a.en", b"one\n\nthree\tx\n")
    target = write(tmp_path / "a.es.gz", gzip.compress(b"uno\ndos\ntres"))
    assert read_parallel(source, target) == [("one", "uno"), ("", "dos"), ("three\tx", "tres")]


def test_parallel_of_different_length(tmp_path: pathlib.Path) -> None:
    source, target = write(tmp_path / "a.en", b"one\ntwo\nthree\n"), write(tmp_path / "a.es", b"uno\n")
    with pytest.raises(ValueError, match=r"a\.en with 3 lines and .*a\.es with 1 line\. .*a\.en, line 2 is the first"):
        read_parallel(source, target)


def test_empty(tmp_path: pathlib.Path) -> None:
    empty = write(tmp_path / "empty.tsv", b"")
    with pytest.raises(ValueError, match=r"empty\.tsv is empty\. Pass a file with at least one pair"):
        read_tsv(empty)
    with pytest.raises(ValueError, match=r"are empty\. Pass files with at least one line"):
        read_parallel(empty, empty)


def test_not_utf8(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "latin.tsv", b"one\tuno\nyear\ta\xf1o\n")
    with pytest.raises(
        ValueError, match=r"latin\.tsv, line 2: byte 0xf1 at position 7 is not UTF-8\. Convert the file"
    ):
        read_tsv(path)


def test_utf16(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "wide.tsv", "one\tuno\n".encode("utf-16"))
    with pytest.raises(ValueError, match=r"wide\.tsv, line 1: byte 0xff at position 1 is not UTF-8"):
        read_tsv(path)


@pytest.mark.parametrize(
    ("line", "count"), [(b"alone", "1 column where 2"), (b"a\tb\tc", "3 columns where 2"), (b"", "1 column where 2")]
)
def test_wrong_number_of_columns(line: bytes, count: str, tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "a.tsv", b"one\tuno\n" + line + b"\ntwo\tdos\n")
    with pytest.raises(ValueError, match=rf"a\.tsv, line 2: {count} were expected \(source, target, split by tabs\)"):
        read_tsv(path)


@pytest.mark.parametrize("columns", [("id", "source"), ("source", "source", "target"), ()])
def test_columns_without_source_and_target(columns: tuple[str, ...], tmp_path: pathlib.Path) -> None:
    with pytest.raises(
        ValueError,
        match='columns must name "source" and "target" once each. Received: ' + re.escape(f"columns={columns!r}"),
    ):
        read_tsv(tmp_path / "a.tsv", columns=columns)


def test_missing_file(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.tsv does not exist\. Pass the name of a file"):
        read_tsv(tmp_path / "none.tsv")
    with pytest.raises(FileNotFoundError, match=r"is a directory. Pass the name of a file"):
        read_parallel(tmp_path, tmp_path)


def incompressible(lines: int) -> bytes:
    return b"".join(f"{n * 2654435761 % 2**32}\t{n * 40503 % 65537}\n".encode() for n in range(lines))


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_cut_short(suffix: str, compress, tmp_path: pathlib.Path) -> None:
    whole = compress(incompressible(20_000))
    path = write(tmp_path / f"a.tsv{suffix}", whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=rf"a\.tsv\{suffix}, after line \d+: the \{suffix} data are damaged or cut"):
        read_tsv(path)


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_damaged_data(suffix: str, compress, tmp_path: pathlib.Path) -> None:
    whole = compress(incompressible(2000))
    # 24 bytes keep the headers of both formats whole; a deflate block of ones is of no valid type.
    path = write(tmp_path / f"a.tsv{suffix}", whole[:24] + b"\xff" * 100 + whole[124:])
    with pytest.raises(ValueError, match=r"are damaged or cut short .* Copy or download the file again"):
        read_tsv(path)


def test_damaged_block_type(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "a.tsv.gz", gzip.compress(b"one\tuno\n")[:10] + b"\xff" * 30)
    with pytest.raises(
        ValueError, match=r"after line 0: the \.gz data are damaged or cut short \(.*invalid block type"
    ):
        read_tsv(path)


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_only_named_compressed(suffix: str, tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / f"a.tsv{suffix}", b"one\tuno\n")
    with pytest.raises(ValueError, match=rf"after line 0: the \{suffix} data are damaged"):
        read_tsv(path)
