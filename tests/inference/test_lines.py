"""What is told of the lines of a file after they were translated."""

import io
import json
import math

import pytest

from kformer.inference.line_counts import Faults, LinesWithoutAnswer, ShortTranslations
from kformer.inference.line_forms import AnsweredLine, JsonLines, JsonScores, NBest, Scores, TextColumns
from kformer.inference.line_limits import LineLimits
from kformer.inference.lines import answer_lines, input_lines
from kformer.text.batches import Hypothesis, RefusedTextError


@pytest.mark.parametrize("line", ["one two three", "раз два три", "一二三四五六七八"])
def test_lengths_are_counted_in_characters_in_every_script(line):
    """In UTF-8, a Cyrillic letter has two bytes and a Chinese one three."""
    short = ShortTranslations(0.5)
    half = -(-len(line) // 2)
    short(f"  {line}\t".encode(), [Hypothesis("x" * half, -1.0)])
    assert short.count == 0
    short(line.encode(), [Hypothesis("x" * (half - 1), -1.0)])
    assert (short.count, short.first) == (1, 2)


@pytest.mark.parametrize("form", [TextColumns(kept=True), Scores(kept=True)])
def test_a_kept_field_stays_on_its_line_and_in_its_column(form):
    answered = AnsweredLine(0, b"one", [Hypothesis("uno", -1.0, tokens=2)], kept="a\nb\tc\r\nd")
    assert form(answered).endswith("\ta b c  d\n")
    assert form(answered).count("\n") == form(answered).count("\t") == 1


def test_the_model_is_asked_for_empty_lines_but_not_for_what_stands_for_a_line_beyond_the_limits():
    """A language model begins a text of its own where nothing is given."""
    asked, target = [], io.BytesIO()

    def answer(texts):
        asked.extend(texts)
        return [[Hypothesis(text.decode().upper() or "A TEXT", 0.0)] for text in texts]

    answer_lines(answer, input_lines([b"one", b"", b"too long a line"]), target, limits=LineLimits(line=9))
    assert sorted(asked) == [b"", b"one"]
    assert target.getvalue() == b"ONE\nA TEXT\n\n"


@pytest.mark.parametrize("on_fault", [None, "empty", "source", "keep"])
def test_the_progress_counts_each_line_once(on_fault):
    """The model is asked for the beginning of a line beyond the limits, or not at all."""

    def answer(texts):
        return [[Hypothesis(text.decode(), 0.0)] for text in texts]

    done, lines = [], [b"too long a line", b"one", b"also too long", b"two"]
    target, limits = io.BytesIO(), LineLimits(line=9)
    answer_lines(answer, input_lines(lines), target, limits=limits, on_batch=done.append, on_fault=on_fault)
    assert sum(done) == 4


def test_the_answers_before_a_refused_line_are_written_also_behind_lines_beyond_the_limits():
    """Of five lines, the model is asked for three."""

    def answer(texts):
        if b"bad" in texts:
            raise RefusedTextError("It is refused.", b"bad")
        return [[Hypothesis(text.decode().upper(), 0.0)] for text in texts]

    target, lines = io.BytesIO(), [b"too long a line", b"one", b"also too long", b"two", b"bad"]
    with pytest.raises(RefusedTextError, match="^Line 5: It is refused"):
        answer_lines(answer, input_lines(lines), target, limits=LineLimits(line=9))
    assert target.getvalue() == b"\nONE\n\nTWO\n"


@pytest.mark.parametrize("score", [-math.inf, math.inf, math.nan])
def test_a_score_that_is_no_number_is_null_in_json(score):
    """A search that finds fewer translations than are asked for gives the others the score -infinity."""
    answered = AnsweredLine(0, b"one", [Hypothesis("uno", -0.5), Hypothesis("", score)])

    def no_number(name):
        raise AssertionError(f"{name} is no JSON")

    found = json.loads(JsonLines("translate", 2)(answered), parse_constant=no_number)
    assert [one["score"] for one in found["n_best"]] == [-0.5, None]
    alone = AnsweredLine(0, b"one", [Hypothesis("", score)])
    assert json.loads(JsonScores(has_sources=False)(alone), parse_constant=no_number)["log_probability"] is None


@pytest.mark.parametrize(
    ("on_fault", "stands"),
    [("empty", "an empty one"), ("source", "the line itself"), ("keep", "the answer to its beginning")],
)
def test_lines_without_an_answer_are_counted_and_the_first_is_named(on_fault, stands):
    without = LinesWithoutAnswer(on_fault)
    without(b"one", [Hypothesis("uno", -1.0)])
    assert without.message() is None
    for reason in ("too long", "no pair"):
        without(b"x", [Hypothesis("", math.nan)], reason)
    assert without.message() == (
        f"2 lines have no answer: {stands} stands in their place. The first is line 2: too long. --on-error says what "
        "stands there."
    )


def test_a_line_without_an_answer_and_a_given_translation_are_not_too_short():
    short = ShortTranslations(1.0)
    short(b"one two", [Hypothesis("", math.nan)], "too long")
    short(b"one two", [Hypothesis("uno", -1.0, tokens=2)])
    assert short.message() is None
    short(b"one two", [Hypothesis("uno", -1.0)])
    assert short.message() == (
        "1 translation is much too short for the line, so that something may be missing. The first is that of line 3. "
        "Shorter lines help, or a smaller --max-source-length."
    )


@pytest.mark.parametrize(
    ("forms", "suffix"),
    [
        ([TextColumns(), NBest(2), Scores()], ".txt"),
        ([TextColumns(**{column: True}) for column in ("score", "alignment", "line", "kept")], ".tsv"),
        ([Scores(tokens=True), Scores(kept=True)], ".tsv"),
        ([JsonLines("translate"), JsonScores(has_sources=True)], ".jsonl"),
    ],
)
def test_a_file_of_several_columns_is_a_table_by_its_name(forms, suffix):
    assert [form.suffix for form in forms] == [suffix] * len(forms)


def test_a_line_that_is_no_pair_is_written_whole_with_its_fault():
    answered = AnsweredLine(3, b"one\ttwo\tthree", [Hypothesis("", math.nan)], fault="3 columns")
    assert json.loads(JsonScores(has_sources=True)(answered)) == {
        **{"line": 3, "text": "one\ttwo\tthree", "log_probability": None, "tokens": 0, "fault": "3 columns"}
    }
    assert TextColumns(score=True, line=True)(answered) == "\t\tone two three\n"


def test_a_pause_is_not_counted_as_a_line():
    faults = Faults("standard input")
    list(faults.counted(iter([b"one", None, b"\xff", None])))
    assert "1 line with bytes that are not text" in faults.message()
    assert "The first is line 2: byte 0xff" in faults.message()
