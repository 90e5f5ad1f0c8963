"""Lines that cannot be read: an error that names the first ten, or left out on demand."""

import os
import re

import pytest

from kformer.data import JsonLinesFile, ParallelFiles, TableFile, TextFile, TsvFile, open_pairs, prepare_corpus
from kformer.data.joined import JoinedFiles

GOOD = [(f"source {number}", f"target {number}") for number in range(40)]


def tsv(path, bad):
    """A file in which a line stands before each of the numbers in `bad`, with one column."""
    lines = []
    for number, pair in enumerate(GOOD):
        lines += ["one column"] * (number in bad) + ["\t".join(pair)]
    path.write_text("\n".join(lines) + "\n")
    return TsvFile(path)


def told(pairs):
    with pytest.raises(ValueError, match="line") as error:
        list(pairs)
    return str(error.value)


def test_one_bad_line_is_told_as_it_is(tmp_path):
    said = told(tsv(tmp_path / "a.tsv", {30}))
    assert said.startswith(f"{tmp_path / 'a.tsv'}, line 31: 1 column where 2 were expected")
    assert "cannot be read" not in said


def test_the_first_ten_bad_lines_and_their_number_are_told(tmp_path):
    said = told(tsv(tmp_path / "a.tsv", {*range(10, 37, 2)}))
    assert [int(number) for number in re.findall(r"line (\d+): 1 column", said)] == [
        11 + 3 * place for place in range(10)
    ]
    assert said.splitlines()[-1] == (
        "14 lines cannot be read, of which the first are told. Correct them, or leave them out: skip_bad_lines=True in "
        "Python, --skip-bad-lines on the command line."
    )


@pytest.mark.parametrize(("good", "at_once"), [(0, True), (10, True), (11, False)])
def test_a_file_of_another_form_is_told_at_once(tmp_path, good, at_once):
    path = tmp_path / "a.tsv"
    path.write_text("a\tb\n" * good + "x\n" * 100)
    assert (f"Of the first {good + 10} lines, 10 cannot be read." in told(TsvFile(path))) == at_once


def test_bad_lines_are_left_out_on_demand(tmp_path):
    pairs = tsv(tmp_path / "a.tsv", {3, 7})
    pairs.skip_bad_lines = True
    with pytest.warns(UserWarning, match=r"(?s)2 lines cannot be read and are left out:.*line 4: .*line 9: "):
        assert list(pairs) == GOOD
    assert (pairs.held(), len(pairs)) == (GOOD, 40)  # without another warning


@pytest.mark.parametrize(
    ("make", "content", "good"),
    [
        (TextFile, b"one\na\xff\ntwo\n", [("one", ""), ("two", "")]),
        (
            lambda path: JsonLinesFile(path, ("a",)),
            b'{"a": "one"}\na\xff\n{"b": 1}\n{"a": "two"}\n',
            [("one", ""), ("two", "")],
        ),
        (lambda path: TableFile(path, ("a",)), b"a,b\none,x\na\xff\n1,2,3\ntwo,y\n", [("one", ""), ("two", "")]),
        (TsvFile, b"one\tuno\na\xff\n1\ntwo\tdos\n", [("one", "uno"), ("two", "dos")]),
    ],
    ids=["text", "json lines", "table", "tsv"],
)
def test_every_file_of_lines_leaves_out_what_cannot_be_read(tmp_path, make, content, good):
    (tmp_path / "file").write_bytes(content)
    pairs = make(tmp_path / "file")
    assert "byte 0xff at position 2 is not UTF-8" in told(pairs)
    pairs = make(tmp_path / "file")
    pairs.skip_bad_lines = True
    with pytest.warns(UserWarning, match="byte 0xff"):
        assert list(pairs) == good


@pytest.mark.parametrize("skip", [False, True])
def test_the_rows_of_a_table_have_the_numbers_of_their_lines_behind_one_that_cannot_be_read(tmp_path, skip):
    path = tmp_path / "a.csv"
    path.write_bytes(b"source,target\none,uno\n\xf1,x\ntwo,dos,3\n\nthree,3,tres\n")
    pairs = TableFile(path)
    pairs.skip_bad_lines = skip
    if skip:
        with pytest.warns(UserWarning, match=r"(?s)line 3: .*line 4: 3 fields .*line 6: 3 fields"):
            assert list(pairs) == [("one", "uno")]
    else:
        with pytest.raises(ValueError, match=r"(?s)line 3: .*line 4: 3 fields .*line 6: 3 fields"):
            list(pairs)


@pytest.mark.parametrize("lines", [[b"caf\xe9", b"bar"], [b"bar", b"caf\xe9"], [b"a", b"\0", b"b"]])
def test_a_row_of_several_lines_is_left_out_if_one_of_them_cannot_be_read(tmp_path, lines):
    (tmp_path / "a.csv").write_bytes(b'source,target\n"' + b"\n".join(lines) + b'",x\none,uno\n')
    pairs = TableFile(tmp_path / "a.csv")
    pairs.skip_bad_lines = True
    with pytest.warns(UserWarning, match="1 line cannot be read and is left out"):
        assert list(pairs) == [("one", "uno")]


def test_parallel_files_of_which_no_line_can_be_read_are_refused(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"\xff\n\xff\n")
    pairs = ParallelFiles(tmp_path / "a", tmp_path / "b")
    pairs.skip_bad_lines = True
    with pytest.raises(ValueError, match="No line of .* can be read in both. Convert the files to UTF-8"):
        list(pairs)


@pytest.mark.parametrize("side", [0, 1])
def test_a_line_of_parallel_files_goes_with_its_partner(tmp_path, side):
    contents = [b"one\ntwo\nthree\n", b"uno\ndos\ntres\n"]
    contents[side] = contents[side].replace(b"\n", b"\n\xff", 1)
    files = [tmp_path / "a", tmp_path / "b"]
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)
    assert "line 2: byte 0xff" in told(ParallelFiles(*files))
    pairs = ParallelFiles(*files)
    pairs.skip_bad_lines = True
    with pytest.warns(UserWarning, match="1 line cannot be read and is left out"):
        assert list(pairs) == [("one", "uno"), ("three", "tres")]
    assert pairs.held() == [("one", "uno"), ("three", "tres")]


def test_it_is_handed_on_and_another_corpus(tmp_path):
    tsv(tmp_path / "a.tsv", {3})
    pairs = open_pairs(tmp_path / "a.tsv", skip_bad_lines=True)
    assert pairs.reading != TsvFile(tmp_path / "a.tsv").reading
    with pytest.warns(UserWarning, match="1 line"):
        corpus = prepare_corpus("a", pairs, cache=tmp_path / "cache")
    assert len(corpus.train) + len(corpus.valid) == 40
    with pytest.warns(UserWarning, match="1 line"):  # each time, as of all warnings of the first reading
        prepare_corpus("a", pairs, cache=tmp_path / "cache")
    joined = JoinedFiles([open_pairs(tmp_path / "a.tsv", skip_bad_lines=True), tsv(tmp_path / "b.tsv", {5})])
    with pytest.warns(UserWarning, match="a.tsv, line 4"), pytest.raises(ValueError, match="b.tsv, line 6"):
        list(joined)


def test_lines_that_became_bad_are_an_error_also_when_the_file_was_read_before(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("one\tuno\ntwo\tdos\n")
    pairs, state = TsvFile(path), path.stat()
    assert len(list(pairs)) == 2
    path.write_text("one\tuno\ntwo dos\n")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert "line 2: 1 column where 2 were expected" in told(pairs)
