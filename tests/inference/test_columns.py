"""Columns of texts become columns of answers of the same form."""

import subprocess
import sys
import time

import numpy as np
import pytest

from benchmarks.common.pages import program_of
from kformer.inference import answer_column, answer_column_with_scores
from kformer.text.batches import Hypothesis

TEXTS = ["one", "", "three two", "ü"]
ANSWERS = ["ONE", "", "THREE TWO", "Ü"]


def answer(texts):
    """The text in capitals, and backwards; the scores are the number of characters below 0, and that less 0.5."""
    written = [text.decode("utf-8") for text in texts]
    return [[Hypothesis(text.upper(), -len(text)), Hypothesis(text[::-1], -len(text) - 0.5)] for text in written]


@pytest.fixture
def asked():
    """A model that remembers each text that it is asked for."""
    texts = []

    def remembering(batch):
        texts.extend(batch)
        return answer(batch)

    remembering.texts = texts
    return remembering


def test_a_list_keeps_its_order_its_types_and_its_gaps(asked):
    column = ["three two", None, b"one", float("nan"), "", "ü".encode()]
    found = answer_column(asked, column)
    assert found[:3] + found[4:] == ["THREE TWO", None, b"ONE", "", "Ü".encode()]
    assert found[3] is column[3]
    assert sorted(asked.texts) == [b"", b"one", b"three two", "ü".encode()]


def test_a_column_without_any_text_is_given_back(asked):
    """As of a chunk of a file, whose column of texts pandas reads as numbers."""
    pandas = pytest.importorskip("pandas")
    found = answer_column(asked, pandas.Series([float("nan")] * 3))
    assert found.isna().tolist() == [True] * 3
    mixed = answer_column(asked, pandas.Series(["one", np.float32("nan"), pandas.NaT, pandas.NA], dtype=object))
    assert mixed.isna().tolist() == [False, True, True, True]
    assert asked.texts == [b"one"]
    with pytest.raises(ValueError, match="Received: a Series of the dtype float64"):
        answer_column(asked, pandas.Series([float("nan"), 1.0]))


def test_a_long_column_is_answered_in_batches():
    sizes = []

    def counting(texts):
        sizes.append(len(texts))
        return answer(texts)

    column = [f"text {number}" for number in range(101)]
    assert answer_column(counting, column, batch_size=10) == [text.upper() for text in column]
    assert sorted(sizes) == [1] + [10] * 10


def test_batches_are_answered_so_many_at_a_time():
    running, most = 0, 0

    def watching(texts):
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.005)
        found = answer(texts)
        running -= 1
        return found

    answer_column(watching, [str(number) for number in range(50)], batch_size=1, at_once=1)
    assert most == 1


@pytest.mark.parametrize("dtype", [object, np.dtypes.StringDType(na_object=None), np.dtypes.StringDType()])
def test_an_array_keeps_its_dtype(dtype):
    found = answer_column(answer, np.array(TEXTS, dtype))
    assert found.dtype == np.dtype(dtype)
    assert found.tolist() == ANSWERS


@pytest.mark.parametrize("dtype", [object, np.dtypes.StringDType(na_object=None)])
def test_an_array_keeps_its_gaps(dtype):
    assert answer_column(answer, np.array(["one", None], dtype)).tolist() == ["ONE", None]


def test_an_array_of_nan_keeps_it():
    found = answer_column(answer, np.array(["one", np.nan], np.dtypes.StringDType(na_object=np.nan)))
    assert found[0] == "ONE"
    assert np.isnan(found[1])


def test_an_array_of_fixed_width_becomes_as_wide_as_the_answers():
    def doubling(texts):
        return [[Hypothesis(text.decode() * 2, 0.0)] for text in texts]

    found = answer_column(doubling, np.array(["ab", "abc"]))
    assert (found.dtype, found.tolist()) == (np.dtype("<U6"), ["abab", "abcabc"])
    found = answer_column(doubling, np.array([b"ab", b"abc"]))
    assert (found.dtype, found.tolist()) == (np.dtype("S6"), [b"abab", b"abcabc"])


@pytest.mark.parametrize("column", [[], np.array([], "U"), np.array([], object)], ids=["list", "str", "object"])
def test_an_empty_column_stays_empty(column):
    found = answer_column(answer, column)
    assert type(found) is type(column)
    assert len(found) == 0


def test_scores_come_in_the_same_form():
    best, second = answer_column_with_scores(answer, ["one", None], n_best=2)
    assert best == (["ONE", None], [-3, None])
    assert second == (["eno", None], [-3.5, None])
    (best,) = answer_column_with_scores(answer, np.array(["one", None], object))
    assert best.scores.dtype == np.float32
    np.testing.assert_array_equal(best.scores, [-3, np.nan])


def test_more_answers_than_there_are_is_an_error():
    with pytest.raises(ValueError, match="gives 2 answers to a text. Received: n_best=3. Make the model with n_best=3"):
        answer_column_with_scores(answer, ["one"], n_best=3)


class TestPandas:
    @pytest.fixture
    def pandas(self):
        return pytest.importorskip("pandas")

    @pytest.mark.parametrize("dtype", ["object", "string", "string[python]", "string[pyarrow]", "str", "category"])
    def test_a_series_keeps_index_name_dtype_and_gaps(self, pandas, dtype, asked):
        gap = None if dtype != "category" else np.nan
        series = pandas.Series(["one", gap, "three two"], index=[7, 5, 7], name="texts", dtype=dtype)
        found = answer_column(asked, series)
        assert sorted(asked.texts) == [b"one", b"three two"]
        assert [*found.index] == [7, 5, 7]
        assert found.name == "texts"
        assert found.isna().tolist() == [False, True, False]
        assert [found.iloc[0], found.iloc[2]] == ["ONE", "THREE TWO"]
        if dtype == "category":
            assert found.dtype.categories.tolist() == ["ONE", "THREE TWO"]
        else:
            assert found.dtype == series.dtype

    def test_a_series_of_arrow_strings(self, pandas):
        pyarrow = pytest.importorskip("pyarrow")
        series = pandas.Series(["one", None], dtype=pandas.ArrowDtype(pyarrow.large_string()))
        found = answer_column(answer, series)
        assert found.dtype == series.dtype
        assert found.tolist()[0] == "ONE"
        assert found.isna().tolist() == [False, True]

    def test_scores_are_a_series(self, pandas):
        series = pandas.Series(["one", None], index=["a", "b"], name="texts", dtype="string")
        (best,) = answer_column_with_scores(answer, series)
        assert (best.scores.dtype, best.scores["a"], best.scores.name) == ("float32", -3, "texts")
        assert best.scores.isna().tolist() == [False, True]

    def test_the_second_answers_are_a_series(self, pandas):
        _, second = answer_column_with_scores(answer, pandas.Series(["one"], index=["a"]), n_best=2)
        assert second.answers["a"] == "eno"

    @pytest.mark.parametrize("values", [[1, 2], [0.5, None], [True]])
    def test_a_series_of_numbers_is_an_error(self, pandas, values):
        with pytest.raises(
            ValueError, match=r"Received: a Series of the dtype (int64|float64|bool). Expected: one of st"
        ):
            answer_column(answer, pandas.Series(values))

    @pytest.mark.slow
    @pytest.mark.tensorflow_only
    def test_the_code_on_the_page_runs(self, pandas, numbers_run, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "exported").mkdir()
        (tmp_path / "exported" / "mine").symlink_to(numbers_run)
        frame = pandas.DataFrame({"text": ["one two", None, "six"]}, index=[5, 4, 3])
        exec(program_of("batch-engines.md", "Columns"), {"frame": frame})
        assert frame["translation"].dropna().to_dict() == {5: "dos uno", 3: "seis"}

    def test_a_frame_is_an_error(self, pandas):
        with pytest.raises(ValueError, match="a whole table of the type DataFrame. Give one of its columns."):
            answer_column(answer, pandas.DataFrame({"text": ["one"]}))


class TestArrow:
    @pytest.fixture
    def pyarrow(self):
        return pytest.importorskip("pyarrow")

    @pytest.mark.parametrize("kind", ["string", "large_string", "string_view", "binary", "large_binary"])
    def test_an_array_keeps_its_type_and_its_gaps(self, pyarrow, kind, asked):
        array = pyarrow.array(["one", None, "ü"], getattr(pyarrow, kind)())
        found = answer_column(asked, array)
        answers = ["ONE", None, "Ü"] if "string" in kind else [b"ONE", None, "Ü".encode()]
        assert (found.type, found.to_pylist()) == (array.type, answers)
        assert sorted(asked.texts) == [b"one", "ü".encode()]

    def test_a_chunked_array_keeps_its_chunks(self, pyarrow):
        column = pyarrow.chunked_array([["one", None], [], ["two"]], pyarrow.string())
        (best,) = answer_column_with_scores(answer, column)
        assert [chunk.to_pylist() for chunk in best.answers.chunks] == [["ONE", None], [], ["TWO"]]
        assert best.scores.type == pyarrow.float32()
        assert [chunk.to_pylist() for chunk in best.scores.chunks] == [[-3, None], [], [-3]]

    @pytest.mark.parametrize("index", ["int8", "int32"])
    def test_a_dictionary_stays_one(self, pyarrow, index):
        kind = pyarrow.dictionary(getattr(pyarrow, index)(), pyarrow.large_string())
        array = pyarrow.array(["one", "two", None, "one"]).cast(kind)
        found = answer_column(answer, array)
        assert (found.type, found.to_pylist()) == (kind, ["ONE", "TWO", None, "ONE"])
        assert found.dictionary.to_pylist() == ["ONE", "TWO"]
        found = answer_column(answer, pyarrow.chunked_array([array, array]))
        assert (found.type, found.to_pylist()) == (kind, ["ONE", "TWO", None, "ONE"] * 2)

    def test_a_dictionary_keeps_its_chunks_and_its_order(self, pyarrow):
        kind = pyarrow.dictionary(pyarrow.int8(), pyarrow.string(), ordered=True)
        column = pyarrow.chunked_array([pyarrow.array(chunk, kind) for chunk in (["one", None], [], ["two"])], kind)
        found = answer_column(answer, column)
        assert found.type == kind
        assert [chunk.to_pylist() for chunk in found.chunks] == [["ONE", None], [], ["TWO"]]

    def test_answers_that_are_too_many_for_the_numbers_of_a_dictionary_widen_them(self, pyarrow):
        kind = pyarrow.dictionary(pyarrow.int8(), pyarrow.string())
        numbers = iter(range(300))

        def drawing(texts):
            return [[Hypothesis(f"{text.decode()} {next(numbers)}", 0.0)] for text in texts]

        found = answer_column(drawing, pyarrow.array(["one"] * 200, kind))
        assert found.type == pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
        assert sorted(int(text.split()[1]) for text in found.to_pylist()) == [*range(200)]

    def test_a_part_of_an_array_is_answered_alone(self, pyarrow):
        assert answer_column(answer, pyarrow.array(["one", "two", "ü"])[1:]).to_pylist() == ["TWO", "Ü"]

    def test_nothing_but_gaps_stays_so(self, pyarrow, asked):
        assert answer_column(asked, pyarrow.array([None, None])).to_pylist() == [None, None]
        assert answer_column(asked, pyarrow.chunked_array([], pyarrow.string())).to_pylist() == []
        assert asked.texts == []

    @pytest.mark.parametrize(
        ("values", "kind"),
        [([1], "int64"), ([["one"]], "list<item: string>"), ([{"a": "b"}], "struct<a: string>")],
    )
    def test_other_types_are_errors(self, pyarrow, values, kind):
        with pytest.raises(
            ValueError, match=f"Received: an Arrow column of the type {kind}. Expected: one of strings."
        ):
            answer_column(answer, pyarrow.array(values))

    def test_a_dictionary_of_numbers_is_an_error(self, pyarrow):
        with pytest.raises(ValueError, match="an Arrow column of the type dictionary<values=int64"):
            answer_column(answer, pyarrow.array([1, 1]).dictionary_encode())

    def test_a_table_is_an_error(self, pyarrow):
        with pytest.raises(ValueError, match="a whole table of the type Table. Give one of its columns."):
            answer_column(answer, pyarrow.table({"text": ["one"]}))


REFUSED = {
    "a number in a list": (["one", 2], "Row 1 of the column is 2, of the type int. Expected: a str, bytes in UTF-8"),
    "a list in a list": ([["one"]], r"Row 0 of the column is \['one'\], of the type list."),
    "a number in an array": (np.array(["one", 2.5], object), "Row 1 of the column is 2.5, of the type float."),
    "bytes of another encoding": (
        ["one", b"\xe9t\xe9"],
        r"Row 1 of the column is not UTF-8: b'\\xe9t\\xe9'. Decode the",
    ),
    "half of a character": (["\ud83d"], "Row 0 of the column has half of a character, which UTF-8 cannot hold"),
    "numbers": (
        np.arange(3),
        r"Received: a NumPy array .* the dtype int64 and the shape \(3,\). Expected: a plain arr",
    ),
    "a matrix": (
        np.array([["one"]]),
        r"the dtype <U3 and the shape \(1, 1\). Expected: a plain array of one dimension",
    ),
    "no dimension": (np.array("one"), r"the dtype <U3 and the shape \(\)."),
    "a mask": (np.ma.masked_array(["one", "two"], [0, 1]), "a NumPy array of the type MaskedArray"),
    "one text": ("one", r"Received one text, and no column: 'one'. Write \[text\]."),
    "a generator": ((text for text in TEXTS), "Received a column of the type generator. Expected: a list, a one-dim"),
    "nothing": (None, "Received a column of the type NoneType. Expected: a list"),
}


@pytest.mark.parametrize(("column", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_column_of_texts_is_told_before_the_model_is_asked(column, message, asked):
    with pytest.raises(ValueError, match=message):
        answer_column(asked, column)
    assert asked.texts == []


LIGHT = """
import sys
from kformer.inference import answer_column
from kformer.text.batches import Hypothesis
print(answer_column(lambda texts: [[Hypothesis("uno", 0.0)] for _ in texts], ["one"]))
print(sorted({"keras", "pandas", "pyarrow", "tensorflow"} & {*sys.modules}))
"""


def test_neither_pandas_nor_pyarrow_is_imported():
    said = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True).stdout
    assert said == "['uno']\n[]\n"
