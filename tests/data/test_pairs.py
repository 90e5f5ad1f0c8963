"""A part of a corpus that holds no texts, and is read again and again, does what a list does."""

import pathlib

import numpy as np
import pytest
import toy

from kformer.config import TASKS, TrainingConfig
from kformer.data import Corpus, corpus_from_pairs, encode_pairs, hold_out, train_tokenizers
from kformer.data.label_checks import check_corpus, unknown_labels
from kformer.runs.folder import RunFolder
from kformer.tasks import task_of
from kformer.tokenizers import SymbolTokenizer
from kformer.training.new_run import start_run
from kformer.training.resumed_run import resume_run

pytestmark = pytest.mark.tensorflow_only


class Streamed:
    """Gives the pairs anew at each iteration, and counts the iterations."""

    def __init__(self, pairs):
        self.pairs = pairs
        self.readings = 0

    def __iter__(self):
        self.readings += 1
        return ((source, target) for source, target in self.pairs)

    def __len__(self):
        return len(self.pairs)


class Text(str):
    """A text that is counted as long as somebody holds it."""

    held = most = 0

    def __new__(cls, text):
        Text.held += 1
        Text.most = max(Text.most, Text.held)
        return super().__new__(cls, text)

    def __del__(self):
        Text.held -= 1


class Numbers:
    """Pairs of counted texts: numbers in words, each with an answer."""

    def __init__(self, number, answer):
        self.number = number
        self.answer = answer

    def __iter__(self):
        words = list(toy.WORDS)
        for number in range(self.number):
            source = " ".join(words[number // 6**place % 6] for place in range(5))
            yield Text(source), Text(self.answer(source))

    def __len__(self):
        return self.number


def arrays(encoded):
    return [
        encoded.source_ids.tolist(),
        encoded.source_offsets.tolist(),
        encoded.target_ids.tolist(),
        encoded.target_offsets.tolist(),
        (encoded.skipped_blank, encoded.skipped_long),
    ]


TEXTS = [
    *toy.corpus().train[:300],
    *(("", ""), ("one", " "), ("\t", "uno"), ("one " * 40, "uno"), ("x" * 40_000, "uno"), ("two one", "uno dos")),
]


@pytest.mark.parametrize("task", TASKS)
def test_every_task_learns_the_same_vocabulary_and_ids(task):
    targets = {
        "label": lambda text: "odd" if len(text.split()) % 2 else "even",
        "tags": lambda text: " ".join("abc"[len(word) % 3] for word in text.split()),
    }.get(TASKS[task].targets)
    pairs = TEXTS if targets is None else [(text, targets(text)) for text, _ in TEXTS if len(text.split()) < 30]
    learner, config = task_of(task), toy.TRAINING.replace(vocab_size=300)
    found = []
    for part in (pairs, Streamed(pairs)):
        used = learner.pairs(part)
        tokenizers = learner.train_tokenizers(used, config)
        sizes = [tokenizer.vocab_size for tokenizer in tokenizers]
        found.append([sizes, *arrays(learner.encode(used, tokenizers, 32))])
    assert found[0] == found[1]


@pytest.mark.parametrize("tokenizer", ["bpe", "symbols"])
@pytest.mark.parametrize(
    ("task", "answer"),
    [("translate", toy.translation), ("classify", lambda text: text.split()[0]), ("language-model", str.upper)],
)
def test_no_step_of_a_new_or_resumed_run_holds_the_texts(task, answer, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    Text.held = Text.most = 0
    corpus = corpus_from_pairs("numbers", Numbers(15_000, answer), [("one two", answer("one two"))] * 9)
    run, training = RunFolder(tmp_path / "run"), toy.TRAINING.replace(tokenizer=tokenizer)
    setup = start_run(run, corpus, toy.TRANSFORMER.replace(task=task), training)
    resume_run(run, corpus)
    assert setup.train.kept == 15_000
    assert Text.most < 18_000  # of 30,000: four times 2,000 pairs are encoded or wait for it


@pytest.mark.parametrize("tokenizer", ["bpe", "symbols", "words"])
@pytest.mark.parametrize("shared", [True, False])
def test_a_vocabulary_is_learned_from_texts_that_are_not_held(tokenizer, shared):
    config = TrainingConfig(tokenizer=tokenizer, vocab_size=9000, shared_vocabulary=shared, max_length=32)
    held, streamed = (train_tokenizers(pairs, config) for pairs in (TEXTS, Streamed(TEXTS)))
    assert [one.spellings() for one in held] == [other.spellings() for other in streamed]
    assert (streamed[0] is streamed[1]) == shared


def test_pairs_held_out_of_a_part_are_those_held_out_of_a_list():
    train, valid = hold_out("mine", TEXTS)
    streamed = corpus_from_pairs("mine", Streamed(TEXTS))
    assert (list(streamed.train), list(streamed.train), list(streamed.valid)) == (train, train, valid)
    assert (len(streamed.train), len(streamed.valid)) == (len(train), len(valid))


@pytest.mark.parametrize("part", ["train", "valid", "test"])
def test_what_can_be_read_only_once_is_no_part(part):
    parts = {"train": [], "valid": [], "test": []} | {part: (pair for pair in TEXTS)}
    with pytest.raises(
        ValueError, match=f"The part {part} of a corpus must have a length, .* Received: a generator. Pass a list, or"
    ):
        Corpus("mine", **parts)


def test_pairs_that_are_encoded_may_be_given_once(letters):
    pairs = [("a b", "c"), ("", "a"), ("d", "e f a")]
    assert arrays(encode_pairs(iter(pairs), letters, letters, 8)) == arrays(encode_pairs(pairs, letters, letters, 8))


def test_the_targets_of_a_corpus_are_looked_through_once():
    good = [("one two", "even"), ("one", "odd")]
    corpus = Corpus("mine", Streamed(good), Streamed([*good, ("two", "Odd")]), [])
    for _ in range(2):
        check_corpus("classify", corpus)
        assert "1 validation label not among the training labels" in unknown_labels("classify", corpus)
    assert (corpus.train.readings, corpus.valid.readings) == (1, 1)


def test_a_new_run_refuses_wrong_targets_before_it_writes_anything(tmp_path):
    corpus = Corpus("numbers", [("one", "odd"), ("two", "not odd")], [("one", "odd")], [])
    with pytest.raises(ValueError, match="A label must be one word without blanks. Received: 'not odd'"):
        start_run(RunFolder(tmp_path / "run"), corpus, toy.TRANSFORMER.replace(task="classify"), toy.TRAINING)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("given", ["pairs.tsv", b"pairs.tsv", pathlib.Path("pairs.tsv")])
def test_a_path_is_not_taken_for_pairs(given):
    tokenizer = SymbolTokenizer(["a"])
    told = "Expected pairs of texts, such as .*Received: .*pairs.tsv.*Read the pairs of a file by"
    for take in (
        lambda: corpus_from_pairs("mine", given),
        lambda: corpus_from_pairs("mine", [("a", "b")] * 9, given),
        lambda: encode_pairs(given, tokenizer, tokenizer, max_length=9),
    ):
        with pytest.raises(ValueError, match=told):
            take()


@pytest.mark.parametrize(
    "pair", [("a", float("nan")), ("a", None), ("a",), ("a", "b", "c"), "ab", {"a": "b", "c": "d"}]
)
def test_what_is_no_pair_of_texts_is_told_with_its_number(pair):
    pairs = [(np.str_("one"), "uno"), ["two", "dos"], pair]
    with pytest.raises(ValueError, match="both of the type str. Received: .*, the pair 2. Leave it out"):
        corpus_from_pairs("numbers", pairs)
    with pytest.raises(ValueError, match="the pair 2"):
        Corpus("numbers", [("one", "uno")], pairs, [])
