"""How sure a difference between translators is, and where it shows."""

import random

import numpy as np
import pytest
import sacrebleu

from kformer.evaluation import Comparison, bleu_and_chrf, translation_edit_rate

WORDS = ["ab", "cd", "ef", "gh", "ij", "kl", "mn", "op"]


def with_errors(texts, share, seed):
    """The texts with so many of their words replaced."""
    draw = random.Random(seed)
    return [" ".join(word if draw.random() > share else "xx" for word in text.split()) for text in texts]


DRAW = random.Random(5)
TEXTS = [" ".join(DRAW.choices(WORDS, k=DRAW.randint(3, 20))) for _ in range(211)]
SOURCES = [f"source {text}" for text in TEXTS]
MADE = {"first": with_errors(TEXTS, 0.3, 1), "same": with_errors(TEXTS, 0.3, 2), "better": with_errors(TEXTS, 0.2, 3)}


@pytest.fixture(scope="module")
def comparison():
    return Comparison(SOURCES, [[text] for text in TEXTS], MADE, samples=300)


def test_values_are_those_of_the_metrics(comparison):
    for name, made in MADE.items():
        expected = bleu_and_chrf(made, [[text] for text in TEXTS])
        assert comparison.scores["BLEU"][name].value == pytest.approx(expected["bleu"])
        assert comparison.scores["chrF"][name].value == pytest.approx(expected["chrf"])
        assert comparison.scores["TER"][name].value == pytest.approx(sacrebleu.TER().corpus_score(made, [TEXTS]).score)


def test_a_real_difference_is_told_from_chance(comparison):
    for scores in comparison.scores.values():
        assert scores["first"].p_value is None
        assert scores["better"].p_value < 0.02
        assert scores["same"].p_value > 0.1


def test_an_interval_holds_the_scores_of_other_test_sets():
    """Of 40 test sets of the same kind, about 38 lie within the interval of one."""
    draw = np.random.default_rng(1)
    wrong = draw.random((41, 500)) < 0.3
    made = ["x" if each else "y" for each in wrong[0]]
    score = Comparison(["s"] * 500, [["y"]] * 500, {"a": made}, symbols=True).scores["WER"]["a"]
    assert score.value == pytest.approx(wrong[0].mean())
    assert score.interval == pytest.approx(1.96 * np.sqrt(0.3 * 0.7 / 500), rel=0.15)
    assert np.sum(np.abs(wrong[1:].mean(axis=1) - 0.3) <= score.interval) >= 34


def test_one_translator_has_intervals_alone():
    found = Comparison(SOURCES, [[text] for text in TEXTS], {"first": MADE["first"]}, samples=200).scores
    assert list(found) == ["BLEU", "chrF", "TER"]
    for scores in found.values():
        assert 0 < scores["first"].interval < scores["first"].value
        assert scores["first"].p_value is None


@pytest.mark.parametrize("translated", [1, 3, 20])
def test_translators_that_give_hardly_anything_have_intervals(translated):
    made = [f"the dog {number} sees a cat" if number < translated else "" for number in range(20)]
    found = Comparison(["a"] * 20, [["the dog sees a cat"]] * 20, {"weak": made}, samples=100).scores
    assert all(scores["weak"].interval >= 0 for scores in found.values())


def test_blank_references_do_not_count():
    """As in the scores of one translator."""
    made = {"one": ["the dog sees a cat", "the cat sees a bird"], "two": ["the dog sees cats", "a cat"]}
    references = [["the dog sees a cat", " "], ["", "the cat sees the bird"]]
    found = Comparison(["1", "2"], references, made, samples=50).scores["TER"]
    for name, texts in made.items():
        assert found[name].value == pytest.approx(translation_edit_rate(texts, references)["ter"])
    alone = Comparison(["1", "2"], [[" "], references[1]], made, samples=50).scores["TER"]
    assert alone["two"].value == pytest.approx(translation_edit_rate(made["two"][1:], references[1:])["ter"])


def test_symbols_are_right_or_wrong_by_any_reference():
    references = [["K AE T", "C A T"], ["D AO G"], ["P IH G"], ["K AW"]]
    made = {"one": ["C A T", "D AO G", "X", "X"], "two": ["K AE T", "D AO G", "P IH G", "X"]}
    found = Comparison(["c a t", "d o g", "p i g", "c o w"], references, made, symbols=True)
    assert [found.scores["WER"][name].value for name in made] == [0.5, 0.25]
    assert found.lines("two") == [("p i g", "P IH G", "X", "P IH G", 1.0), ("c a t", "K AE T", "C A T", "K AE T", 0.0)]
    assert [name for name in found.scores] == ["WER"]


def test_of_symbols_too_a_real_difference_is_told_from_chance():
    """Of 400 words, about 120 are wrong, as many others, and about 60."""
    draw = np.random.default_rng(4).random((3, 400))
    made = {
        name: ["x" if each < share else "y" for each in row]
        for name, share, row in zip(("first", "same", "better"), (0.3, 0.3, 0.15), draw, strict=True)
    }
    scores = Comparison(["s"] * 400, [["y"]] * 400, made, symbols=True, samples=300).scores["WER"]
    assert scores["first"].p_value is None
    assert scores["same"].p_value > 0.1
    assert scores["better"].p_value < 0.02


def test_any_of_several_references_counts_for_a_line_and_for_some_of_the_lines():
    made = {"one": ["x y z w", "a"], "two": ["e f g h", "a"]}
    found = Comparison(["1", "2"], [["a b c d", "e f g h"], ["a"]], made, samples=9)
    (line,) = found.lines("two")
    assert (line.reference, line.gain) == ("a b c d", pytest.approx(100))
    assert found.of_lines([0]) == {"one": pytest.approx(0), "two": pytest.approx(100)}


def test_the_tokenizer_of_bleu_that_was_asked_for_holds_for_all_lines_and_for_some():
    found = Comparison(["1"], [["abcde f"]], {"one": ["abcdx f"]}, bleu_tokenizer="char", samples=9)
    expected = bleu_and_chrf(["abcdx f"], [["abcde f"]], "char")["bleu"]
    assert expected > 10
    assert found.scores["BLEU"]["one"].value == pytest.approx(expected)
    assert found.of_lines([0]) == {"one": pytest.approx(expected)}


def test_blanks_around_symbols_do_not_count():
    made = {"one": ["a b", "c"], "two": ["a  b ", "d"]}
    found = Comparison(["x", "y"], [[" a b  "], ["d "]], made, symbols=True)
    assert [found.scores["WER"][name].value for name in made] == [0.5, 0.0]
    assert found.of_lines([0, 1]) == {"one": 0.5, "two": 0.0}
    assert [line.gain for line in found.lines("two")] == [1.0, 0.0]


def test_the_same_symbols_have_no_difference():
    found = Comparison(["a"] * 9, [["b"]] * 9, {"one": ["b"] * 9, "two": ["b"] * 9}, symbols=True)
    assert found.scores["WER"]["two"] == (0.0, 0.0, 1.0)


def test_equal_scores_have_no_difference():
    """A run beside its export, or two models of which each translation is wrong."""
    copies = Comparison(
        SOURCES, [[text] for text in TEXTS], {"run": MADE["first"], "export": [*MADE["first"]]}, samples=99
    )
    assert {scores["export"].p_value for scores in copies.scores.values()} == {1.0}
    assert {scores["run"].p_value for scores in copies.scores.values()} == {None}
    wrong = Comparison(["a"] * 9, [["b c d e"]] * 9, {"one": ["x"] * 9, "two": ["y y"] * 9}, samples=99)
    assert wrong.scores["BLEU"]["two"].p_value == 1.0


def test_lengths_divide_the_sources_evenly(comparison):
    found = comparison.by_length(4)
    names = list(found)
    assert len(names) == 4
    assert comparison.by_length() == found
    assert names[0].startswith("4 to ")  # "source" and three words
    assert names[-1].endswith(" to 21 words")
    numbers = [name.split() for name in found]
    assert [int(low) for low, *_ in numbers[1:]] == [int(name[2]) + 1 for name in numbers[:-1]]
    for name, (low, _, high, _) in zip(names, numbers, strict=True):
        chosen = [line for line, source in enumerate(SOURCES) if int(low) <= len(source.split()) <= int(high)]
        assert len(chosen) == pytest.approx(211 / 4, abs=14)
        first = bleu_and_chrf([MADE["first"][line] for line in chosen], [[TEXTS[line]] for line in chosen])
        assert found[name]["first"] == pytest.approx(first["bleu"])


def test_sources_of_one_length_are_one_group():
    found = Comparison(["a b"] * 3, [["c d e f"]] * 3, {"one": ["c d e f"] * 3})
    assert found.by_length() == {"2 words": {"one": pytest.approx(100)}}


def test_lines_are_sorted_by_what_is_gained(comparison):
    found = comparison.lines("better")
    gains = [line.gain for line in found]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > 0 > gains[-1]
    assert len(found) == sum(a != b for a, b in zip(MADE["first"], MADE["better"], strict=True))
    chrf = sacrebleu.CHRF()
    of_other, of_first = (
        chrf.sentence_score(text, [found[0].reference]).score for text in (found[0].other, found[0].first)
    )
    assert gains[0] == pytest.approx(of_other - of_first)


@pytest.mark.parametrize(
    "given", [([], [], {}), (["a"], [["b"]], {}), (["a"], [["b"]], {"x": []}), (["a", "b"], [["b"]], {"x": ["b", "b"]})]
)
def test_numbers_that_differ_are_refused(given):
    with pytest.raises(ValueError, match="There must be a reference and a translation for each source"):
        Comparison(*given)
