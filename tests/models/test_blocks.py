"""A step over k positions of every row computes what a call on the whole sequence does, wherever the rows stand.

Shape letters: B sentences, R rows a sentence, N = B x R, k positions of a step, T target length, V vocabulary.
"""

import numpy as np
import oracles
import pytest
from keras import ops
from small_models import SOURCE, START, B, V, logits_of, small_config, small_transformer

from kformer.models import StepwiseTransformer, reorder_rows
from kformer.models.decoder_only import StepwiseLanguageModel, build_language_model

T, K = 7, 5  # K is the largest k
VARIANTS = {
    "sinusoids": {},
    "learned": {"positional_encoding": "learned", "max_length": T + K, "norm_first": True},
    "rotary": {"positional_encoding": "rotary"},
    "alibi": {"positional_encoding": "alibi"},
    "relative": {"positional_encoding": "relative"},
    "relative_values": {"positional_encoding": "relative_values", "num_key_value_heads": 1},
    "relative_buckets": {"positional_encoding": "relative_buckets"},
    "one head for keys and values": {"positional_encoding": "rotary", "num_key_value_heads": 1},
    "window, sinusoids": {"attention_window": 3},
    "window, rotary": {"attention_window": 4, "positional_encoding": "rotary"},
    "window, alibi": {"attention_window": 3, "positional_encoding": "alibi"},
    "window, relative": {"attention_window": 1, "positional_encoding": "relative"},
    "window, relative_values": {"attention_window": 3, "positional_encoding": "relative_values"},
    "window, relative_buckets": {"attention_window": 6, "positional_encoding": "relative_buckets"},
    "shared layer": {"depth": "shared"},
    "adaptive depth": {"depth": "adaptive"},
}
every_variant = pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)


def random_tokens(rows: int) -> np.ndarray:
    """(N, T + K) int32, each row another text behind the start id; rows that stand at T still have k tokens."""
    tokens = np.random.default_rng(rows).integers(3, V, (B * rows, T + K)).astype("int32")
    tokens[:, 0] = START
    return tokens


def logits_in_blocks(next_logits, history, tokens: np.ndarray, k: int) -> np.ndarray:
    """(N, T, V), k positions a step, where all rows stand at one position."""
    found = []
    for first in range(0, T, k):
        logits, history = next_logits(tokens[:, first : first + k], history)
        found.append(ops.convert_to_numpy(logits))
    assert int(history.position) == len(found) * k
    return np.concatenate(found, axis=1)[:, :T]


def logits_of_drafts(next_logits, history, tokens: np.ndarray, k: int) -> np.ndarray:
    """(N, T, V), where each row keeps another number of the k tokens of each step, from none to all.

    The tokens that it does not keep are not those of the text.
    """
    random = np.random.default_rng(k)
    rows = np.arange(len(tokens))[:, None]
    found, position = np.full((len(tokens), T, V), np.nan, "float32"), np.zeros(len(tokens), "int32")
    while position.min() < T:
        history = history._replace(position=ops.convert_to_tensor(position))
        kept = np.minimum(random.integers(0, k + 1, len(tokens)), T - position)
        is_kept = np.arange(k) < kept[:, None]
        draft = tokens[rows, position[:, None] + np.arange(k)]
        wrong = random.integers(3, V, draft.shape)
        logits, history = next_logits(np.where(is_kept, draft, wrong).astype("int32"), history)
        np.testing.assert_array_equal(history.position, position + k)
        for row, number in enumerate(kept):
            of_row = slice(position[row], position[row] + number)
            found[row, of_row] = ops.convert_to_numpy(logits)[row, :number]
        position = (position + kept).astype("int32")
    return found


ways = pytest.mark.parametrize("way", [logits_in_blocks, logits_of_drafts], ids=["common position", "drafts"])


@every_variant
@pytest.mark.parametrize("k", [pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow), K])
@ways
def test_a_language_model(way, k, changes):
    model = build_language_model(
        small_config(num_encoder_layers=0, num_decoder_layers=2, **{"max_length": 99, **changes})
    )
    oracles.randomize(model)
    tokens = random_tokens(1)
    stepwise = StepwiseLanguageModel(model, max_length=T + K, block=K)
    context, history = stepwise.start(tokens[:, :1], room=T + K)
    expected = ops.convert_to_numpy(model({"target_in": tokens[:, :T]}))
    np.testing.assert_allclose(way(stepwise.begin(context), history, tokens, k), expected, atol=5e-5)


@pytest.mark.parametrize(
    "variant",
    [
        *("relative", "window, rotary", "window, relative_buckets", "adaptive depth"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("learned", "alibi", "one head for keys and values")),
    ],
)
@ways
def test_a_translator_with_a_beam(way, variant):
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 2, "max_length": 99}
    model = small_transformer(**{**sizes, **VARIANTS[variant]})
    rows, k = 3, 3
    tokens = random_tokens(rows)
    stepwise = StepwiseTransformer(model, max_length=T + K, rows_per_source=rows, block=K)
    context, history = stepwise.start(SOURCE, room=T + K)
    expected = logits_of(model, np.repeat(SOURCE, rows, axis=0), tokens[:, :T])
    np.testing.assert_allclose(way(stepwise.begin(context), history, tokens, k), expected, atol=5e-5)


def test_one_token_a_row_wherever_the_rows_stand():
    model, rows = small_transformer(positional_encoding="relative"), 2
    tokens = random_tokens(rows)
    stepwise = StepwiseTransformer(model, max_length=T, rows_per_source=rows)
    context, history = stepwise.start(SOURCE, room=T)
    next_logits = stepwise.begin(context)
    _, history = next_logits(tokens[:, :3], history)
    position = np.array([2, 3, 1, 3], "int32")  # of texts whose beginnings differ in length
    history = history._replace(position=ops.convert_to_tensor(position))
    expected = logits_of(model, np.repeat(SOURCE, rows, axis=0), tokens[:, :T])
    for _ in range(3):
        logits, history = next_logits(tokens[np.arange(len(tokens)), position], history)
        np.testing.assert_allclose(logits, expected[np.arange(len(tokens)), position], atol=5e-5)
        position += 1


def test_rows_of_sentences_at_different_positions_can_be_reordered():
    model, rows = small_transformer(), 2
    tokens = random_tokens(rows)
    stepwise = StepwiseTransformer(model, max_length=T, rows_per_source=rows)
    context, history = stepwise.start(SOURCE, room=T)
    next_logits = stepwise.begin(context)
    _, history = next_logits(tokens[:, :4], history)
    position, order = np.array([2, 2, 4, 4], "int32"), np.array([1, 1, 3, 2], "int32")
    history = reorder_rows(history._replace(position=ops.convert_to_tensor(position)), order)
    tokens = tokens[order]
    tokens[:2, 2:] = tokens[2:, 2:]  # The rows of the first sentence go on with tokens of their own.
    expected = logits_of(model, np.repeat(SOURCE, rows, axis=0), tokens[:, :T])
    for _ in range(3):
        logits, history = next_logits(tokens[np.arange(len(tokens)), position], history)
        np.testing.assert_allclose(logits, expected[np.arange(len(tokens)), position], atol=5e-5)
        position += 1


@pytest.mark.tensorflow_only  # Elsewhere shapes cannot change.
def test_full_caches_double_as_long_as_that_is_less_than_more_room():
    stepwise = StepwiseTransformer(small_transformer(), max_length=19, more_room=5)
    context, history = stepwise.start(SOURCE, room=3)
    everyone, rooms = ops.convert_to_tensor([0, 1], "int32"), []
    for _ in range(5):
        history = history._replace(position=ops.convert_to_tensor(context.room, "int32"))
        context, history = stepwise.keep(context, history, everyone)
        rooms.append(int(context.room))
    assert rooms == [6, 11, 16, 19, 19]


@pytest.mark.tensorflow_only  # Elsewhere shapes cannot change.
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("window", [None, 3])
def test_sentences_that_stay_get_more_room(window, rows):
    model = small_transformer(attention_window=window)
    tokens = random_tokens(rows)
    stepwise = StepwiseTransformer(model, max_length=99, rows_per_source=rows, more_room=4, block=2)
    context, history = stepwise.start(SOURCE, room=5)
    _, history = stepwise.begin(context)(tokens[:, :2], history)
    assert not bool(stepwise.is_full(context, history))
    _, history = stepwise.begin(context)(tokens[:, 2:4], history)
    position = np.full(len(tokens), 3, "int32")
    assert not bool(stepwise.is_full(context, history._replace(position=ops.convert_to_tensor(position))))
    position[-1] = 4  # This row has room for one more position, not for two.
    history = history._replace(position=ops.convert_to_tensor(position))
    assert bool(stepwise.is_full(context, history))
    context, history = stepwise.keep(context, history, ops.convert_to_tensor([1], "int32"))
    tokens, position = tokens[rows:], position[rows:]
    logits, _ = stepwise.begin(context)(np.stack([tokens[np.arange(rows), position + j] for j in (0, 1)], 1), history)
    expected = logits_of(model, np.repeat(SOURCE[1:], rows, axis=0), tokens[:, :T])
    for row, first in enumerate(position):
        np.testing.assert_allclose(logits[row], expected[row, first : first + 2], atol=5e-5)
