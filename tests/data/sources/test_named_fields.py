"""Files with named fields: tables with a header, JSON lines, Parquet and Arrow, whoever wrote them."""

import csv
import gzip
import io
import json
import os
import random
import re
import threading

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from kformer.data import ColumnarFile, JsonLinesFile, TableFile, open_pairs

ROWS = [("one", "uno"), ('two, "2"; three', "dos\ttres|"), ("four\nfive", "cuatro"), ("six", "")]
READ = [("one", "uno"), ('two, "2"; three', "dos tres|"), ("four five", "cuatro"), ("six", "")]
HEADER = ("id", "en", "es")


def table(rows=ROWS, header=HEADER, **dialect):
    written = io.StringIO()
    writer = csv.writer(written, **dialect)
    writer.writerows([header, *((number, *row) for number, row in enumerate(rows))])
    return written.getvalue()


class TestTables:
    @pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
    @pytest.mark.parametrize("end", ["\n", "\r\n"])
    @pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
    @pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
    def test_what_csv_writers_write_is_read(self, tmp_path, delimiter, end, encoding, quoting):
        path = tmp_path / "table.csv"
        path.write_bytes(table(delimiter=delimiter, lineterminator=end, quoting=quoting).encode(encoding))
        assert list(TableFile(path, ("en", "es"))) == READ
        assert list(TableFile(path, ("es", "id"))) == [(target, str(row)) for row, (_, target) in enumerate(READ)]

    @pytest.mark.filterwarnings("ignore:.*look like rows of their own")  # and so they do, by chance
    def test_any_text_comes_back(self, tmp_path):
        draw = random.Random(11)
        texts = ["".join(draw.choices("ab \",;\t|\n'é\U0001f600\u2028", k=draw.randint(1, 12))) for _ in range(400)]
        rows = [*zip(texts[::2], texts[1::2], strict=True)]
        path = tmp_path / "table.csv"
        path.write_text(table(rows), newline="")
        expected = [tuple(" ".join(text.split()) for text in row) for row in rows]
        assert list(TableFile(path, ("en", "es"))) == expected

    def test_one_field_has_no_target_and_three_are_two_texts_with_a_label(self, tmp_path):
        path = tmp_path / "table.csv"
        path.write_text("premise,hypothesis,label\none,two,no\n")
        assert list(TableFile(path, ["premise"])) == [("one", "")]
        assert list(TableFile(path, ["premise", "hypothesis", "label"])) == [("one\ttwo", "no")]

    def test_lines_without_anything_are_no_rows(self, tmp_path):
        path = tmp_path / "table.csv"
        path.write_text("\n\nen,es\n\none,uno\n,\n\n")
        assert list(TableFile(path, ("en", "es"))) == [("one", "uno"), ("", "")]

    def test_what_excel_says_of_the_delimiter_is_read(self, tmp_path):
        path = tmp_path / "table.csv"
        for first in ("sep=;", '"sep=;"'):
            path.write_text(f"{first}\nen;es\none,1;uno\n")
            assert list(TableFile(path, ("en", "es"))) == [("one,1", "uno")]

    def test_the_delimiter_is_the_one_that_gives_the_fields(self, tmp_path):
        path = tmp_path / "table.csv"
        path.write_text("text (a, b, c);es\none, two;uno\n")
        assert list(TableFile(path, ("text (a, b, c)", "es"))) == [("one, two", "uno")]

    def test_a_mark_that_is_closed_much_later_is_told(self, tmp_path):
        path = tmp_path / "table.csv"
        path.write_text('en,es\none,uno\n"two,dos\nthree,tres\nfour,cuatro\nfive",cinco\n')
        with pytest.warns(UserWarning, match="table.csv, line 3: a quoted field goes on over further lines"):
            assert len(list(TableFile(path, ("en", "es")))) == 2

    def test_texts_of_several_lines_are_no_reason_to_warn(self, tmp_path):
        path = tmp_path / "table.csv"
        path.write_text('en,es\n"one, 1\ntwo\nthree, 3",uno\n"one, 1\ntwo",dos\n')
        assert len(list(TableFile(path, ("en", "es")))) == 2  # warnings are errors

    def test_documents_are_fields_too(self, tmp_path):
        path = tmp_path / "table.csv"
        path.write_text("en,es\n" + "x" * 200_000 + ",uno\n")
        [(source, _)] = TableFile(path, ("en", "es"))
        assert len(source) == 200_000

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("source,es\none,uno\n", "table.csv has no 'en'. Its fields are: 'source', 'es'. Name them: fields="),
            ("", "table.csv is empty"),
            ("\n \n", "table.csv is empty"),
            ("<?xml version='1.0'?><tmx>,x\n", "begins as a TMX, which is recognized in a file only"),
            ("x" * 5000 + ",b\n", r"Its fields are: 'x{60}\.\.\.', 'b'"),
            ('en\tes\n"a"b\tc\n', r"line 2: '\\t' expected after"),
            ("en,es\n", "table.csv has no rows below its header"),
            ("en,en,es\none,two,uno\n", "table.csv has several columns 'en', and nothing says which one to read"),
            ("en,es\none,uno\none, two,uno\n", r"line 3: 3 fields where the header names 2 \(en, es\)"),
            (
                'en,es\none,uno\n"two,dos\nthree,tres\n',
                "line 3: unexpected end of data. Is a quotation mark not closed",
            ),
            ('en,es\n"one" or,uno\n', "line 2: ',' expected after '\"'. Is a quotation mark"),
        ],
    )
    def test_what_cannot_be_read_is_told(self, tmp_path, text, message):
        path = tmp_path / "table.csv"
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            list(TableFile(path, ("en", "es")))

    def test_a_line_that_is_not_text_is_told_by_its_number(self, tmp_path):
        (tmp_path / "table.csv").write_bytes(b"en,es\none,uno\na\xf1o,two\n")
        with pytest.raises(ValueError, match="table.csv, line 3: byte 0xf1 at position 2 is not UTF-8"):
            list(TableFile(tmp_path / "table.csv", ("en", "es")))


class TestJsonLines:
    @pytest.mark.parametrize(
        ("line", "fields", "pair"),
        [
            ({"source": "one", "target": "uno"}, ("source", "target"), ("one", "uno")),
            ({"translation": {"en": "a\n\tb ", "es": "c"}}, ("translation.en", "translation.es"), ("a b", "c")),
            ({"a.b": "dotted", "a": {"b": "inner"}}, ("a.b", "a"), None),
            ({"text": "one", "label": 7}, ("text", "label"), ("one", "7")),
            ({"text": "one", "label": 1.50}, ("text", "label"), ("one", "1.5")),
            ({"text": "one", "label": True}, ("text", "label"), ("one", "true")),
            ({"text": "one", "label": None}, ("text", "label"), ("one", "")),
            ({"text": "\ud83d\ude00 é"}, ("text",), ("\U0001f600 é", "")),
        ],
    )
    def test_fields_are_read(self, tmp_path, line, fields, pair):
        path = tmp_path / "pairs.jsonl"
        path.write_text(f"\n{json.dumps(line)}\n\n")
        if pair is None:
            with pytest.raises(ValueError, match="line 2: 'a' is an object, and no text. Name a field in it"):
                list(JsonLinesFile(path, fields))
        else:
            assert list(JsonLinesFile(path, fields)) == [pair]

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("{", "pairs.jsonl, line 2: no JSON"),
            ("[1]", "line 2: a list. Each line must be a JSON object"),
            ('"one"', "line 2: a text or a number. Each line must be a JSON object"),
            ("1", "line 2: a text or a number"),
            ("null", "line 2: null. Each line"),
            ("[", "no JSON .* A list of objects becomes such lines by: jq -c"),
            ("[1]", "line 2: a list. .* A list of objects becomes such lines by: jq -c"),
            ('{"source": NaN, "target": "uno"}', "line 2: no JSON .NaN is no number of JSON"),
            ('{"source": "a\\ud800", "target": "uno"}', "line 2: in 'source', character 2 is half of a surrogate"),
            ('{"source": "a", "target": "\\u0000"}', "line 2: in 'target', character 1 is a NUL"),
            ('{"source": "one"}', "If only this line lacks it, correct or remove the line"),
            ("[" * 100_000, "line 2: no JSON"),
            ('{"source": "one"}', "line 2 has no 'target'. Its fields are: 'source'"),
            ('{"source": ["one"], "target": "uno"}', "line 2: 'source' is a list"),
            ('{"sources": "one", "target": "uno"}', "Did you mean 'sources'"),
        ],
    )
    def test_what_cannot_be_read_is_told_by_its_line(self, tmp_path, line, message):
        path = tmp_path / "pairs.jsonl"
        path.write_text(f'{{"source": "one", "target": "uno"}}\n{line}\n')
        with pytest.raises(ValueError, match=message):
            list(JsonLinesFile(path))

    def test_numbers_are_as_they_are_written(self, tmp_path):
        path = tmp_path / "pairs.jsonl"
        path.write_text('{"source": 1.50, "target": ' + "9" * 5000 + "}\n")
        assert list(JsonLinesFile(path)) == [("1.50", "9" * 5000)]

    def test_a_first_line_without_the_keys_is_not_told_to_be_removed(self, tmp_path):
        path = tmp_path / "pairs.jsonl"
        path.write_text('{"en": "one", "es": "uno"}\n')
        with pytest.raises(ValueError, match=r"line 1 has no 'source'.* --fields en,es on the command line.$"):
            list(JsonLinesFile(path))

    def test_a_blank_file_is_told(self, tmp_path):
        (tmp_path / "pairs.jsonl").write_text("\n \n")
        with pytest.raises(ValueError, match="is empty, or all its lines are blank"):
            list(JsonLinesFile(tmp_path / "pairs.jsonl"))


ARROW = pa.table(
    {
        "translation": [{"en": "one", "es": "uno"}, {"en": "two\n2", "es": None}, {"en": "three", "es": "tres"}],
        "label": pa.array(["x", "y", "x"]).dictionary_encode(),
        "large": pa.array(["a", "b", None], pa.large_string()),
        "number": pa.array([1, 2, 3]),
        "vector": [[1.0], [2.0], [3.0]],
    }
)


def write_parquet(path):
    pq.write_table(ARROW, path, row_group_size=2)


def write_file(path):
    with pa.ipc.new_file(path, ARROW.schema) as writer:
        writer.write_table(ARROW, max_chunksize=2)


def write_stream(path):
    with pa.ipc.new_stream(path, ARROW.schema) as writer:
        writer.write_table(ARROW, max_chunksize=2)


@pytest.mark.parametrize("write", [write_parquet, write_file, write_stream])
class TestColumnar:
    @pytest.mark.parametrize(
        ("fields", "pairs"),
        [
            (("translation.en", "translation.es"), [("one", "uno"), ("two 2", ""), ("three", "tres")]),
            (("large", "label"), [("a", "x"), ("b", "y"), ("", "x")]),
            (("label", "number"), [("x", "1"), ("y", "2"), ("x", "3")]),
        ],
    )
    def test_columns_of_texts_are_read(self, tmp_path, write, fields, pairs):
        write(tmp_path / "pairs.arrow")
        assert list(ColumnarFile(tmp_path / "pairs.arrow", fields)) == pairs

    def test_columns_without_texts_and_unknown_ones_are_told(self, tmp_path, write):
        write(tmp_path / "pairs.arrow")
        with pytest.raises(ValueError, match=r"'vector' holds list<.*>, and no texts"):
            list(ColumnarFile(tmp_path / "pairs.arrow", ("vector", "label")))
        with pytest.raises(
            ValueError, match="has no 'en'. Its fields are: 'translation.en', 'translation.es', 'label'"
        ):
            list(ColumnarFile(tmp_path / "pairs.arrow", ("en", "label")))

    def test_damage_is_told(self, tmp_path, write):
        path = tmp_path / "pairs.arrow"
        write(path)
        content = path.read_bytes()
        for damaged in (content[: len(content) // 2], content[:9], content[:4] + b"\xff" * (len(content) - 4)):
            path.write_bytes(damaged)
            with pytest.raises(ValueError, match=f"{re.escape(str(path))} (is damaged|has no rows)"):
                list(ColumnarFile(path, ("large", "label")))


def test_pyarrow_is_asked_for_by_the_name_of_its_extra(tmp_path, monkeypatch):
    write_parquet(tmp_path / "pairs.parquet")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'kformer\[arrow\]'"):
        list(ColumnarFile(tmp_path / "pairs.parquet"))


@pytest.mark.parametrize("source", [TableFile, JsonLinesFile, ColumnarFile])
@pytest.mark.parametrize("fields", ["en,es", (), ("a", "b", "c", "d"), ("en", "en"), ("en", "")])
def test_fields_are_one_to_three_different_names(source, fields):
    with pytest.raises(ValueError, match="fields must be the names of the source and of the target"):
        source("file", fields)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("table.csv", b"source,target\none,uno\n"),
        ("table.CSV", b"source;target\none;uno\n"),
        ("pairs.jsonl", b'{"source": "one", "target": "uno"}\n'),
        ("pairs.ndjson", b'{"source": "one", "target": "uno"}\n'),
    ],
)
def test_the_suffix_says_how_a_file_is_read(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert list(open_pairs(tmp_path / name)) == [("one", "uno")]


@pytest.mark.parametrize("name", ["pairs.tsv", "pairs.txt", "pairs.csv", "pairs", "pairs.gz.data"])
def test_parquet_and_arrow_are_recognized_whatever_they_are_called(tmp_path, name):
    for write in (write_parquet, write_file, write_stream):
        write(tmp_path / name)
        assert next(iter(open_pairs(tmp_path / name, fields=("large", "label")))) == ("a", "x")


@pytest.mark.parametrize("name", ["pairs.tsv", "pairs.txt", "pairs"])
def test_a_file_of_lines_with_fields_is_a_table_with_a_header(tmp_path, name):
    (tmp_path / name).write_text("en\tes\none\tuno\n")
    assert list(open_pairs(tmp_path / name, fields=("es", "en"))) == [("uno", "one")]


def test_a_column_that_is_there_twice_is_not_chosen_silently(tmp_path):
    pq.write_table(pa.table([["one"], ["uno"], ["dos"]], names=["source", "target", "target"]), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"a.parquet has several columns 'target', and nothing says which one to read"):
        list(ColumnarFile(tmp_path / "a.parquet"))


def test_a_parquet_file_that_is_compressed_as_a_whole_is_told(tmp_path):
    pq.write_table(pa.table({"source": ["one"], "target": ["uno"]}), tmp_path / "a.parquet")
    (tmp_path / "a.parquet.gz").write_bytes(gzip.compress((tmp_path / "a.parquet").read_bytes()))
    with pytest.raises(ValueError, match="The whole file is compressed: decompress it first"):
        list(open_pairs(tmp_path / "a.parquet.gz"))


def test_a_parquet_file_that_comes_through_a_pipe_is_refused_at_once(tmp_path):
    pq.write_table(pa.table({"source": ["one"], "target": ["uno"]}), tmp_path / "a.parquet")
    os.mkfifo(tmp_path / "pipe")
    content = (tmp_path / "a.parquet").read_bytes()
    threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(content,), daemon=True).start()
    with pytest.raises(ValueError, match="It is a pipe: write the file to a disk first"):
        list(ColumnarFile(tmp_path / "pipe"))


def test_the_first_line_may_name_a_tab(tmp_path):
    (tmp_path / "a.csv").write_text("sep=\t\nsource\ttarget\none, two\tuno\n")
    assert list(TableFile(tmp_path / "a.csv")) == [("one, two", "uno")]


def test_only_a_tmx_has_inline_tags(tmp_path):
    (tmp_path / "a.csv").write_text("source,target\none,uno\n")
    with pytest.raises(ValueError, match="a.csv is no TMX, so it has no inline tags. Received: inline_tags='keep'"):
        open_pairs(tmp_path / "a.csv", inline_tags="keep")
