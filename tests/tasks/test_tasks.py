"""What a task hands on: vocabularies, lengths, arrangements and objectives."""

import numpy as np
import pytest

from kformer.config import TASKS, DecodingConfig, TrainingConfig, TransformerConfig
from kformer.data.arrangements import MaskedTokens
from kformer.data.encoded_ids import MemoryIds
from kformer.tasks import task_of
from kformer.tokenizers import SymbolTokenizer

pytestmark = pytest.mark.tensorflow_only

WORDS = TrainingConfig(tokenizer="words", shared_vocabulary=False)
TARGETS = {"label": "odd", "tags": "x y z", "text": "uno dos tres", "none": ""}


def pairs_of(task):
    """Two different texts of three words."""
    target = TARGETS[TASKS[task].targets]
    return [*task_of(task).pairs([("one two three", target), ("three two one", target)])]


@pytest.mark.parametrize("task", [name for name in TASKS if name != "translate"])
def test_a_text_is_read_with_a_vocabulary_of_texts_and_not_of_targets(task):
    source, target = task_of(task).train_tokenizers(pairs_of(task), WORDS)
    assert {word for spellings in source.spellings() for word in spellings} >= {"one", "two", "three"}
    assert not {"odd", "x", "y", "z"} & {word for spellings in source.spellings() for word in spellings}
    if TASKS[task].has_labels:
        assert set(target.symbols) == set(TARGETS[TASKS[task].targets].split())
    else:
        assert source is target


def test_source_and_target_of_a_translator_have_the_vocabularies_that_were_asked_for():
    task, pairs = task_of("translate"), pairs_of("translate")
    source, target = task.train_tokenizers(pairs, WORDS)
    assert source.vocab_size == target.vocab_size
    assert source is not target
    source, target = task.train_tokenizers(pairs, WORDS.replace(shared_vocabulary=True))
    assert source is target


@pytest.mark.parametrize(
    ("task", "tokens"),
    [("translate", 3 + 1), ("classify", 3 + 2), ("tag", 3 + 2), ("masked-language-model", 3 + 2)],
)
def test_a_text_may_have_as_many_tokens_as_the_largest_length_with_its_start_and_end(task, tokens):
    learner, pairs = task_of(task), pairs_of(task)
    tokenizers = learner.train_tokenizers(pairs, WORDS)
    fitting = learner.encode(pairs, tokenizers, tokens)
    assert np.diff(fitting.source_offsets).tolist() == [tokens] * 2
    assert (fitting.kept, fitting.skipped_long, fitting.max_length) == (2, 0, tokens)
    with pytest.raises(ValueError, match=f"0 blank, 2 longer than {tokens - 1} tokens"):
        learner.encode(pairs, tokenizers, tokens - 1)


@pytest.mark.parametrize(("longest", "parts"), [(4, [4, 4]), (3, [2, 2, 2, 2]), (9, [4, 4])])
def test_a_language_model_learns_a_long_text_in_parts(longest, parts):
    """A part is not an end alone."""
    learner, pairs = task_of("language-model"), pairs_of("language-model")
    encoded = learner.encode(pairs, learner.train_tokenizers(pairs, WORDS), longest)
    assert np.diff(encoded.target_offsets).tolist() == parts


@pytest.mark.parametrize("known", [0, 1, 2, 5])
def test_a_very_long_text_counts_for_its_corpus_alone(known):
    """It is read in several pieces; some of them may have been read by a process that was killed."""
    learner = task_of("language-model")
    pairs = [("one two " * 2000, ""), ("two", ""), ("three", ""), ("two one", "")]  # 16,000 characters
    tokenizers = learner.train_tokenizers([("one two three", "")], WORDS)

    class Resumed(MemoryIds):
        def open(self, *sizes):
            super().open(*sizes)
            return known

    rows = learner.encode(pairs, tokenizers, 3, MemoryIds(sizes=[2, 2])).parts
    assert rows[1] == 2
    assert rows[0] > 1000
    left = learner.encode(pairs, tokenizers, 3, Resumed(sizes=[2, 2])).parts
    assert left[1] == 2
    assert (left[0] == rows[0]) == (known == 0)


@pytest.mark.parametrize("task", ["language-model", "masked-language-model"])
def test_a_model_of_plain_text_learns_from_the_sources_alone(task):
    assert [*task_of(task).pairs([("one", "uno"), ("two", "")])] == [("one", "one"), ("two", "two")]


@pytest.mark.parametrize("task", ["classify", "tag"])
def test_an_encoder_alone_has_no_decoder_and_ties_nothing(task):
    adapted = task_of(task).adapt(TransformerConfig(embedding_tying="all"))
    assert (adapted.num_decoder_layers, adapted.embedding_tying) == (0, "none")


def test_a_masked_language_model_has_one_vocabulary_whatever_the_earlier_run_had():
    words, labels = SymbolTokenizer(["one"]), SymbolTokenizer(["odd"])
    assert task_of("masked-language-model").keep_tokenizers((words, labels), "classify", []) == (words, words)
    assert task_of("translate").keep_tokenizers((words, labels), "translate", []) == (words, labels)


class WithMask(SymbolTokenizer):
    """Ids: one 4, two 5, [MASK] 6."""

    mask_id = 6

    def word_starts(self):
        return np.arange(self.vocab_size) == 5


@pytest.mark.parametrize("whole_words", [False, True])
def test_a_masked_language_model_hides_tokens_behind_the_mask_of_its_tokenizer(whole_words):
    tokenizer = WithMask(["one", "two", "[MASK]"])
    training = TrainingConfig(mask_whole_words=whole_words)
    found = task_of("masked-language-model").arrangement((tokenizer, tokenizer), training)
    assert isinstance(found, MaskedTokens)
    assert found.mask_id == 6
    assert np.flatnonzero(found.ordinary).tolist() == [4, 5]  # no special id, and not the mask
    assert (found.word_starts is not None) == whole_words


@pytest.mark.parametrize("has_start", [True, False])
def test_a_language_model_begins_with_a_start_if_its_tokenizer_has_one(has_start):
    tokenizer = SymbolTokenizer(["one"])
    tokenizer.has_start = has_start
    assert task_of("language-model").arrangement((tokenizer, tokenizer), TrainingConfig()).has_start == has_start


@pytest.mark.parametrize("task", TASKS)
def test_the_loss_and_the_metrics_have_the_smoothing_of_the_run_and_the_padding_of_the_targets(task):
    transformer = TransformerConfig(pad_id=7, num_decoder_layers=6, task=task)
    training = TrainingConfig(label_smoothing=0.3, label_smoothing_form="others")
    loss, metrics = task_of(task).objective(transformer, training)
    padding = 0 if TASKS[task].has_labels else 7
    assert (loss.epsilon, loss.form, loss.pad_id) == (0.3, "others", padding)
    by_name = {metric.name: metric for metric in metrics}
    assert [*by_name] == ["token_loss", "accuracy", "perplexity"]
    assert (by_name["token_loss"].epsilon, by_name["token_loss"].form) == (0.3, "others")
    assert [metric.pad_id for metric in metrics] == [padding] * 3


@pytest.mark.parametrize("task", TASKS)
def test_a_task_loads_a_model_with_the_search_that_is_asked_for(task, run_of, numbers_run):
    run = numbers_run if task == "translate" else run_of(task)
    search = DecodingConfig(beam_size=2, max_source_length=7)
    loaders = [task_of(task).load_for_export] + [task_of(task).load] * (TASKS[task].outputs is not None)
    for load in loaders:
        predictor = load(run, search)
        assert (predictor.task, predictor.decoding.beam_size, predictor.decoding.max_source_length) == (task, 2, 7)


def test_a_masked_language_model_is_loaded_for_an_export_alone(run_of):
    with pytest.raises(ValueError, match="is a masked language model, which answers nothing by itself. Train a class"):
        task_of("masked-language-model").load(run_of("masked-language-model"))
