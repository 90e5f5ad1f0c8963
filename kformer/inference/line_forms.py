"""What is written for a line and its answers: columns of text, lists of the n best, objects of JSON."""

import dataclasses
import json
import math
from typing import Any, NamedTuple, Protocol

from kformer.config import answer_outputs
from kformer.text.batches import Hypothesis

_BLANKS = str.maketrans("\t\0", "  ")


class AnsweredLine(NamedTuple):
    """A line and its answers.

    Attributes:
        number: Counted from 0 in its file.
        line: UTF-8.
        found: The answers, best first; at least one. The score of what stands for a missing answer is not a number.
        kept: The other field of a table, which is written beside the answer.
        fault: Why the line has no answer of its own, or only that of its beginning; "" if it has one.
    """

    number: int
    line: bytes
    found: list[Hypothesis]
    kept: str = ""
    fault: str = ""


class LineForm(Protocol):
    """How answers are written. A form is compared by its fields: see `kformer.jobs`.

    Attributes:
        suffix: Of files in this form.
    """

    @property
    def suffix(self) -> str: ...

    def __call__(self, answered: AnsweredLine) -> str:
        """What is written, with the line feed at its end."""
        ...


@dataclasses.dataclass(frozen=True)
class TextColumns:
    r"""A line of text for each line: the answer, and what is asked for behind it, with tabs between.

    With further columns, a tab or a NUL within a column becomes a blank: otherwise nobody could read the columns.

    Args:
        score: Write the score of the answer; nothing where the line has no answer of its own.
        alignment: Write which word of the line belongs to which word of the answer, as pairs such as `0-0 1-2`.
        line: Write the line. The columns are then a pair to train the other direction on.
        kept: Write the field that is kept.

    Examples:
        >>> answered = AnsweredLine(0, b"one\ttwo", [Hypothesis("uno dos", -1.0)])
        >>> TextColumns()(answered), TextColumns(score=True)(answered), TextColumns(line=True)(answered)
        ('uno dos\n', 'uno dos\t-1.0000\n', 'uno dos\tone two\n')
    """

    score: bool = False
    alignment: bool = False
    line: bool = False
    kept: bool = False

    @property
    def suffix(self) -> str:
        return ".tsv" if self.score or self.alignment or self.line or self.kept else ".txt"

    def __call__(self, answered: AnsweredLine) -> str:
        best = answered.found[0]
        columns = [best.text]
        if self.score:
            columns.append("" if math.isnan(best.score) else f"{best.score:.4f}")
        if self.alignment:
            columns.append(best.alignment)
        if self.line:
            columns.append(answered.line.decode("utf-8", "replace"))
        if self.kept:
            columns.append(answered.kept)
        if len(columns) > 1:
            columns = [column.translate(_BLANKS) for column in columns]
        return "\t".join(map(_one_line, columns)) + "\n"


@dataclasses.dataclass(frozen=True)
class NBest:
    """Lines of the form `number ||| answer ||| score`, as Moses and Marian write them.

    An answer may hold ` ||| ` itself: the number ends at the first one, and the score begins after the last one.

    Args:
        most: Answers per line.

    Examples:
        >>> found = [Hypothesis("uno", -0.5), Hypothesis("un", -1.0), Hypothesis("una", -2.0)]
        >>> NBest(2)(AnsweredLine(0, b"one", found))
        '0 ||| uno ||| -0.500000\\n0 ||| un ||| -1.000000\\n'
    """

    most: int
    suffix: str = dataclasses.field(default=".txt", init=False)

    def __call__(self, answered: AnsweredLine) -> str:
        best = answered.found[: self.most]
        return "".join(f"{answered.number} ||| {_one_line(one.text)} ||| {one.score:.6f}\n" for one in best)


@dataclasses.dataclass(frozen=True)
class JsonLines:
    """An object of JSON for each line.

    Its keys are `line` (the number, from 0), `text`, and the outputs of the task, such as `translation` and `score`.
    Only where there is something to say, it has `alignment`, `n_best` (all answers), `kept`, and `fault` (why there is
    no answer of its own; then the score is null).

    Args:
        task: What the model has learned, which names the outputs.
        most: Answers per line.

    Examples:
        >>> JsonLines("translate")(AnsweredLine(0, b"one", [Hypothesis("uno", -0.5)]))
        '{"line": 0, "text": "one", "translation": "uno", "score": -0.5}\\n'
    """

    task: str
    most: int = 1
    suffix: str = dataclasses.field(default=".jsonl", init=False)

    def __call__(self, answered: AnsweredLine) -> str:
        best = [self._object(one) for one in answered.found[: self.most]]
        values = {"text": answered.line.decode("utf-8", "replace"), **best[0]}
        if self.most > 1:
            values["n_best"] = best
        return _object_line(answered, values)

    def _object(self, one: Hypothesis) -> dict[str, Any]:
        answer, score = answer_outputs(self.task)
        found = {answer: one.text, score: _json_number(one.score)}
        return found | {"alignment": one.alignment} if one.alignment else found


@dataclasses.dataclass(frozen=True)
class Scores:
    r"""The log probability of a given answer, and what is asked for behind it, with tabs between.

    Where there is none, the columns are empty.

    Args:
        tokens: Write the number of tokens: the log probability divided by it compares texts of different lengths.
        kept: Write the field that is kept.

    Examples:
        >>> answered = AnsweredLine(0, b"one\tuno", [Hypothesis("uno", -0.5, tokens=2)])
        >>> Scores()(answered), Scores(tokens=True)(answered)
        ('-0.5000\n', '-0.5000\t2\n')
    """

    tokens: bool = False
    kept: bool = False

    @property
    def suffix(self) -> str:
        return ".tsv" if self.tokens or self.kept else ".txt"

    def __call__(self, answered: AnsweredLine) -> str:
        best = answered.found[0]
        has_none = math.isnan(best.score)
        columns = ["" if has_none else f"{best.score:.4f}"]
        if self.tokens:
            columns.append("" if has_none else str(best.tokens))
        if self.kept:
            columns.append(_one_line(answered.kept.translate(_BLANKS)))
        return "\t".join(columns) + "\n"


@dataclasses.dataclass(frozen=True)
class JsonScores:
    r"""An object of JSON for each line with a given answer.

    Its keys are `line` (the number, from 0), `text`, `translation` if lines are pairs, `log_probability`, `tokens`, and
    where there is something to say `kept` and `fault`, see `JsonLines`.

    Args:
        has_sources: Whether lines are pairs of a source and its translation.

    Examples:
        >>> JsonScores(has_sources=True)(AnsweredLine(0, b"one\tuno", [Hypothesis("uno", -0.5, tokens=2)]))
        '{"line": 0, "text": "one", "translation": "uno", "log_probability": -0.5, "tokens": 2}\n'
    """

    has_sources: bool
    suffix: str = dataclasses.field(default=".jsonl", init=False)

    def __call__(self, answered: AnsweredLine) -> str:
        best, text = answered.found[0], answered.line.decode("utf-8", "replace")
        if self.has_sources and not answered.fault:
            source, _, translation = text.partition("\t")
            texts = {"text": source, "translation": translation}
        else:
            texts = {"text": text}
        return _object_line(answered, {**texts, "log_probability": _json_number(best.score), "tokens": best.tokens})


def _json_number(score: float) -> float | None:
    """A score for JSON, which has no infinity and no NaN: a search that finds nothing gives the score -infinity."""
    return round(score, 6) if math.isfinite(score) else None


def _object_line(answered: AnsweredLine, values: dict[str, Any]) -> str:
    """The line with these values, its number, and what there is to say."""
    further = {"kept": answered.kept, "fault": answered.fault}
    found = {"line": answered.number, **values, **{name: value for name, value in further.items() if value}}
    return json.dumps(found, ensure_ascii=False) + "\n"


def _one_line(text: str) -> str:
    """A model with byte pieces can produce a line feed; a line must stay one line."""
    return text.replace("\n", " ").replace("\r", " ")
