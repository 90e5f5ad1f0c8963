"""Embedding vectors of another size than the model's, in a whole model."""

import keras
import numpy as np
import pytest
from small_models import SIZES, SOURCE, TARGET_IN, T, V, logits_of, small_config, small_transformer
from test_start_decoding import all_at_once, histories, stepwise

from kformer.config import TransformerConfig
from kformer.models import build_transformer, start_decoding
from kformer.models.transformer import call_with_scores

D, E = SIZES["d_model"], 5
TYINGS = ("all", "target", "none")
ONE_LAYER = {"embedding_dim": E, "num_encoder_layers": 1, "num_decoder_layers": 1}


@pytest.mark.parametrize(
    ("tying", "more"),
    [
        # Instead of matrices of V x D: matrices of V x E, and projections on the ways in and out.
        ("all", V * (E - D) + 2 * E * D),
        ("target", 2 * V * (E - D) + 3 * E * D),
        ("none", 2 * V * (E - D) + 2 * E * D),
    ],
)
def test_the_number_of_parameters(tying, more):
    plain, projected = (build_transformer(small_config(embedding_tying=tying, embedding_dim=dim)) for dim in (None, E))
    assert projected.count_params() == plain.count_params() + more


def test_the_models_own_size_needs_no_projection():
    model = build_transformer(small_config(embedding_dim=D))
    assert model.count_params() == build_transformer(small_config()).count_params()
    with pytest.raises(ValueError, match="embedding_dim must be greater than 0 and finite. Received: embedding_dim=0"):
        TransformerConfig(embedding_dim=0)


@pytest.mark.parametrize("tying", TYINGS)
def test_steps_equal_the_whole_and_a_saved_model_equals_both(tying, tmp_path):
    model, tokens = small_transformer(embedding_tying=tying, **ONE_LAYER), histories(1)
    logits, _ = stepwise(*start_decoding(model, SOURCE, max_length=T), tokens)
    np.testing.assert_allclose(logits, all_at_once(model, tokens), atol=2e-5)
    expected = logits_of(model, SOURCE, TARGET_IN)
    np.testing.assert_allclose(call_with_scores(model, SOURCE, TARGET_IN)[0], expected, atol=2e-5)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    np.testing.assert_array_equal(logits_of(loaded, SOURCE, TARGET_IN), expected)
    model.save_weights(tmp_path / "model.weights.h5")
    again = build_transformer(small_config(embedding_tying=tying, **ONE_LAYER))
    again.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(logits_of(again, SOURCE, TARGET_IN), expected)


@pytest.mark.parametrize("tying", ["all", "none"])
def test_every_weight_learns_but_a_frozen_matrix(tying):
    model = build_transformer(small_config(embedding_tying=tying, **ONE_LAYER))
    frozen = model.get_layer("shared_embedding" if tying == "all" else "source_embedding")
    frozen.freeze_embeddings()
    # Compiled on JAX and eager on TensorFlow: the quicker of the two on each.
    eager = keras.backend.backend() == "tensorflow"
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, run_eagerly=eager)
    before = model.get_weights()
    model.fit({"source": SOURCE, "target_in": TARGET_IN}, TARGET_IN, verbose=0)
    for weight, old in zip(model.weights, before, strict=True):
        if not weight.path.endswith("key/bias"):  # whose gradient is zero
            moved = not np.array_equal(keras.ops.convert_to_numpy(weight), old)
            assert moved == (weight.path != f"{frozen.name}/embeddings"), weight.path
