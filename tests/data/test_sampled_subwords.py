"""Batches of texts that are divided anew: a function of seed and number, in rows that have room."""

import itertools

import numpy as np
import pytest

from kformer.config import TrainingConfig
from kformer.data import BatchPlan, encode_pairs, load_corpus, make_dataset
from kformer.data.arrangements import Growth, NextToken, Rows, ShiftedTarget
from kformer.data.sampled_subwords import SampledSubwords, subword_sampler, with_sampled_subwords
from kformer.tasks import task_of
from kformer.tokenizers import SentencePieceTokenizer, SymbolTokenizer
from kformer.tokenizers.subword_sampling import Subwords

pytestmark = pytest.mark.tensorflow_only
TRAINING = {"bpe": TrainingConfig(bpe_dropout=0.2), "unigram": TrainingConfig(unigram_alpha=0.2)}


@pytest.fixture(scope="module")
def pairs():
    return [*itertools.islice(load_corpus("bible-en-es").train, 700)]


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def tokenizer(pairs, kind):
    return SentencePieceTokenizer.train([*itertools.chain.from_iterable(pairs)], 600, kind)


@pytest.fixture(scope="module")
def encoded(pairs, tokenizer):
    return encode_pairs(pairs, tokenizer, tokenizer, max_length=96)


def plan_of(encoded, tokenizer, kind, row_multiple=1):
    arrangement = task_of("translate").training_arrangement((tokenizer, tokenizer), TRAINING[kind])
    return BatchPlan(encoded, 512, arrangement=arrangement, row_multiple=row_multiple)


def assert_same(batches, others):
    batches, others = [*batches], [*others]
    assert len(batches) == len(others) > 0
    for (inputs, labels), (other_inputs, other_labels) in zip(batches, others, strict=True):
        np.testing.assert_array_equal(labels, other_labels)
        for name, ids in inputs.items():
            np.testing.assert_array_equal(ids, other_inputs[name])


def as_numpy(dataset, count):
    return [*dataset.take(count).as_numpy_iterator()]


def test_a_stream_that_begins_with_a_later_batch_has_the_same_ones(encoded, tokenizer, kind):
    plan = plan_of(encoded, tokenizer, kind)
    whole = [*itertools.islice(plan.endless(shuffle_seed=3), 9)]
    later = plan_of(encoded, tokenizer, kind).endless(shuffle_seed=3, start_step=5)
    assert_same(whole[5:], itertools.islice(later, 4))
    other = next(plan.endless(shuffle_seed=4))[1]
    assert other.shape != whole[0][1].shape or np.any(other != whole[0][1])


def test_processes_that_share_a_batch_have_its_parts(encoded, tokenizer, kind):
    plan = plan_of(encoded, tokenizer, kind, row_multiple=2)
    options = {"shuffle_seed": 3, "repeat": True}
    whole = as_numpy(make_dataset(plan, **options), 4)
    parts = [as_numpy(make_dataset(plan, **options, part=(number, 2)), 4) for number in (0, 1)]
    joined = [
        ({name: np.concatenate([one[0][name], other[0][name]]) for name in one[0]}, np.concatenate([one[1], other[1]]))
        for one, other in zip(*parts, strict=True)
    ]
    assert_same(joined, whole)


def test_both_sides_of_a_text_are_other_ids_in_each_epoch_and_spell_the_same(encoded, tokenizer, kind, pairs):
    plan = plan_of(encoded, tokenizer, kind)
    batches = [*itertools.islice(plan.endless(shuffle_seed=1), 2 * plan.steps_per_epoch)]
    for side, found in enumerate(zip(*((inputs["source"], labels) for inputs, labels in batches), strict=True)):
        rows = [row[row != 0].tolist() for ids in found for row in ids]
        seen = {text.decode() for text in tokenizer.detokenize(rows).numpy()}
        texts = {text.decode() for text in tokenizer.normalize([pair[side] for pair in pairs]).numpy()}
        assert seen <= texts
        assert len({*map(tuple, rows)}) > 1.5 * len(seen)


def test_nearly_all_texts_fit_into_the_rows_and_no_row_is_longer_than_the_largest_length(encoded, tokenizer, kind):
    plan = plan_of(encoded, tokenizer, kind)
    assert max(map(max, plan.shapes)) <= 96
    assert all(rows * max(lengths) <= 512 for rows, *lengths in plan.shapes)
    usual = {tuple(ids.tolist()) for ids in np.split(encoded.target_ids, encoded.target_offsets[1:-1])}
    batches = [labels for _, labels in plan.once(shuffle_seed=2) if labels.shape[1] < 96]  # rows that have their room
    found = [tuple(row[row != 0].tolist()) for labels in batches for row in labels]
    long = [row for row in found if len(row) > 20]  # these are hardly divided as usual by chance
    assert len(long) > 200
    assert sum(row in usual for row in long) < 0.06 * len(long)


def test_a_plan_tells_the_tokens_that_texts_have_then(encoded, tokenizer, kind):
    plan = plan_of(encoded, tokenizer, kind)
    batches = [*itertools.islice(plan.endless(shuffle_seed=1), 2 * plan.steps_per_epoch)]
    sides = [
        np.mean([np.sum(ids != 0) for ids in side])
        for side in zip(*((x["source"], y) for x, y in batches), strict=True)
    ]
    assert plan.mean_tokens == pytest.approx(sides, rel=0.05)
    assert plan.mean_tokens[0] / BatchPlan(encoded, 512, plan.buckets).mean_tokens[0] != pytest.approx(1, rel=0.05)


def test_a_text_that_does_not_fit_into_its_row_has_its_usual_ids(tokenizer, kind):
    ids = tokenizer.tokenize(["In the beginning God created the heavens."] * 60).to_tensor().numpy()
    sampler = with_sampled_subwords(ShiftedTarget(), tokenizer, None, TRAINING[kind]).source
    arrangement = SampledSubwords(ShiftedTarget(), sampler, None)
    rows = Rows(np.pad(ids, [(0, 0), (0, 3)]), ids, 0, 0, 1)
    inputs, labels = arrangement.arrange(rows, np.random.default_rng(0))
    found = inputs["source"]
    assert found.shape == rows.source.shape
    keeps = np.all(found == rows.source, axis=1)
    assert 0 < keeps.sum() < 60
    np.testing.assert_array_equal(labels, ids)


def test_of_a_language_model_the_target_is_divided(tokenizer, kind):
    found = task_of("language-model").training_arrangement((tokenizer, tokenizer), TRAINING[kind])
    assert found.source is None
    assert found.target is not None
    assert isinstance(found.arrangement, NextToken)


@pytest.mark.parametrize("task", ["translate", "language-model"])
def test_validations_and_runs_that_do_not_ask_for_it_have_the_usual_ids(task, tokenizer, kind):
    tokenizers = (tokenizer, tokenizer)
    other = {"bpe": TrainingConfig(unigram_alpha=0.1), "unigram": TrainingConfig(bpe_dropout=0.1)}[kind]
    assert not isinstance(task_of(task).arrangement(tokenizers, TRAINING[kind]), SampledSubwords)
    for training in (TrainingConfig(), other):
        assert not isinstance(task_of(task).training_arrangement(tokenizers, training), SampledSubwords)


def test_a_side_without_subwords_stays_as_it_is(tokenizer, kind):
    found = task_of("translate").training_arrangement((tokenizer, SymbolTokenizer(["K"])), TRAINING[kind])
    assert found.source is not None
    assert found.target is None


def test_two_sides_of_one_vocabulary_share_a_sampler(tokenizer, kind):
    found = task_of("translate").training_arrangement((tokenizer, tokenizer), TRAINING[kind])
    assert found.source is found.target


def test_room_is_for_the_mean_and_two_standard_deviations():
    assert Growth(0.0, 0.0).room(17) == 17
    assert Growth(0.5, 0.25).room(16) == 16 + 8 + 4


def test_the_growth_is_that_of_the_pairs(encoded, tokenizer, kind):
    arrangement = with_sampled_subwords(ShiftedTarget(), tokenizer, None, TRAINING[kind])
    source, target = arrangement.growth(encoded)
    assert target == Growth(0.0, 0.0)
    counts = np.diff(encoded.source_offsets)
    _, found = arrangement.source.sample(encoded.source_ids, counts, 1 << 40, np.random.default_rng(5))
    assert source.mean == pytest.approx(found.sum() / counts.sum() - 1, rel=0.1)
    fit = np.mean([more <= source.room(int(count)) for count, more in zip(counts, found, strict=True)])
    assert 0.95 < fit < 0.999


def test_the_configuration_chooses_the_way_of_each_kind():
    subwords = {kind: Subwords(kind, ("▁a",), (-1.0,)) for kind in ("bpe", "unigram", "word")}
    both = TrainingConfig(bpe_dropout=0.25, unigram_alpha=0.5)
    assert subword_sampler(subwords["bpe"], both).dropout == 0.25
    assert subword_sampler(subwords["unigram"], both).alpha == 0.5
    for kind, training in (
        ("bpe", TrainingConfig(unigram_alpha=0.5)),
        ("unigram", TrainingConfig(bpe_dropout=0.25)),
        ("bpe", TrainingConfig()),
        ("word", both),
    ):
        assert subword_sampler(subwords[kind], training) is None
    assert subword_sampler(None, both) is None
