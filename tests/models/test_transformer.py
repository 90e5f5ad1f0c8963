import keras
import numpy as np
import pytest
from small_models import (
    PAD,
    SIZES,
    SOURCE,
    START,
    TARGET_IN,
    B,
    S,
    T,
    V,
    every_form,
    logits_of,
    move_embedding,
    small_config,
    small_transformer,
)

from kformer.config import TransformerConfig
from kformer.layers import TokenEmbedding
from kformer.models import build_transformer
from kformer.process.hardware import cpu_multiplies_bfloat16


def stack_parameters(config: TransformerConfig) -> int:
    """Both stacks, from the formulas of sections 3.1 to 3.3 (layer norms after the sum)."""
    d, f = config.d_model, config.d_ff
    attention = 4 * (d * d + d)  # W^Q, W^K, W^V and W^O of all heads, with biases
    feed_forward = (d * f + f) + (f * d + d)
    norm = 2 * d
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    return config.num_encoder_layers * encoder_layer + config.num_decoder_layers * decoder_layer


class TestSizes:
    @pytest.mark.parametrize(("size", "expected"), [("base", 63_082_496), ("big", 214_245_376)])
    def test_base_and_big_have_the_papers_sizes(self, size, expected, monkeypatch):
        # Only shapes count here: drawing 214 million normal numbers would take most of the time.
        monkeypatch.setattr(keras.initializers.RandomNormal, "__call__", keras.initializers.Zeros.__call__)
        config = TransformerConfig.of_size(size)
        shared_matrix = 37_000 * config.d_model
        assert stack_parameters(config) + shared_matrix == expected
        assert build_transformer(config).count_params() == expected

    @pytest.mark.parametrize(("tying", "matrices"), [("all", 1), ("target", 2), ("none", 3)])
    def test_tying_decides_the_number_of_matrices(self, tying, matrices):
        config = small_config(embedding_tying=tying)
        model = build_transformer(config)
        assert model.count_params() == stack_parameters(config) + matrices * V * config.d_model
        assert sum(V in weight.shape for weight in model.weights) == matrices

    def test_two_vocabularies(self):
        config = small_config(source_vocab_size=29, embedding_tying="target")
        model = build_transformer(config)
        assert model.count_params() == stack_parameters(config) + (29 + V) * config.d_model

    def test_norms_first_add_a_last_norm_to_each_stack(self):
        config = small_config(norm_first=True)
        shared_matrix = V * config.d_model
        expected = stack_parameters(config) + shared_matrix + 2 * 2 * config.d_model
        assert build_transformer(config).count_params() == expected

    def test_learned_positions_are_a_matrix_a_side(self):
        config = small_config(positional_encoding="learned")
        expected = stack_parameters(config) + (V + 2 * config.max_length) * config.d_model
        assert build_transformer(config).count_params() == expected

    def test_sizes_and_rates_reach_every_layer(self):
        options = {
            **{"d_model": 12, "num_heads": 3, "d_ff": 17, "dropout_rate": 0.3, "attention_dropout_rate": 0.2},
            **{"norm_first": True, "activation": "geglu", "layer_norm_epsilon": 0.25, "use_bias": False},
            "normalization": "rms_norm",
            "num_key_value_heads": 1,
            "head_dim": 5,
        }
        model = build_transformer(small_config(**options))
        for name, count in (("encoder", SIZES["num_encoder_layers"]), ("decoder", SIZES["num_decoder_layers"])):
            stack = model.get_layer(name)
            assert len(stack.layers) == count
            assert stack.dropout_rate == 0.3  # on the embeddings of both sides
            for layer in stack.layers:
                assert {option: layer.get_config()[option] for option in options} == options


class TestThreeWayTie:
    def test_one_matrix_embeds_both_sides_and_gives_the_logits(self):
        model = small_transformer()
        embeddings = [layer for layer in model.layers if isinstance(layer, TokenEmbedding)]
        assert [layer.name for layer in embeddings] == ["shared_embedding"]
        weights = model.get_weights()
        before = logits_of(model, SOURCE, TARGET_IN)

        def change_of_logits(token: int) -> np.ndarray:
            model.set_weights(weights)
            move_embedding(embeddings[0], token)
            return np.abs(logits_of(model, SOURCE, TARGET_IN) - before)[0]

        source_only, target_only, nowhere = 13, 14, 2
        assert change_of_logits(source_only)[0, START] > 1e-4  # through the source
        assert change_of_logits(target_only)[1, START] > 1e-4  # through the target
        of_nowhere = change_of_logits(nowhere)
        assert of_nowhere[:, nowhere].min() > 1e-4  # its own logit
        assert np.delete(of_nowhere, nowhere, axis=1).max() == 0

    def test_target_and_none_have_their_own_source_matrix(self):
        for tying in ("target", "none"):
            model = build_transformer(small_config(embedding_tying=tying))
            assert model.get_layer("source_embedding").tie_weights
            assert model.get_layer("target_embedding").tie_weights == (tying == "target")


class TestInputsAndOutputs:
    def test_names_and_shapes(self):
        model = build_transformer(small_config())
        assert model.name == "transformer"
        assert {name: tensor.shape for name, tensor in model.input.items()} == {
            "source": (None, None),
            "target_in": (None, None),
        }
        assert {tensor.dtype for tensor in model.input.values()} == {"int32"}
        assert model.output.shape == (None, None, V)
        assert logits_of(model, SOURCE, TARGET_IN).shape == (B, T, V)

    def test_logits_are_over_the_target_vocabulary(self):
        model = build_transformer(small_config(target_vocab_size=29, embedding_tying="none"))
        assert logits_of(model, SOURCE, TARGET_IN).shape == (B, T, 29)

    def test_dropout_is_for_training(self):
        model = small_transformer(dropout_rate=0.5)
        inputs = {"source": SOURCE, "target_in": TARGET_IN}
        np.testing.assert_array_equal(model(inputs), model(inputs))
        difference = keras.ops.convert_to_numpy(model(inputs, training=True) - model(inputs, training=True))
        assert np.abs(difference).max() > 0.1

    def test_another_pad_id(self):
        # With pad id 8, the source's token 8 is what nobody attends to.
        model = small_transformer(pad_id=8, embedding_tying="none")
        before = logits_of(model, SOURCE, TARGET_IN)
        move_embedding(model.get_layer("source_embedding"), 8)
        np.testing.assert_array_equal(logits_of(model, SOURCE, TARGET_IN), before)
        move_embedding(model.get_layer("source_embedding"), PAD)
        assert np.abs(logits_of(model, SOURCE, TARGET_IN) - before)[1].max() > 1e-4


class TestSaving:
    @every_form
    def test_a_keras_file_gives_the_same_logits(self, form, tmp_path):
        model = small_transformer(**form)
        model.save(tmp_path / "model.keras")
        loaded = keras.saving.load_model(tmp_path / "model.keras", compile=False)
        assert [layer.name for layer in loaded.layers] == [layer.name for layer in model.layers]
        assert loaded.count_params() == model.count_params()
        np.testing.assert_array_equal(logits_of(loaded, SOURCE, TARGET_IN), logits_of(model, SOURCE, TARGET_IN))


class TestTraining:
    @pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
    def test_three_steps_stay_finite_under_every_policy(self, policy):
        keras.config.set_dtype_policy(policy)
        model = build_transformer(small_config(num_encoder_layers=1, num_decoder_layers=1))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        # Compiled on JAX and eager on TensorFlow: the quicker of the two on each.
        eager = keras.backend.backend() == "tensorflow"
        model.compile(keras.optimizers.Adam(0.01), loss, run_eagerly=eager)
        assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer) == (policy == "mixed_float16")
        # The third row is all padding, as in the last batch of an epoch: nothing to attend to in its source.
        inputs = {
            "source": np.concatenate([SOURCE, np.full((1, S), PAD, "int32")]),
            "target_in": np.concatenate([TARGET_IN, np.full((1, T), PAD, "int32")]),
        }
        targets = np.concatenate([TARGET_IN, np.full((1, T), PAD, "int32")])
        before = model.get_weights()
        history = model.fit(inputs, targets, batch_size=3, epochs=3, verbose=0)
        losses = history.history["loss"]
        assert np.isfinite(losses).all()
        assert losses[2] < losses[0]
        for weight, old in zip(model.weights, before, strict=True):
            new = keras.ops.convert_to_numpy(weight)
            assert weight.dtype == "float32"
            assert np.isfinite(new).all(), weight.path
            if not weight.path.endswith("key/bias"):  # whose gradient is zero: a softmax ignores a common shift
                assert not np.array_equal(new, old), weight.path

    @pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16", "bfloat16"])
    def test_logits_are_float32(self, policy):
        keras.config.set_dtype_policy(policy)
        model = build_transformer(small_config())
        assert model.output.dtype == "float32"
        output = model({"source": SOURCE, "target_in": TARGET_IN})
        assert keras.backend.standardize_dtype(output.dtype) == "float32"
        assert model.get_layer("encoder").layers[0].compute_dtype == policy.removeprefix("mixed_")

    def test_half_precision_gives_nearly_the_same_logits(self):
        model = small_transformer()
        keras.config.set_dtype_policy("mixed_bfloat16")
        half = small_transformer()
        half.set_weights(model.get_weights())
        expected = logits_of(model, SOURCE, TARGET_IN)
        difference = np.abs(logits_of(half, SOURCE, TARGET_IN) - expected)
        # A processor without arithmetic in bfloat16 rounds between its steps, too: 0.022.
        bound = 0.02 if cpu_multiplies_bfloat16() else 0.025
        assert 0 < difference.mean() < bound * expected.std()
