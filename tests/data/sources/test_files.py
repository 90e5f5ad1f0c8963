"""Pairs from files; every damaged file is refused with its name, line and remedy."""

import bz2
import gzip
import lzma
import os
import pathlib
import random
import re
import threading
from collections.abc import Callable

import pytest

from kformer.data import (
    AlignedFile,
    ParallelFiles,
    TextFile,
    TsvFile,
    encode_pairs,
    open_pairs,
    read_parallel,
    read_tsv,
)
from kformer.data.joined import JoinedFiles
from kformer.tokenizers import SymbolTokenizer

COMPRESSIONS = [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)]
NAMES = {".gz": "gzip", ".xz": "xz", ".bz2": "bzip2"}
COMPRESSED = pytest.mark.parametrize(("suffix", "compress"), COMPRESSIONS)


def write(path: pathlib.Path, content: bytes) -> pathlib.Path:
    path.write_bytes(content)
    return path


def test_tsv(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "a.tsv", "one\tuno\n\ttwo\nñ\té".encode())
    assert read_tsv(path) == [("one", "uno"), ("", "two"), ("ñ", "é")]


@pytest.mark.parametrize("lines", [3, 100_003])
def test_the_number_of_pairs_is_estimated(lines: int, tmp_path: pathlib.Path) -> None:
    """A short file is read whole. Of a file of 4 MB, only the first MiB is read."""
    draw = random.Random(5)
    rows = [f"{draw.random():.15f}\t{'one two three ' * draw.randrange(3)}ਪੰਜਾਬੀ" for _ in range(lines)]
    texts = "".join(f"{row}\n" for row in rows)
    plain = write(tmp_path / "a.tsv", texts.encode())
    near = pytest.approx(lines, rel=0.02)
    assert TsvFile(plain).estimate() == TextFile(plain).estimate() == ParallelFiles(plain, plain).estimate() == near
    table = open_pairs(write(tmp_path / "a.csv", b"source,target\n" + texts.replace("\t", ",").encode()))
    assert table.estimate() == pytest.approx(lines + 1, rel=0.02)  # type: ignore[attr-defined]
    assert AlignedFile(TsvFile(plain), plain).estimate() == near
    assert JoinedFiles([TsvFile(plain), TsvFile(plain)]).estimate() == pytest.approx(2 * lines, rel=0.02)
    forms = [texts.rstrip().encode(), texts.replace("\n", "\r").encode(), texts.encode("utf-16")]
    for content in [*forms, *(compress(texts.encode()) for _, compress in COMPRESSIONS)]:
        assert TsvFile(write(tmp_path / "other", content)).estimate() == near


def test_what_cannot_be_read_is_told_by_the_reading_and_not_by_the_estimate(tmp_path: pathlib.Path) -> None:
    assert TsvFile(write(tmp_path / "empty", b"")).estimate() == 0
    assert TsvFile(write(tmp_path / "damaged", gzip.compress(b"one\tuno\n")[:-9])).estimate() == 1
    os.mkfifo(tmp_path / "pipe")
    assert TsvFile(tmp_path / "pipe").estimate() is None
    assert TsvFile(tmp_path / "nowhere").estimate() is None


def test_without_a_line_for_each_pair_nothing_is_estimated(tmp_path: pathlib.Path) -> None:
    memory = write(tmp_path / "a.tmx", b'<tmx version="1.4"><header srclang="en"/><body/></tmx>')
    assert open_pairs(memory).estimate() is None
    plain = write(tmp_path / "a.tsv", b"one\tuno\n")
    assert JoinedFiles([TsvFile(plain), open_pairs(memory)]).estimate() is None  # type: ignore[list-item]


@pytest.mark.parametrize("blank", [b"\n", b" \n", b"\t\n", b"\t \t\t\n", "\u3000\r\n".encode(), b"\n\n\n"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_blank_lines_are_counted_and_do_not_stop_the_reading(blank: bytes, place: int, tmp_path: pathlib.Path) -> None:
    lines = [b"one\tuno\n", b"two\tdos\n"]
    path = write(tmp_path / "a.tsv", b"".join([*lines[:place], blank, *lines[place:]]))
    pairs = read_tsv(path)
    count = blank.count(b"\n")
    assert [pair for pair in pairs if pair != ("", "")] == [("one", "uno"), ("two", "dos")]
    assert pairs[place : place + count] == [("", "")] * count
    symbols = SymbolTokenizer(["one", "two", "uno", "dos"])
    encoded = encode_pairs(pairs, symbols, symbols, max_length=4)
    assert (encoded.kept, encoded.skipped_blank, encoded.skipped_long) == (2, count, 0)


def test_blank_last_line_without_its_end(tmp_path: pathlib.Path) -> None:
    assert read_tsv(write(tmp_path / "a.tsv", b"one\tuno\n \t")) == [("one", "uno"), ("", "")]


@pytest.mark.parametrize("content", [b"", b"\n", b" \n\t\n\n"])
def test_nothing_but_blank_lines(content: bytes, tmp_path: pathlib.Path) -> None:
    message = r"a\.tsv is empty, or all its lines are blank\. Pass a file with at least one pair"
    with pytest.raises(ValueError, match=message):
        read_tsv(write(tmp_path / "a.tsv", content))


def test_third_column_of_attributions(tmp_path: pathlib.Path) -> None:
    # As of Tatoeba: English, Spanish, and who wrote the two sentences.
    lines = "Go.\tVe.\tCC-BY 2.0 (France) Attribution: tatoeba.org #2877272 (CM)\n\nHi.\tHola.\t\n"
    path = write(tmp_path / "a.tsv", lines.encode())
    assert read_tsv(path, columns=("source", "target", "attribution")) == [("Go.", "Ve."), ("", ""), ("Hi.", "Hola.")]


def test_tsv_named_columns(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "a.tsv", b"1\tuno\tone\n2\tdos\ttwo\n")
    assert read_tsv(path, columns=("id", "target", "source")) == [("one", "uno"), ("two", "dos")]


@pytest.mark.parametrize(("suffix", "compress"), [*COMPRESSIONS, ("", gzip.compress), (".xz", gzip.compress)])
def test_compressed(suffix: str, compress, tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / f"a.tsv{suffix}", compress(b"one\tuno\n"))
    assert read_tsv(path) == [("one", "uno")]


def test_byte_order_mark_and_carriage_returns_are_dropped(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "a.tsv", b"\xef\xbb\xbfone\tuno\r\n\xef\xbb\xbftwo\td\ros\r\n")
    assert read_tsv(path) == [("one", "uno"), ("two", "d\ros")]  # two files may have been joined


def test_only_line_feeds_end_lines(tmp_path: pathlib.Path) -> None:
    text = "a\u2028b\u0085c\vd\x1ce\f\tx\n"
    assert read_tsv(write(tmp_path / "a.tsv", text.encode())) == [("a\u2028b\u0085c\vd\x1ce\f", "x")]


def test_parallel(tmp_path: pathlib.Path) -> None:
    source = write(tmp_path / "a.en", b"one\n\nthree\tx\n")
    target = write(tmp_path / "a.es.gz", gzip.compress(b"uno\ndos\ntres"))
    assert read_parallel(source, target) == [("one", "uno"), ("", "dos"), ("three\tx", "tres")]


in_both_ways = pytest.mark.parametrize(
    "read", [read_parallel, lambda *files: [*ParallelFiles(*files)]], ids=["held", "streamed"]
)


@in_both_ways
def test_parallel_of_different_length(read, tmp_path: pathlib.Path) -> None:
    source, target = write(tmp_path / "a.en", b"one\ntwo\nthree\n"), write(tmp_path / "a.es", b"uno\n")
    with pytest.raises(
        ValueError, match=r"a\.en with 3 lines and .*a\.es with 1 line\. Line 2 of .*a\.en is the first"
    ):
        read(source, target)


@in_both_ways
def test_empty_parallel_files(read, tmp_path: pathlib.Path) -> None:
    empty = write(tmp_path / "empty.txt", b"")
    with pytest.raises(ValueError, match=r"are empty\. Pass files with at least one line"):
        read(empty, empty)


def test_not_utf8(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "latin.tsv", b"one\tuno\nyear\ta\xf1o\n")
    with pytest.raises(
        ValueError, match=r"latin\.tsv, line 2: byte 0xf1 at position 7 is not UTF-8\. Convert the file"
    ):
        read_tsv(path)


@pytest.mark.parametrize(
    ("line", "count"),
    [(b"alone", "1 column where 2"), (b"a\tb\tc", "3 columns where 2"), (b"a\t\t", "3 columns where 2")],
)
def test_wrong_number_of_columns(line: bytes, count: str, tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "a.tsv", b"one\tuno\n" + line + b"\ntwo\tdos\n")
    with pytest.raises(ValueError, match=rf"a\.tsv, line 2: {count} were expected \(source, target, split by tabs\)"):
        read_tsv(path)


def test_wrong_number_of_columns_names_the_remedy_in_python_and_on_the_command_line(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "a.tsv", b"Go.\tVe.\tCC-BY 2.0\n")
    remedy = 'columns=("source", "target", "attribution") in Python or --columns source,target,attribution on the'
    with pytest.raises(ValueError, match=re.escape(remedy)):
        read_tsv(path)


@pytest.mark.parametrize("columns", [("id", "source"), ("id", "target"), ("source", "source", "target"), ()])
def test_columns_without_source_and_target(columns: tuple[str, ...], tmp_path: pathlib.Path) -> None:
    with pytest.raises(
        ValueError,
        match=re.escape(f'columns must name "source" and "target", and each column once. Received: columns={columns!r}')
        + ".* in Python or --columns id,source,target on the command line",
    ):
        read_tsv(tmp_path / "a.tsv", columns=columns)


def test_missing_file(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.tsv does not exist\. Pass the name of a file"):
        read_tsv(tmp_path / "none.tsv")
    with pytest.raises(FileNotFoundError, match=r"is a directory. Pass the name of a file"):
        read_parallel(tmp_path, tmp_path)


def incompressible(lines: int) -> bytes:
    return b"".join(f"{n * 2654435761 % 2**32}\t{n * 40503 % 65537}\n".encode() for n in range(lines))


@COMPRESSED
def test_cut_short(suffix: str, compress, tmp_path: pathlib.Path) -> None:
    whole = compress(incompressible(20_000))
    path = write(tmp_path / f"a.tsv{suffix}", whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=rf"a\.tsv\{suffix}: the \w+ data are damaged or incomplete"):
        read_tsv(path)


@COMPRESSED
def test_damaged_data(suffix: str, compress, tmp_path: pathlib.Path) -> None:
    whole = compress(incompressible(2000))
    # 24 bytes keep the headers of both formats whole; a deflate block of ones is of no valid type.
    path = write(tmp_path / f"a.tsv{suffix}", whole[:24] + b"\xff" * 100 + whole[124:])
    with pytest.raises(ValueError, match=r"are damaged or incomplete .* Copy or download the file again"):
        read_tsv(path)


def test_damaged_block_type(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "a.tsv.gz", gzip.compress(b"one\tuno\n")[:10] + b"\xff" * 30)
    with pytest.raises(ValueError, match=r"a\.tsv\.gz: the gzip data are damaged or incomplete \(.*invalid block type"):
        read_tsv(path)


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2", ".GZ"])
def test_only_named_compressed(suffix: str, tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / f"a.tsv{suffix}", b"one\tuno\n")
    with pytest.raises(
        ValueError, match=rf"a\.tsv\{suffix}: the \w+ data are damaged.* If it is plain text, rename it"
    ):
        read_tsv(path)


# More than a block of 64 KiB, so that a reader could give lines before it compares a checksum.
SENTENCES = "".join(
    f"line {n} of the text\tlínea {n} del texto {n * 2654435761 % 2**32}\n" for n in range(2000)
).encode()


def pairs_or_error(path: pathlib.Path) -> list[tuple[str, str]] | str:
    try:
        return read_tsv(path)
    except ValueError as error:
        return str(error)


@COMPRESSED
def test_a_flipped_bit_is_damage_and_not_the_fault_of_a_line(suffix: str, compress, tmp_path: pathlib.Path) -> None:
    whole = compress(SENTENCES)
    path = write(tmp_path / f"a.tsv{suffix}", whole)
    pairs = read_tsv(path)
    damage = f"{path}: the {NAMES[suffix]} data are damaged or incomplete ("
    told = 0
    for bit in random.Random(0).sample(range(8 * len(whole)), 50):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        found = pairs_or_error(write(path, bytes(flipped)))
        told += isinstance(found, str)
        # A time in a header may be another one: then the pairs are right.
        assert found == pairs or (isinstance(found, str) and found.startswith(damage)), (bit, found)
    assert told >= 45


@COMPRESSED
def test_two_joined_files_of_many_blocks(suffix: str, compress, tmp_path: pathlib.Path) -> None:
    pairs = read_tsv(write(tmp_path / "a.tsv", SENTENCES))
    assert read_tsv(write(tmp_path / f"b.tsv{suffix}", compress(SENTENCES) * 2)) == pairs * 2


@COMPRESSED
def test_damage_in_the_second_of_two_joined_files(suffix: str, compress, tmp_path: pathlib.Path) -> None:
    # `cat a.xz b.xz` is a file of two streams, which may be filled up by zeros to a multiple of 4 bytes.
    first, second = compress(b"one\tuno\n"), compress(b"two\tdos\n")
    for joined in (first + second, first + bytes(8) + second + bytes(4)):
        assert read_tsv(write(tmp_path / f"a.tsv{suffix}", joined)) == [("one", "uno"), ("two", "dos")]
    for place in (0, 1, 2, len(second) // 2, len(second) - 2):
        flipped = bytearray(first + second)
        flipped[len(first) + place] ^= 1
        with pytest.raises(ValueError, match=rf"a\.tsv\{suffix}: the \w+ data are damaged or incomplete"):
            read_tsv(write(tmp_path / f"a.tsv{suffix}", bytes(flipped)))


@pytest.mark.parametrize(("suffix", "compress"), [("", bytes), *COMPRESSIONS])
def test_named_pipe(suffix: str, compress, tmp_path: pathlib.Path) -> None:
    path = tmp_path / f"a.tsv{suffix}"
    os.mkfifo(path)
    writer = threading.Thread(target=write, args=(path, compress(b"one\tuno\n")))
    writer.start()
    try:
        assert read_tsv(path) == [("one", "uno")]
    finally:
        writer.join()


def write_one_after_the_other(first: pathlib.Path, second: pathlib.Path, text: bytes) -> None:
    write(first, text)
    write(second, text)


def write_in_step(first: pathlib.Path, second: pathlib.Path, text: bytes) -> None:
    with first.open("wb") as one, second.open("wb") as other:
        for line in text.splitlines(keepends=True):
            one.write(line)
            other.write(line)


@pytest.mark.parametrize("write_both", [write_one_after_the_other, write_in_step])
@pytest.mark.parametrize("names", ["ab", "ba"])
def test_two_named_pipes_are_read_however_they_are_written(write_both, names, tmp_path: pathlib.Path) -> None:
    for name in names:
        os.mkfifo(tmp_path / name)
    text = b"a line\n" * 30_000  # more than a pipe holds
    paths = [tmp_path / name for name in names]
    writer = threading.Thread(target=write_both, args=(*paths, text), daemon=True)
    writer.start()
    read: list[int] = []
    reader = threading.Thread(
        target=lambda: read.append(len(read_parallel(tmp_path / "a", tmp_path / "b"))), daemon=True
    )
    reader.start()
    reader.join(timeout=30)
    assert read == [30_000]


def test_a_mistake_in_the_second_of_two_files_is_told(tmp_path: pathlib.Path) -> None:
    write(tmp_path / "a", b"one\n")
    write(tmp_path / "b", b"\xff\n")
    with pytest.raises(ValueError, match="b, line 1: "):
        read_parallel(tmp_path / "a", tmp_path / "b")


def append(path: pathlib.Path) -> None:
    with path.open("ab") as file:
        file.write(b"two\td")


def rewrite(path: pathlib.Path) -> None:
    path.write_bytes(b"+" + path.read_bytes()[1:])


def shrink(path: pathlib.Path) -> None:
    os.truncate(path, 300_000)


def shrink_to_half_a_line(path: pathlib.Path) -> None:
    os.truncate(path, 300_002)


CHANGES = pytest.mark.parametrize("change", [append, rewrite, shrink, shrink_to_half_a_line])


@pytest.fixture
def changed_while_read(tmp_path: pathlib.Path) -> Callable[..., list[tuple[str, str]]]:
    """Reads files of 400,000 bytes, written an hour ago, of which the first is changed after its first line is read."""

    def read(name: str, line: bytes, change: Callable[[pathlib.Path], None], source) -> list[tuple[str, str]]:
        path = write(tmp_path / name, line * (400_000 // len(line)))
        an_hour_ago = path.stat().st_mtime - 3600
        os.utime(path, (an_hour_ago, an_hour_ago))
        pairs = iter(source(path))
        first = next(pairs)
        change(path)
        return [first, *pairs]

    return read


@CHANGES
def test_a_file_that_changes_while_it_is_read(change, changed_while_read, tmp_path: pathlib.Path) -> None:
    message = (
        rf"^{re.escape(str(tmp_path))}/a\.tsv was written to while it was read: it had 400,000 bytes before and has "
        r"\d{3},\d{3} now. Wait until it is completely written, or copy it first and read the copy."
    )
    with pytest.raises(ValueError, match=message):
        changed_while_read("a.tsv", b"one\tuno\n", change, TsvFile)


def test_a_file_that_is_replaced_within_a_second_by_one_of_its_size(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "a.tsv", b"one\tuno\n" * 50_000)
    os.utime(path, ns=(10**18, 10**18))
    pairs = iter(TsvFile(path))
    next(pairs)
    with path.open("r+b") as file:
        file.seek(-8, os.SEEK_END)
        file.write(b"six\tsei\n")
    os.utime(path, ns=(10**18, 10**18 + 1_000_000))
    with pytest.raises(ValueError, match=r"a\.tsv was written to while it was read"):
        list(pairs)


def test_a_second_text_stands_behind_the_first(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "a.tsv", b"yes\tIs it?\tIt is.\n")
    assert read_tsv(path, ("target", "source", "second")) == [("Is it?\tIt is.", "yes")]
    assert read_tsv(path, ("target", "second", "source")) == [("It is.\tIs it?", "yes")]


@CHANGES
@pytest.mark.parametrize("side", [0, 1])
def test_a_parallel_file_that_changes_while_it_is_read(side, change, changed_while_read, tmp_path) -> None:
    other = write(tmp_path / "a.es", b"uno\n" * 100_000)
    with pytest.raises(ValueError, match=r"a\.en was written to while it was read"):
        changed_while_read(
            *("a.en", b"one\n", change),
            lambda path: ParallelFiles(*((path, other) if side == 0 else (other, path))),
        )


def test_a_file_that_is_replaced_by_another_one_is_read_as_it_was(changed_while_read) -> None:
    def replace(path: pathlib.Path) -> None:
        write(path.with_name("new"), b"two\tdos\n").replace(path)

    assert changed_while_read("a.tsv", b"one\tuno\n", replace, TsvFile) == [("one", "uno")] * 50_000


def test_a_file_is_read_anew_each_time(tmp_path: pathlib.Path) -> None:
    write(tmp_path / "a.tsv.xz", lzma.compress(b"one\tuno\n\ntwo\tdos\n"))
    write(tmp_path / "b.en", b"one\n\ntwo\n")
    write(tmp_path / "b.es", b"uno\n\ndos")
    blank, texts = ("", ""), [("one", ""), ("", ""), ("two", "")]
    whole = [("one", "uno"), blank, ("two", "dos")]
    for pairs, expected in [
        (TsvFile(tmp_path / "a.tsv.xz"), whole),
        (ParallelFiles(tmp_path / "b.en", tmp_path / "b.es"), whole),
        (TextFile(tmp_path / "b.en"), texts),
    ]:
        assert next(iter(pairs)) == expected[0]  # what is begun and left has no effect
        assert [list(pairs), len(pairs), list(zip(pairs, pairs, strict=True))] == [
            expected,
            3,
            [(pair, pair) for pair in expected],
        ]


@pytest.mark.parametrize("change", [append, rewrite, shrink, lambda path: os.utime(path, (1, 1))])
def test_a_file_that_changes_between_two_readings(change, tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "a.tsv", b"one\tuno\n" * 50_000)
    pairs = TsvFile(path)
    assert len(pairs) == 50_000
    change(path)
    message = r"a\.tsv has changed since it was first read: it had 400,000 bytes then and has \d{3},\d{3} now"
    with pytest.raises(ValueError, match=message):
        next(iter(pairs))


def test_a_pipe_is_read_once(tmp_path: pathlib.Path) -> None:
    os.mkfifo(path := tmp_path / "a.txt")
    pairs = TextFile(path)
    writer = threading.Thread(target=write, args=(path, b"one\n"))
    writer.start()
    assert list(iter(pairs)) == [("one", "")]
    writer.join()
    with pytest.raises(ValueError, match=r"a\.txt is a pipe, which can be read only once. Hold its pairs, as read_tsv"):
        next(iter(pairs))


def test_a_table_of_another_program_is_told_of_once(tmp_path: pathlib.Path) -> None:
    pairs = TsvFile(write(tmp_path / "a.tsv", b"source\ttarget\none\tuno\n"))
    with pytest.warns(UserWarning, match="look like names of the columns"):
        assert len(pairs) == 2
    assert len(list(pairs)) == 2  # without a warning, which would be an error here
