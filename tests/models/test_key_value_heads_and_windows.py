"""Fewer heads for keys and values, and windows of attention, in a whole model: step by step equals all at once."""

import keras
import numpy as np
import pytest
from keras import ops
from small_models import SOURCE, START, TARGET_IN, B, V, logits_of, small_config, small_transformer
from test_start_decoding import all_at_once, stepwise

from kformer.config import DecodingConfig
from kformer.layers import Cache
from kformer.models import reorder_rows, start_decoding
from kformer.text.searcher import ROOM_STEP, Searcher, compiled_search

LENGTH = 8  # positions, more than twice a window
FORMS = [
    pytest.param({"num_key_value_heads": 2, "positional_encoding": "rotary"}, marks=pytest.mark.slow),
    {"attention_window": 3, "num_key_value_heads": 2, "positional_encoding": "relative"},
    {"attention_window": 3, "num_key_value_heads": 1, "positional_encoding": "alibi"},
    {"attention_window": 5, "positional_encoding": "relative_buckets"},
    pytest.param({"attention_window": 99}, marks=pytest.mark.slow),
]
forms = pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(map(str, form.values())))
SIZES = {"num_heads": 4, "d_model": 16, "num_encoder_layers": 1, "num_decoder_layers": 2}


def histories(rows_per_source: int) -> np.ndarray:
    """(N, LENGTH) target tokens, each row another sequence behind the start id."""
    tokens = np.random.default_rng(6).integers(3, V, (B * rows_per_source, LENGTH)).astype("int32")
    tokens[:, 0] = START
    return tokens


@forms
def test_steps_of_rows_that_change_places_equal_the_whole(form):
    model, tokens = small_transformer(**SIZES, **form), histories(3)
    next_logits, state = start_decoding(model, SOURCE, max_length=LENGTH, rows_per_source=3)
    for first, order in ((0, [2, 0, 0, 3, 5, 4]), (2, [1, 1, 0, 4, 4, 5])):
        _, state = stepwise(next_logits, state, tokens[:, first : first + 2])
        state = reorder_rows(state, np.array(order, "int32"))
        tokens = np.concatenate([tokens[order, : first + 2], tokens[:, first + 2 :]], axis=1)
    logits, _ = stepwise(next_logits, state, tokens[:, 4:])
    np.testing.assert_allclose(logits, all_at_once(model, tokens)[:, 4:], atol=2e-5)


@forms
def test_steps_equal_the_whole_and_caches_keep_few_heads_and_positions(form):
    model, tokens = small_transformer(**SIZES, **form), histories(1)
    next_logits, state = start_decoding(model, SOURCE, max_length=LENGTH)
    logits, state = stepwise(next_logits, state, tokens)
    np.testing.assert_allclose(logits, all_at_once(model, tokens), atol=2e-5)
    kept = B * form.get("num_key_value_heads", 4) * min(form.get("attention_window", LENGTH), LENGTH)
    assert {tensor.shape for pair in state.caches for tensor in pair} == {(kept, 4)}


def test_a_saved_model_computes_the_same(tmp_path):
    model = small_transformer(**SIZES, **FORMS[1])
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    np.testing.assert_array_equal(logits_of(loaded, SOURCE, TARGET_IN), logits_of(model, SOURCE, TARGET_IN))
    assert loaded.get_layer("decoder").attention_window == FORMS[1]["attention_window"]


def cache_of_exports() -> type[Cache]:
    from kformer.export.in_place_cache import InPlaceCache

    return InPlaceCache


@pytest.mark.parametrize(
    ("window", "positions", "beam_size", "cache"),
    [
        (3, "alibi", 3, lambda: Cache),
        pytest.param(3, "rotary", 1, cache_of_exports, marks=pytest.mark.tensorflow_only),
        pytest.param(ROOM_STEP + 2, "relative", 3, cache_of_exports, marks=pytest.mark.tensorflow_only),
        pytest.param(None, "relative", 1, cache_of_exports, marks=pytest.mark.tensorflow_only),
        pytest.param(None, "relative_values", 3, cache_of_exports, marks=pytest.mark.tensorflow_only),
    ],
)
def test_a_search_whose_caches_grow_scores_as_the_whole_pass(window, positions, beam_size, cache):
    changes = {**SIZES, "num_key_value_heads": 2, "attention_window": window, "positional_encoding": positions}
    decoding = DecodingConfig(beam_size=beam_size, length_penalty=0.0, max_extra_length=16, min_length=18)
    search = Searcher(small_transformer(**changes), small_config(**changes), decoding, cache=cache())
    found = compiled_search(search)(SOURCE, np.array([22, 19], "int32"))
    tokens, scores, lengths = (ops.convert_to_numpy(part)[:, 0] for part in found)
    assert (lengths > ROOM_STEP).all()
    target_in = np.concatenate([np.full((B, 1), START, "int32"), tokens[:, :-1]], axis=1)
    log_probs = ops.convert_to_numpy(ops.log_softmax(logits_of(search.model, SOURCE, target_in)))
    for sentence, length in enumerate(lengths):
        gains = log_probs[sentence, np.arange(length), tokens[sentence, :length]]
        np.testing.assert_allclose(scores[sentence], gains.sum(), rtol=1e-4)
