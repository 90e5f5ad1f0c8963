"""Training, commands and pipes read the same lines from the same bytes, whatever way they are packed or encoded in."""

import bz2
import gzip
import io
import lzma
import os
import pathlib
import re
import select
import threading
import time
import zlib

import pytest
import zstandard

from kformer.cli.lines import InputFields, LineModel, check_files, number_of_lines, write_answers
from kformer.data import read_texts
from kformer.files.blocks import file_blocks, pipe_blocks
from kformer.files.compression import compression_of, decompressed
from kformer.files.lines import lines_of
from kformer.inference.line_forms import NBest
from kformer.inference.lines import LINES_AT_ONCE, answer_lines, input_lines
from kformer.text.batches import Hypothesis

TEXT = "They found the stone rolled away.\naño, 猫\n"
LINES = TEXT.splitlines()
READ_EVERYWHERE = {
    "plain": TEXT.encode(),
    "no line feed at the end": TEXT.rstrip().encode(),
    "CR and LF": TEXT.replace("\n", "\r\n").encode(),
    "CR": TEXT.replace("\n", "\r").encode(),
    "byte order mark": TEXT.encode("utf-8-sig"),
    "byte order marks of two joined files": b"".join(f"\ufeff{line}\r\n".encode() for line in LINES),
    "gzip": gzip.compress(TEXT.encode()),
    "xz": lzma.compress(TEXT.encode()),
    "bzip2": bz2.compress(TEXT.encode()),
    "zstd": zstandard.compress(TEXT.encode()),
    "zstd behind a frame to skip": b"P*M\x18" + bytes([4, 0, 0, 0, 1, 2, 3, 4]) + zstandard.compress(TEXT.encode()),
    "two streams of zstd": zstandard.compress(TEXT[:9].encode()) + zstandard.compress(TEXT[9:].encode()),
    "two joined gzip files": gzip.compress(LINES[0].encode() + b"\n") + gzip.compress(LINES[1].encode()),
    "gzip with zeros after it": gzip.compress(TEXT.encode()) + bytes(512),  # as a tape has them
    "gzip and a byte order mark": gzip.compress(TEXT.encode("utf-8-sig")),
    "UTF-16": TEXT.encode("utf-16"),
    "UTF-16, big end first": b"\xfe\xff" + TEXT.replace("\n", "\r\n").encode("utf-16-be"),
    "UTF-32": TEXT.encode("utf-32"),
    "UTF-32, big end first": b"\0\0\xfe\xff" + TEXT.encode("utf-32-be"),
}


def test_a_text_may_begin_as_bzip2_does():
    assert compression_of(b"BZhang wrote") is None
    assert compression_of(bz2.compress(b"BZhang wrote")) == "bzip2"


REFUSED_EVERYWHERE = {
    "zip": (b"PK\x03\x04" + bytes(26), "is compressed by zip, which is not read. Decompress it first"),
    "half a zstd file": (zstandard.compress(TEXT.encode())[:-9], "the zstd data are damaged or incomplete"),
    "damaged zstd": (b"(\xb5/\xfd" + bytes(9), "the zstd data are damaged or incomplete"),
    "half a gzip file": (gzip.compress(TEXT.encode())[:-9], "the gzip data are damaged or incomplete"),
    "half a bzip2 file": (bz2.compress(TEXT.encode())[:-9], "the bzip2 data are damaged or incomplete"),
    "damaged bzip2": (bz2.compress(TEXT.encode())[:12] + bytes(40), "the bzip2 data are damaged or incomplete"),
    "odd UTF-16": (TEXT.encode("utf-16")[:-1], "begins with the byte order mark of UTF-16LE, but is not valid"),
    "UTF-16BE without a mark": ("one two\n".encode("utf-16-be"), "looks like UTF-16BE without a byte order mark"),
    "UTF-16LE without a mark": ("one two\n".encode("utf-16-le"), "looks like UTF-16LE .* iconv -f UTF-16LE -t UTF-8"),
}
# Training refuses these lines; the commands count them.
FAULTY = {
    "CP1252": (
        "one\nyear año\n".encode("cp1252"),
        "line 2: byte 0xf1 at position 7 is not UTF-8. Convert .* -f CP1252",
    ),
    "NUL": (b"one\n\nt\0wo\n", "line 3: byte 0x00 at position 2 is a NUL, which no text has. Remove the NULs"),
    "no text at all": (
        b"one\n\x89PNG\x1a\x00\x03\n",
        "line 2: byte 0x89 at position 1 is not UTF-8, and other bytes are no text",
    ),
}


def write(path: pathlib.Path, content: bytes) -> pathlib.Path:
    path.write_bytes(content)
    return path


class Echo:
    """Answers texts with themselves, and keeps the batches."""

    def __init__(self) -> None:
        self.batches: list[list[bytes]] = []

    def __call__(self, texts):
        self.batches.append(list(texts))
        return [[Hypothesis(text.decode("utf-8", "replace"), 0.0)] for text in texts]


def answered(input: pathlib.Path, output: pathlib.Path) -> list[str]:
    """What the line commands write for a file."""
    write_answers(LineModel(Echo(), 64, None), input, output, number_of_lines(input), "reading")
    return output.read_text("utf-8").splitlines()


def piped(content: bytes, monkeypatch, output: pathlib.Path) -> list[str]:
    """What the line commands write for standard input."""
    with os.fdopen(_pipe_of(content)) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        write_answers(LineModel(Echo(), 64, None), None, output, number_of_lines(None), "reading")
    return output.read_text("utf-8").splitlines()


def _pipe_of(content: bytes) -> int:
    end, begin = os.pipe()
    os.write(begin, content)
    os.close(begin)
    return end


@pytest.mark.parametrize("content", READ_EVERYWHERE.values(), ids=READ_EVERYWHERE)
def test_training_and_commands_read_the_same_lines(content, tmp_path, monkeypatch, capsys):
    path = write(tmp_path / "text.txt", content)  # the name says nothing
    assert [text for text, _ in read_texts(path)] == LINES
    assert answered(path, tmp_path / "out") == LINES
    assert piped(content, monkeypatch, tmp_path / "out") == LINES
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("content", "message"), REFUSED_EVERYWHERE.values(), ids=REFUSED_EVERYWHERE)
def test_what_is_refused_is_refused_by_its_name(content, message, tmp_path, monkeypatch):
    path = write(tmp_path / "text.txt", content)
    with pytest.raises(ValueError, match=f"text.txt.*{message}"):
        read_texts(path)
    with pytest.raises(ValueError, match=f"text.txt.*{message}"):
        number_of_lines(path)
    with pytest.raises(ValueError, match=f"standard input.*{message}"):
        piped(content, monkeypatch, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("content", "fault"), FAULTY.values(), ids=FAULTY)
def test_lines_that_are_no_text_are_refused_in_training_and_counted_by_commands(
    content, fault, tmp_path, monkeypatch, capsys
):
    path = write(tmp_path / "text.txt", content + content)
    with pytest.raises(ValueError, match=f"text.txt, {fault}"):
        read_texts(path)
    lines = 2 * content.count(b"\n")
    assert len(answered(path, tmp_path / "out")) == lines
    warned = capsys.readouterr().err
    assert warned.startswith(f"kformer: warning: {path}: 2 lines with bytes that are not text in UTF-8")
    assert warned.count("\n") == 1
    assert len(piped(content + content, monkeypatch, tmp_path / "out")) == lines
    assert capsys.readouterr().err == warned.replace(str(path), "standard input")
    with pytest.raises(ValueError, match=f"The first is {fault}"):
        raise ValueError(warned)


NO_TEXT = {
    "zip": b"PK\x03\x04" + bytes(20),
    "half a gzip file": gzip.compress(b"one")[:-1],
    "PNG": b"\x89PNG\x1a\x00\x03",
}


@pytest.mark.parametrize("content", NO_TEXT.values(), ids=NO_TEXT)
def test_no_conversion_is_advised_for_what_is_no_text(content, tmp_path):
    with pytest.raises(ValueError, match=r"a\.txt") as caught:
        read_texts(write(tmp_path / "a.txt", content))
    assert not re.search("iconv|onvert", str(caught.value))


def test_a_carriage_return_within_a_line_is_text_where_line_feeds_end_the_lines(tmp_path):
    assert read_texts(write(tmp_path / "a.txt", b"one\rtwo\nthree\r\n")) == [("one\rtwo", ""), ("three", "")]
    late = b"a\r" * 1000 + b"\nb\n"  # the first line feed comes after many of them
    assert [text for text, _ in read_texts(write(tmp_path / "a.txt", late))] == ["a\r" * 999 + "a", "b"]


def test_one_carriage_return_belongs_to_the_end_of_a_line_also_at_the_end_of_the_file():
    assert list(lines_of(iter([b"one\r\r\ntwo\r"]), "a")) == [b"one\r", b"two"]
    first = b"x" * ((1 << 20) - 1) + b"\r"  # a MiB, of which the line feed is the next byte
    assert list(lines_of(iter([first, b"\ntwo\n"]), "a")) == [first[:-1], b"two"]


def test_a_large_file_of_carriage_returns_is_read_line_by_line():
    blocks = iter([b"one\r" * 4096] * 1000)  # 16 KiB each; the end of a line is known after a MiB
    assert next(lines_of(blocks, "a")) == b"one"
    assert len(list(blocks)) == 1000 - 64


def test_a_single_nul_is_no_sign_of_utf_16():
    assert list(lines_of(iter([b"\0\n"]), "a")) == [b"\0"]


def test_zeros_alone_as_a_crash_of_the_system_leaves_them_are_no_sign_of_utf_16():
    assert list(lines_of(iter([bytes(64) + b"\n"]), "a")) == [bytes(64)]


def _in_two_parts(wbits):
    packer = zlib.compressobj(wbits=wbits)
    return [packer.compress(b"one\n") + packer.flush(zlib.Z_SYNC_FLUSH), packer.compress(b"two\n") + packer.flush()]


@pytest.mark.parametrize(
    "parts",
    [[b"one\n", b"two\n"], _in_two_parts(16 + zlib.MAX_WBITS), ["\ufeffone\n".encode("utf-16-le"), b"t\0w\0o\0\n\0"]],
    ids=["plain", "gzip", "UTF-16"],
)
def test_the_lines_before_a_pause_come_before_it(parts):
    assert list(lines_of(iter([parts[0], None, parts[1]]), "a")) == [b"one", None, b"two"]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("content", READ_EVERYWHERE.values(), ids=READ_EVERYWHERE)
def test_lines_do_not_depend_on_the_blocks_in_which_bytes_come(content, size):
    blocks = (content[start : start + size] for start in range(0, len(content), size))
    assert [line.decode() for line in lines_of(blocks, "a")] == LINES


def test_a_line_of_100_mb_takes_no_longer_than_its_bytes(tmp_path):
    block = b"x" * (1 << 16)
    begin = time.perf_counter()
    (line,) = lines_of(iter([block] * 1600), "a")
    assert len(line) == 1600 << 16
    assert time.perf_counter() - begin < 5  # 0.2 s; minutes if each block copied the line so far


def test_a_file_that_shrank_to_a_thousandth_is_decompressed_piece_by_piece():
    packed = gzip.compress((b"a" * 99 + b"\n") * 100_000)
    assert len(packed) < 1 << 16  # one block
    blocks = list(decompressed(file_blocks(io.BytesIO(packed)), "a"))
    assert sum(map(len, blocks)) == 10_000_000
    assert max(map(len, blocks)) < 5_000_000


# A caller that writes and waits


class Waiting:
    """A caller that writes to a pipe and reads what `answer_lines` answers."""

    def __init__(self, echo: Echo) -> None:
        read, self._write = os.pipe()
        self._answers, write = os.pipe()
        source, target = os.fdopen(read, "rb"), os.fdopen(write, "wb")

        def work() -> None:
            with source, target:
                answer_lines(echo, input_lines(lines_of(pipe_blocks(source), "pipe")), target)

        self._thread = threading.Thread(target=work)
        self._thread.start()

    def say(self, content: bytes) -> None:
        os.write(self._write, content)

    def hear(self) -> bytes:
        assert select.select([self._answers], [], [], 10)[0], "no answer"
        return os.read(self._answers, 1 << 16)

    def end(self) -> bytes:
        os.close(self._write)
        self._thread.join(10)
        rest = self.hear()
        os.close(self._answers)
        return rest


def test_a_caller_that_writes_one_line_and_waits_is_answered():
    echo = Echo()
    caller = Waiting(echo)
    for line in (b"a\n", b"P\n", "猫\n".encode(), b"\n"):
        caller.say(line)
        assert caller.hear() == line
    caller.say(b"one\ntwo\nthr")  # the last line is not complete
    assert caller.hear() == b"one\ntwo\n"
    time.sleep(0.05)
    caller.say(b"ee\nfo")
    assert caller.hear() == b"three\n"
    caller.say(b"ur")
    assert caller.end() == b"four\n"


def test_many_lines_of_a_pipe_are_still_answered_together(tmp_path):
    lines = b"".join(b"%d\n" % number for number in range(5000))
    path = write(tmp_path / "in", lines)
    sizes = []

    def answer(texts):
        sizes.append(len(texts))
        return Echo()(texts)

    with path.open("rb") as source, (tmp_path / "out").open("wb") as target:
        answer_lines(answer, input_lines(lines_of(pipe_blocks(source), "pipe")), target, batch_size=10_000)
    assert (tmp_path / "out").read_bytes() == lines
    assert sizes == [1024, 1024, 1024, 1024, 904]


class Watcher:
    """Keeps each line with the number of its hypotheses."""

    def __init__(self, seen):
        self.seen = seen

    def __call__(self, line, hypotheses, fault):
        self.seen.append((line, len(hypotheses)))

    def message(self):
        return None


def test_answers_to_standard_input_have_the_form_that_was_asked_for(tmp_path, monkeypatch):
    def answer(texts):
        batches.append(len(texts))
        return [[Hypothesis("one", -1.0), Hypothesis("two", -2.0), Hypothesis("three", -3.0)] for _ in texts]

    batches, seen = [], []
    with os.fdopen(_pipe_of(b"a\nb\nc\n")) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert number_of_lines(None) == LINES_AT_ONCE
        model = LineModel(answer, 2, None, [Watcher(seen)])
        write_answers(model, None, tmp_path / "out", LINES_AT_ONCE, "translating", form=NBest(2))
    assert (tmp_path / "out").read_text().splitlines()[:3] == [
        "0 ||| one ||| -1.000000",
        "0 ||| two ||| -2.000000",
        "1 ||| one ||| -1.000000",
    ]
    assert len((tmp_path / "out").read_text().splitlines()) == 3 * 2
    assert batches == [2, 1]
    assert seen == [(b"a", 3), (b"b", 3), (b"c", 3)]


# The output is not the input


@pytest.mark.parametrize("link", [os.link, os.symlink, None])
def test_an_output_that_is_the_input_is_refused(link, tmp_path):
    source = write(tmp_path / "in", b"one\n")
    output = source if link is None else tmp_path / "out"
    if link is not None:
        link(source, output)
    with pytest.raises(ValueError, match=f"{output} is the same file as {source}, which the answers would replace"):
        check_files(source, output)
    check_files(source, tmp_path / "other")


def test_an_output_that_is_the_file_of_standard_input_is_refused(tmp_path, monkeypatch):
    source = write(tmp_path / "in", b"one\n")
    with source.open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        with pytest.raises(ValueError, match="is the same file as standard input, which the answers would replace"):
            check_files(None, source)
    with source.open("a") as stdout:
        monkeypatch.setattr("sys.stdout", stdout)
        with pytest.raises(ValueError, match=f"Standard output is the same file as {source}"):
            check_files(source, None)


def test_a_terminal_may_be_both_input_and_output(monkeypatch):
    """/dev/null stands for it here: it is no regular file either, so nothing is replaced."""
    with open(os.devnull) as stdin, open(os.devnull, "w") as stdout:
        monkeypatch.setattr("sys.stdin", stdin)
        monkeypatch.setattr("sys.stdout", stdout)
        check_files(None, None)


FIELDS = {
    "table.csv": b'id,en,es\n1,"one, two",uno\n2,"three\nfour",dos\n',
    "pairs.jsonl": b'{"id": 1, "en": "one, two", "es": "uno"}\n{"id": 2, "en": "three\\n four", "es": ""}\n',
    "memory.tmx": b"<tmx><body><tu><tuv lang='en-GB'><seg>one, two</seg></tuv><tuv lang='es'><seg>uno</seg></tuv></tu>"
    b"<tu><tuv lang='fr'><seg>un</seg></tuv></tu>"
    b"<tu><tuv lang='es'><seg/></tuv><tuv lang='en'><seg>three<ph>x</ph> four</seg></tuv></tu></body></tmx>",
    "renamed.txt": b"en\tes\none, two\tuno\nthree four\tdos\n",
}


@pytest.mark.parametrize("name", FIELDS)
def test_the_texts_of_a_field_are_answered(name, tmp_path, capsys):
    (tmp_path / name).write_bytes(FIELDS[name])
    reading = InputFields("en,es")
    number = number_of_lines(tmp_path / name, reading)
    write_answers(LineModel(Echo(), 64, None), tmp_path / name, tmp_path / "out", number, "reading", reading)
    assert (number, (tmp_path / "out").read_text()) == (2, "one, two\nthree four\n")
    warned = capsys.readouterr().err.count("of 3 units, 1 without one of the languages")
    assert warned == (1 if name == "memory.tmx" else 0)


def test_what_becomes_of_tags_within_the_texts_is_chosen(tmp_path):
    (tmp_path / "memory.tmx").write_bytes(FIELDS["memory.tmx"])
    reading = InputFields("en,es", "keep")
    number = number_of_lines(tmp_path / "memory.tmx", reading)
    write_answers(LineModel(Echo(), 64, None), tmp_path / "memory.tmx", tmp_path / "out", number, "reading", reading)
    assert (tmp_path / "out").read_text() == "one, two\nthreex four\n"
