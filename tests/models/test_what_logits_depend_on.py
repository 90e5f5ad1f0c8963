"""Proofs that no logit reads a later target token or padding of the source: by perturbation and by gradient.

Each proof also changes something that may be read, and sees the logits move: so it can fail.
Shape letters: B batch, S source length, T target length, D model size, V vocabulary.
"""

import numpy as np
import oracles
import pytest
from gradients import gradient
from keras import ops
from small_models import PAD, SOURCE, TARGET_IN, T, V, both_orders, logits_of, move_embedding, small_transformer

from kformer.layers import Decoder, DecoderLayer, padding_mask

D = 12


class TestByPerturbation:
    @both_orders
    @pytest.mark.parametrize("changed", range(1, T))
    def test_a_target_token_moves_its_own_and_later_logits_only(self, norm_first, changed):
        model = small_transformer(norm_first=norm_first)
        other = TARGET_IN.copy()
        other[:, changed] = (TARGET_IN[:, changed] + 1) % V
        difference = np.abs(logits_of(model, SOURCE, other) - logits_of(model, SOURCE, TARGET_IN))
        assert difference[:, :changed].max() == 0
        assert difference[:, changed:].max(axis=-1).min() > 1e-4

    @both_orders
    def test_a_sentence_does_not_read_its_neighbours(self, norm_first):
        model = small_transformer(norm_first=norm_first)
        source, target_in = SOURCE.copy(), TARGET_IN.copy()
        source[0, 2], target_in[0, 3] = 19, 19
        difference = np.abs(logits_of(model, source, target_in) - logits_of(model, SOURCE, TARGET_IN))
        assert difference[1].max() == 0
        assert difference[0].max() > 1e-4

    @both_orders
    def test_the_embedding_of_the_pad_id_has_no_influence_through_the_source(self, norm_first):
        model = small_transformer(norm_first=norm_first, embedding_tying="none")
        before = logits_of(model, SOURCE, TARGET_IN)

        def change_of_logits(token: int) -> float:
            move_embedding(model.get_layer("source_embedding"), token)
            return np.abs(logits_of(model, SOURCE, TARGET_IN) - before)[1].max()

        assert change_of_logits(PAD) == 0
        assert change_of_logits(SOURCE[1, 0]) > 1e-4

    @both_orders
    @pytest.mark.parametrize("appended", [1, 13])
    def test_more_padding_changes_no_logit(self, norm_first, appended):
        model = small_transformer(norm_first=norm_first)
        before = logits_of(model, SOURCE, TARGET_IN)
        longer = np.pad(SOURCE, [(0, 0), (0, appended)], constant_values=PAD)
        np.testing.assert_allclose(logits_of(model, longer, TARGET_IN), before, atol=1e-5)
        one_word_more = longer.copy()
        one_word_more[:, SOURCE.shape[1]] = 10
        assert np.abs(logits_of(model, one_word_more, TARGET_IN) - before).max(axis=(1, 2)).min() > 1e-2

    def test_more_target_padding_changes_no_earlier_logit(self):
        model = small_transformer()
        longer = np.pad(TARGET_IN, [(0, 0), (0, 6)], constant_values=PAD)
        np.testing.assert_allclose(
            logits_of(model, SOURCE, longer)[:, :T], logits_of(model, SOURCE, TARGET_IN), atol=1e-5
        )


class TestByGradient:
    """The gradient of a fixed mixture of one position's features with respect to everything that is read.

    (The plain sum would not do: a layer norm keeps the sum of its features constant.)
    """

    @pytest.fixture(params=[False, True], ids=["norm_last", "norm_first"])
    def decoder(self, request) -> Decoder:
        decoder = Decoder([DecoderLayer(D, 3, 17, norm_first=request.param) for _ in range(2)])
        decoder.build((None, None, D), (None, None, D))
        oracles.randomize(decoder)
        return decoder

    @pytest.fixture
    def embedded(self) -> tuple[np.ndarray, np.ndarray]:
        """Target (B, T, D) and encoder output (B, S, D)."""
        generator = np.random.default_rng(2)
        return tuple(generator.normal(size=(*ids.shape, D)).astype("float32") for ids in (TARGET_IN, SOURCE))

    @pytest.mark.parametrize("position", range(T))
    def test_with_respect_to_the_target(self, decoder, embedded, position):
        target, encoder_output = embedded
        mixture = np.random.default_rng(4).normal(size=D).astype("float32")

        def mixed(inputs):
            outputs = decoder(inputs, encoder_output, cross_mask=padding_mask(SOURCE))
            return ops.sum(outputs[:, position] * mixture)

        strength = np.abs(gradient(mixed, target)).max(axis=-1)  # (B, T)
        assert strength[:, : position + 1].min() > 1e-5
        assert strength[:, position + 1 :].size == 0 or strength[:, position + 1 :].max() == 0

    @pytest.mark.parametrize("position", [0, T - 1])
    def test_with_respect_to_the_source(self, decoder, embedded, position):
        target, encoder_output = embedded
        mixture = np.random.default_rng(4).normal(size=D).astype("float32")

        def mixed(inputs):
            outputs = decoder(target, inputs, cross_mask=padding_mask(SOURCE))
            return ops.sum(outputs[:, position] * mixture)

        strength = np.abs(gradient(mixed, encoder_output)).max(axis=-1)  # (B, S)
        assert strength[SOURCE != PAD].min() > 1e-5
        assert strength[SOURCE == PAD].max() == 0
