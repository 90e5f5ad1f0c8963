"""Step by step equals all at once.

Shape letters: B sentences, R rows a sentence, N = B x R, S source length, T target length, V vocabulary.
"""

import keras
import numpy as np
import pytest
from keras import ops
from small_models import SOURCE, START, B, T, V, every_form, logits_of, small_transformer

from kformer.models import reorder_rows, start_decoding


def histories(rows_per_source: int) -> np.ndarray:
    """(N, T) target tokens, each row another sequence behind the start id."""
    tokens = np.random.default_rng(6).integers(3, V, (B * rows_per_source, T)).astype("int32")
    tokens[:, 0] = START
    assert len(np.unique(tokens, axis=0)) == len(tokens)
    return tokens


def all_at_once(model: keras.Model, tokens: np.ndarray) -> np.ndarray:
    return logits_of(model, np.repeat(SOURCE, len(tokens) // B, axis=0), tokens)


def stepwise(next_logits, state, tokens: np.ndarray) -> tuple[np.ndarray, object]:
    """(N, T, V) logits, one step a column of `tokens`, and the last state."""
    logits = []
    for column in tokens.T:
        step_logits, state = next_logits(column, state)
        logits.append(ops.convert_to_numpy(step_logits))
    return np.stack(logits, axis=1), state


@every_form
def test_steps_equal_the_whole_at_every_position(form):
    model = small_transformer(**form)
    for rows_per_source in (1, 3):
        tokens = histories(rows_per_source)
        next_logits, state = start_decoding(model, SOURCE, max_length=T, rows_per_source=rows_per_source)
        logits, state = stepwise(next_logits, state, tokens)
        assert logits.shape == (B * rows_per_source, T, V)
        np.testing.assert_allclose(logits, all_at_once(model, tokens), atol=2e-5)
        assert int(state.position) == T


def test_a_longer_cache_than_needed_changes_nothing():
    model = small_transformer()
    tokens = histories(1)
    logits, _ = stepwise(*start_decoding(model, SOURCE, max_length=T + 6), tokens)
    np.testing.assert_allclose(logits, all_at_once(model, tokens), atol=2e-5)


def test_rows_of_a_sentence_can_be_reordered_between_steps():
    model = small_transformer()
    tokens = histories(3)
    half = 3
    next_logits, state = start_decoding(model, SOURCE, max_length=T, rows_per_source=3)
    _, state = stepwise(next_logits, state, tokens[:, :half])
    # In the first sentence the best beam wins all three rows; in the second two change places.
    order = np.array([1, 1, 1, 4, 3, 5], "int32")
    state = reorder_rows(state, order)
    reordered = np.concatenate([tokens[order, :half], tokens[:, half:]], axis=1)
    logits, _ = stepwise(next_logits, state, reordered[:, half:])
    np.testing.assert_allclose(logits, all_at_once(model, reordered)[:, half:], atol=2e-5)
    not_reordered = all_at_once(model, tokens)[:, half:]
    assert np.abs(logits - not_reordered)[[0, 2, 3, 4]].max(axis=(1, 2)).min() > 1e-2


def test_a_second_reordering_follows_the_first():
    model = small_transformer()
    tokens = histories(3)
    next_logits, state = start_decoding(model, SOURCE, max_length=T, rows_per_source=3)
    for position, order in enumerate(([2, 0, 0, 3, 5, 4], [1, 1, 0, 4, 4, 5])):
        _, state = stepwise(next_logits, state, tokens[:, position : position + 1])
        state = reorder_rows(state, np.array(order, "int32"))
        tokens = np.concatenate([tokens[order, : position + 1], tokens[:, position + 1 :]], axis=1)
    logits, _ = stepwise(next_logits, state, tokens[:, 2:])
    np.testing.assert_allclose(logits, all_at_once(model, tokens)[:, 2:], atol=2e-5)


def test_a_state_can_be_used_again():
    model = small_transformer()
    next_logits, state = start_decoding(model, SOURCE, max_length=T)
    tokens = histories(1)
    first, _ = stepwise(next_logits, state, tokens)
    second, _ = stepwise(next_logits, state, tokens)
    np.testing.assert_array_equal(first, second)


def test_another_pad_id():
    model = small_transformer(pad_id=8)
    tokens = histories(1)
    logits, _ = stepwise(*start_decoding(model, SOURCE, max_length=T, pad_id=8), tokens)
    np.testing.assert_allclose(logits, all_at_once(model, tokens), atol=2e-5)


def test_logits_are_float32_in_half_precision():
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = small_transformer()
    next_logits, state = start_decoding(model, SOURCE, max_length=T)
    logits, state = next_logits(np.array([START] * B, "int32"), state)
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    assert keras.backend.standardize_dtype(state.caches[0].key.dtype) == "bfloat16"


def test_a_loaded_model_decodes(tmp_path):
    model = small_transformer(embedding_tying="target")
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    tokens = histories(1)
    logits, _ = stepwise(*start_decoding(loaded, SOURCE, max_length=T), tokens)
    np.testing.assert_allclose(logits, all_at_once(model, tokens), atol=2e-5)


@pytest.mark.tensorflow_only
@pytest.mark.parametrize(
    "positional_encoding",
    [
        "sinusoidal",
        "relative",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("learned", "rotary", "alibi", "relative_buckets")),
    ],
)
def test_in_a_tensorflow_graph_with_open_batch_and_length(positional_encoding):
    import tensorflow as tf

    model = small_transformer(positional_encoding=positional_encoding)
    rows_per_source = 3

    @tf.function(
        autograph=False,
        input_signature=[
            tf.TensorSpec([None, None], tf.int32),
            tf.TensorSpec([None, None], tf.int32),
            tf.TensorSpec([], tf.int32),
        ],
    )
    def decode(source, tokens, max_length):
        next_logits, state = start_decoding(model, source, max_length, rows_per_source=rows_per_source)
        collected = tf.TensorArray(tf.float32, size=max_length, element_shape=(None, V))

        def body(state, collected):
            position = state.position
            logits, state = next_logits(tokens[:, position], state)
            return state, collected.write(position, logits)

        _, collected = tf.while_loop(lambda state, _: state.position < max_length, body, (state, collected))
        return tf.transpose(collected.stack(), (1, 0, 2))

    for length in (T, 2):
        tokens = histories(rows_per_source)[:, :length]
        np.testing.assert_allclose(decode(SOURCE, tokens, length), all_at_once(model, tokens), atol=2e-5)
    one = histories(rows_per_source)[:rows_per_source]
    expected = logits_of(model, np.repeat(SOURCE[:1], rows_per_source, axis=0), one)
    np.testing.assert_allclose(decode(SOURCE[:1], one, T), expected, atol=2e-5)
    assert decode.experimental_get_tracing_count() == 1
    library = decode.get_concrete_function().graph.as_graph_def().library
    (body,) = [function for function in library.function if "while_body" in function.signature.name]
    assert [node.name for node in body.node_def if "MatMul" in node.op]  # a step's products: the loop is looked into
    operations = {node.op for function in library.function for node in function.node_def}
    assert not {name for name in operations if name.startswith("Xla")}  # a stock server does not run them
