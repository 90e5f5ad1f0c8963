"""Answers columns of texts: lists, NumPy arrays, pandas Series, Arrow arrays. The answers come in the same form.

pandas and pyarrow are not imported here: a column of theirs can only come from a program that has imported them.
"""

import abc
import math
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kformer.text.batches import BATCH_SIZE, AnswerBatch, Hypothesis, answer_all

_EXPECTED = (
    "Expected: a list, a one-dimensional NumPy array, a Series of pandas, or an Array or ChunkedArray of pyarrow, with "
    "texts in it."
)


class ScoredColumn(NamedTuple):
    """One answer to each text of a column, and its score.

    Attributes:
        answers: A column of the same form as the texts.
        scores: A column of the same form with float32 numbers, in a list Python's. Where there is no text it has what
            the form has for a missing number: None, NaN or null.

    Examples:
        >>> answers, scores = ScoredColumn(["uno", None], [-0.5, None])
        >>> answers
        ['uno', None]
    """

    answers: Any
    scores: Any


def answer_column(answer: AnswerBatch, texts: Any, *, batch_size: int = BATCH_SIZE, at_once: int | None = None) -> Any:
    """The best answer to each text of a column, as a column of the same form.

    A Series keeps its index and its name. Missing texts (None, NaN, null) stay as they are, and no model sees them. A
    column of any length is answered in batches of texts of similar length.

    Args:
        answer: A `kformer.inference.Model`, or from `kformer.client.batches.answer_batch`.
        texts: A list; a NumPy array of the dtypes str, bytes, object or StringDType; a pandas Series of strings,
            objects or categories; an Arrow Array or ChunkedArray of strings, binary values, or dictionaries of these.
            The texts are `str`, or `bytes` in UTF-8; each answer has the type of its text.
        batch_size, at_once: See `kformer.text.batches.answer_all`.

    Raises:
        ValueError: This is not a column of texts. The message says what came.

    Examples:
        >>> model = Model(kformer.presets.find_preset("cmudict").path)
        >>> answer_column(model, ["h e l l o", None, "w o r l d"])
        ['HH EH L OW', None, 'W ER L D']
        >>> answer_column(model, np.array(["h e l l o"]))
        array(['HH EH L OW'], dtype='<U10')
    """
    (best,) = answer_column_with_scores(answer, texts, batch_size=batch_size, at_once=at_once)
    return best.answers


def answer_column_with_scores(
    answer: AnswerBatch, texts: Any, n_best: int = 1, *, batch_size: int = BATCH_SIZE, at_once: int | None = None
) -> list[ScoredColumn]:
    """Answers to each text of a column with their scores: a pair of columns for the best ones, the second ones, ...

    Args:
        answer, texts, batch_size, at_once: See `answer_column`.
        n_best: How many pairs of columns; a `Model` finds `Model.n_best` answers to each text.

    Raises:
        ValueError: This is not a column of texts, or there are fewer answers to a text than `n_best`.

    Examples:
        >>> model = Model(kformer.presets.find_preset("cmudict").path, n_best=2)
        >>> best, second = answer_column_with_scores(model, ["h e l l o", None], n_best=2)
        >>> best.answers, second.answers
        (['HH EH L OW', None], ['HH EH L AE', None])
        >>> best.scores[0] > second.scores[0], best.scores[1]
        (True, None)
    """
    column = _form_of(texts)
    rows = column.rows()
    missing = [_is_missing(row) for row in rows]
    given = [_utf8(number, row) for number, row in enumerate(rows) if not missing[number]]
    found = iter(answer_all(answer, given, batch_size, at_once=at_once))
    of_rows = [None if none else _checked(next(found), n_best) for none in missing]
    return [_ranked(column, rows, of_rows, rank) for rank in range(n_best)]


def _ranked(
    column: "_Form", rows: Sequence[Any], of_rows: Sequence[list[Hypothesis] | None], rank: int
) -> ScoredColumn:
    """The answers with this rank; 0 is the best one."""
    answers = [
        row if found is None else _in_type_of(row, found[rank].text) for row, found in zip(rows, of_rows, strict=True)
    ]
    scores = [None if found is None else found[rank].score for found in of_rows]
    return ScoredColumn(column.like(answers), column.scores(scores))


def _checked(found: list[Hypothesis], n_best: int) -> list[Hypothesis]:
    if len(found) < n_best:
        raise ValueError(
            f"The model gives {len(found)} answers to a text. Received: n_best={n_best}. Make the model with "
            f"n_best={n_best}."
        )
    return found


def _is_missing(row: Any) -> bool:
    """Whether this is None, NaN or pandas's NA or NaT."""
    pandas = sys.modules.get("pandas")
    if row is None or (pandas is not None and (row is pandas.NA or row is pandas.NaT)):
        return True
    return isinstance(row, float | np.floating) and math.isnan(row)


def _utf8(number: int, row: Any) -> bytes:
    if isinstance(row, str):
        try:
            return row.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(
                f"Row {number} of the column has half of a character, which UTF-8 cannot hold: {row!r}. Read the file "
                "again with its right encoding."
            ) from error
    if not isinstance(row, bytes):
        raise ValueError(
            f"Row {number} of the column is {row!r}, of the type {type(row).__name__}. Expected: a str, bytes in "
            "UTF-8, or None where there is no text."
        )
    try:
        row.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"Row {number} of the column is not UTF-8: {row!r}. Decode the bytes by their encoding, such as "
            'text.decode("latin-1").'
        ) from error
    return row


def _in_type_of(row: str | bytes, answer: str) -> str | bytes:
    return answer.encode("utf-8") if isinstance(row, bytes) else answer


class _Form(abc.ABC):
    """One form of columns: how its rows are read, and how a column of the same form is made."""

    @abc.abstractmethod
    def rows(self) -> Sequence[Any]:
        """A str, bytes or something missing for each row, if this is a column of texts.

        Raises:
            ValueError: It is none.
        """

    @abc.abstractmethod
    def like(self, answers: list[Any]) -> Any:
        """A column with these rows."""

    @abc.abstractmethod
    def scores(self, scores: list[float | None]) -> Any:
        """A column of numbers."""


def _form_of(texts: Any) -> _Form:
    pandas, pyarrow = sys.modules.get("pandas"), sys.modules.get("pyarrow")
    if isinstance(texts, list):
        return _List(texts)
    if isinstance(texts, np.ndarray):
        return _NumPyArray(texts)
    if pandas is not None and isinstance(texts, pandas.Series):
        return _Series(texts)
    if pyarrow is not None and isinstance(texts, pyarrow.Array | pyarrow.ChunkedArray):
        return _ArrowArray(texts)
    if isinstance(texts, str | bytes):
        raise ValueError(f"Received one text, and no column: {texts!r}. Write [text].")
    if hasattr(texts, "columns"):
        raise ValueError(f"Received a whole table of the type {type(texts).__name__}. Give one of its columns.")
    raise ValueError(f"Received a column of the type {type(texts).__name__}. {_EXPECTED}")


class _List(_Form):
    def __init__(self, texts: list[Any]) -> None:
        self._texts = texts

    def rows(self) -> Sequence[Any]:
        return self._texts

    def like(self, answers: list[Any]) -> list[Any]:
        return answers

    def scores(self, scores: list[float | None]) -> list[float | None]:
        return scores


class _NumPyArray(_Form):
    def __init__(self, texts: np.ndarray) -> None:
        self._texts = texts

    def rows(self) -> Sequence[Any]:
        texts = self._texts
        if texts.ndim != 1 or texts.dtype.kind not in "USOT" or isinstance(texts, np.ma.MaskedArray):
            raise ValueError(
                f"Received: a NumPy array of the type {type(texts).__name__}, the dtype {texts.dtype} and the shape "
                f"{texts.shape}. Expected: a plain array of one dimension, with the dtype str, bytes, object or "
                "StringDType."
            )
        return texts.tolist()

    def like(self, answers: list[Any]) -> np.ndarray:
        dtype = self._texts.dtype
        return np.array(answers, dtype.kind if dtype.kind in "US" else dtype)  # as long as the longest answer

    def scores(self, scores: list[float | None]) -> np.ndarray:
        return np.array(scores, np.float32)  # None becomes NaN


class _Series(_Form):
    def __init__(self, texts: Any) -> None:
        self._texts = texts

    def rows(self) -> Sequence[Any]:
        # A column without any text, such as one of a chunk of a file, has the dtype of NaN.
        if self._texts.dtype.kind in "biufcmM" and not self._texts.isna().all():
            raise ValueError(f"Received: a Series of the dtype {self._texts.dtype}. Expected: one of strings.")
        return self._texts.tolist()

    def like(self, answers: list[Any]) -> Any:
        """New texts make new categories."""
        dtype = self._texts.dtype
        return self._series(answers, "category" if dtype == "category" else dtype)

    def scores(self, scores: list[float | None]) -> Any:
        return self._series(np.array(scores, np.float32), "float32")

    def _series(self, values: Any, dtype: Any) -> Any:
        return sys.modules["pandas"].Series(values, index=self._texts.index, name=self._texts.name, dtype=dtype)


class _ArrowArray(_Form):
    def __init__(self, texts: Any) -> None:
        self._texts = texts

    def rows(self) -> Sequence[Any]:
        types = sys.modules["pyarrow"].types
        kind = self._texts.type
        held = kind.value_type if types.is_dictionary(kind) else kind
        tests = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view", "null")
        if not any(getattr(types, f"is_{test}")(held) for test in tests):
            raise ValueError(f"Received: an Arrow column of the type {kind}. Expected: one of strings.")
        return self._texts.to_pylist()

    def like(self, answers: list[Any]) -> Any:
        """New texts make a new dictionary for each chunk, with wider numbers if there are more of them."""
        pyarrow, kind = sys.modules["pyarrow"], self._texts.type
        if not pyarrow.types.is_dictionary(kind):
            return self._chunked(answers, kind)
        plain = self._chunked(answers, kind.value_type)
        chunks = [chunk.dictionary_encode() for chunk in (plain.chunks if self._is_chunked else [plain])]
        try:
            indices = [chunk.indices.cast(kind.index_type) for chunk in chunks]
        except pyarrow.ArrowInvalid:  # numbers of 8 bits, which the given texts needed, are too few for the answers
            indices = [chunk.indices for chunk in chunks]
        dictionaries = [
            pyarrow.DictionaryArray.from_arrays(numbers, chunk.dictionary, ordered=kind.ordered)
            for numbers, chunk in zip(indices, chunks, strict=True)
        ]
        if not self._is_chunked:
            return dictionaries[0]
        return pyarrow.chunked_array(dictionaries, dictionaries[0].type if dictionaries else kind)

    def scores(self, scores: list[float | None]) -> Any:
        return self._chunked(scores, sys.modules["pyarrow"].float32())

    @property
    def _is_chunked(self) -> bool:
        return isinstance(self._texts, sys.modules["pyarrow"].ChunkedArray)

    def _chunked(self, values: list[Any], kind: Any) -> Any:
        """In chunks of the same lengths: more than 2 GB of texts do not fit in one."""
        pyarrow = sys.modules["pyarrow"]
        if not self._is_chunked:
            return pyarrow.array(values, kind)
        chunks, start = [], 0
        for chunk in self._texts.chunks:
            chunks.append(pyarrow.array(values[start : start + len(chunk)], kind))
            start += len(chunk)
        return pyarrow.chunked_array(chunks, kind)
