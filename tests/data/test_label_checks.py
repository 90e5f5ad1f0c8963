"""Targets that no classifier or tagger can learn are refused before anything is computed."""

import pytest

from kformer.data import Corpus
from kformer.data.label_checks import check_corpus, check_targets, unknown_labels, words_of
from kformer.evaluation.evaluate import score_labels
from kformer.tasks import task_of
from kformer.text.batches import Hypothesis

LONG = [("one two", "even"), ("one", "odd")]


@pytest.mark.parametrize(
    ("task", "text", "target", "message"),
    [
        (
            "classify",
            "one",
            "not even",
            "one word without blanks. Received: 'not even' for the text 'one'. Write 'not_",
        ),
        ("classify", "one", " ", "Received: ' ' for the text 'one'. Add the label, or remove the line."),
        ("tag", "one two", "n3", "Every word needs one tag. Received: 2 words and 1 tag for the text 'one two'."),
        ("tag", "one\u3000two", "a b c", "Received: 2 words and 3 tags"),
        ("tag", "\ufeffone two", "a b c", "Received: 2 words and 3 tags"),
    ],
)
def test_a_wrong_target_is_refused_with_its_text(task, text, target, message):
    with pytest.raises(ValueError, match=message):
        check_targets(task, [("", ""), (text, target)])


@pytest.mark.parametrize("part", ["train", "valid"])
def test_both_parts_are_checked_without_blank_pairs(part):
    wrong = {"train": LONG, "valid": LONG} | {part: [("one", "not even")]}
    with pytest.raises(ValueError, match="Received: 'not even'"):
        check_corpus("classify", Corpus("numbers", wrong["train"], wrong["valid"], []))
    check_corpus("classify", Corpus("numbers", [*LONG, ("one", "")], LONG, []))


def test_a_translator_of_labels_is_refused_with_the_right_task():
    corpus = Corpus("numbers", LONG, LONG, [], task="tag")
    with pytest.raises(ValueError, match="has labels and no translations. Train with --task tag"):
        check_corpus("translate", corpus)
    check_corpus("language-model", corpus)


def test_validation_labels_that_are_no_training_labels_are_refused():
    with pytest.raises(ValueError, match="Received: 'Even' to validate on, and 'even', 'odd' to train on."):
        check_corpus("classify", Corpus("numbers", LONG, [("one two", "Even")], []))


def test_a_validation_label_that_cannot_be_learned_is_noted():
    corpus = Corpus("numbers", LONG, [*LONG, ("one two", "Even")], [])
    note = unknown_labels("classify", corpus)
    assert note == "1 validation label not among the training labels, so that no answer can be right there: 'Even'"
    assert unknown_labels("classify", Corpus("numbers", LONG, LONG, [])) is None
    assert unknown_labels("translate", corpus) is None


def test_a_corpus_that_has_grown_is_looked_through_again():
    train, valid = [*LONG], [*LONG]
    corpus = Corpus("numbers", train, valid, [])
    assert unknown_labels("classify", corpus) is None
    valid.append(("two", "Even"))
    assert unknown_labels("classify", corpus).endswith("'Even'")
    train.append(("two", "Even"))
    assert unknown_labels("classify", corpus) is None
    with pytest.raises(ValueError, match="Every word needs one tag"):
        unknown_labels("tag", corpus)  # what suits a classifier need not suit a tagger


def test_a_validation_part_without_labels_is_no_mistake():
    check_corpus("classify", Corpus("numbers", LONG, [("one", " ")], []))


def test_a_target_without_a_text_is_no_label():
    corpus = Corpus("numbers", LONG, [*LONG, (" ", "Even")], [])
    assert unknown_labels("classify", corpus) is None


def test_labels_that_differ_in_their_unicode_form_alone_are_one_label():
    composed, decomposed = [("one", "caf\u00e9"), ("two", "x")], [("one", "cafe\u0301")]
    assert unknown_labels("classify", Corpus("numbers", composed, decomposed, [])) is None
    pairs = task_of("classify").pairs(composed + decomposed)
    assert {target for _, target in pairs} == {"caf\u00e9", "x"}
    assert score_labels(lambda texts: [[Hypothesis("cafe\u0301", 0.0)]], composed[:1])["accuracy"] == 1


def test_words_are_divided_as_the_tokenizers_divide_them():
    tf = pytest.importorskip("tensorflow")
    from kformer.tokenizers.text_ops import collapse_whitespace

    text = "".join(f"{chr(point)}a" for point in range(1, 0x3100))
    theirs = tf.strings.split(collapse_whitespace(tf.constant([text]))).to_list()[0]
    assert words_of(text) == [word.decode() for word in theirs]
