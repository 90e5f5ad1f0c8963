"""Shape letters: B batch, T length, D model size."""

import math

import numpy as np
import oracles
import pytest
from contracts import assert_layer_contract
from keras import ops

from kformer.layers import HalvedPositionalEncoding, LearnedPositionalEncoding, PositionalEncoding

B, T, D = 2, 7, 22


def encodings(length: int, d_model: int, offset: int = 0) -> np.ndarray:
    zeros = np.zeros((1, length, d_model), "float32")
    return ops.convert_to_numpy(PositionalEncoding(d_model)(zeros, offset=offset))[0]


class TestPositionalEncoding:
    def test_contract(self):
        inputs = {"inputs": np.random.default_rng(0).normal(size=(B, T, D)).astype("float32")}
        assert_layer_contract(PositionalEncoding, {"d_model": D}, inputs, num_parameters=0)

    def test_the_first_positions_of_four_features(self):
        # The rates are 1 and 10000^(-2/4) = 1/100.
        expected = [
            [0.0, 1.0, 0.0, 1.0],
            [math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)],
            [math.sin(2), math.cos(2), math.sin(0.02), math.cos(0.02)],
        ]
        np.testing.assert_allclose(encodings(3, 4), expected, atol=1e-6)

    @pytest.mark.parametrize("offset", [0, 1_000, 20_000, 32**3 - 50, 1_000_000])
    def test_equals_the_loops_far_from_the_beginning_too(self, offset):
        # Sums of four exact angles: a few roundings of 2^-24 each, where float32 angles would be off by offset x 2^-24.
        np.testing.assert_allclose(encodings(101, D, offset), oracles.sinusoids(101, D, offset), atol=6e-7)

    @pytest.mark.parametrize("as_tensor", [False, True])
    def test_an_offset_skips_rows(self, as_tensor):
        offset = ops.convert_to_tensor(3, "int32") if as_tensor else 3
        np.testing.assert_allclose(encodings(4, D, offset=offset), encodings(7, D)[3:], atol=1e-6)

    def test_it_is_added_to_every_sentence(self):
        inputs = np.random.default_rng(0).normal(size=(B, T, D)).astype("float32")
        np.testing.assert_allclose(PositionalEncoding(D)(inputs), inputs + encodings(T, D), atol=1e-6)

    def test_angles_are_not_rounded_to_half_precision(self):
        # bfloat16 would make 255, 256 and 257 one position.
        layer = PositionalEncoding(4, dtype="bfloat16")
        output = ops.convert_to_numpy(ops.cast(layer(np.zeros((1, 3, 4), "float32"), offset=255), "float32"))[0]
        np.testing.assert_allclose(output, oracles.sinusoids(3, 4, offset=255), atol=2**-8)

    def test_an_odd_d_model_is_refused(self):
        expected = r"d_model must be even: each sine needs a cosine. Received: d_model=7. Choose 8."
        with pytest.raises(ValueError, match=expected):
            PositionalEncoding(7)

    def test_another_width_is_refused_when_the_layer_is_built(self):
        expected = r"PositionalEncoding takes inputs of width d_model=4. Received: inputs of shape \(None, None, 6\)"
        with pytest.raises(ValueError, match=expected):
            PositionalEncoding(4).build((None, None, 6))


def timing_signal(length: int, d_model: int, first: int) -> np.ndarray:
    """The sinusoids of tensor2tensor (`get_timing_signal_1d`) and OpenNMT-tf, of which fairseq has the same."""
    half = d_model // 2
    rates = [math.exp(-i * math.log(10000) / (half - 1)) for i in range(half)]
    angles = [[(first + row) * rate for rate in rates] for row in range(length)]
    return np.array([[*map(math.sin, row), *map(math.cos, row)] for row in angles])


class TestHalvedPositionalEncoding:
    def test_contract(self):
        inputs = {"inputs": np.random.default_rng(0).normal(size=(B, T, D)).astype("float32")}
        kwargs = {"d_model": D, "max_wavelength": 500.0, "first_position": 2}
        assert_layer_contract(HalvedPositionalEncoding, kwargs, inputs, num_parameters=0)

    def test_the_sines_of_the_paper_come_first(self):
        table = ops.convert_to_numpy(HalvedPositionalEncoding(D).table(T, offset=3))
        expected = oracles.sinusoids(T, D, offset=3)
        np.testing.assert_allclose(table[:, : D // 2], expected[:, ::2], atol=6e-7)
        np.testing.assert_allclose(table[:, D // 2 :], expected[:, 1::2], atol=6e-7)

    @pytest.mark.parametrize("first", [1, 2], ids=["OpenNMT-tf", "M2M100"])
    def test_the_last_wavelength_and_the_first_position_of_others(self, first):
        layer = HalvedPositionalEncoding(D, max_wavelength=10000 ** (D / (D - 2)), first_position=first)
        expected = timing_signal(101, D, first)
        np.testing.assert_allclose(layer.table(101), expected, atol=1e-6)
        np.testing.assert_allclose(layer.table(1, offset=70), expected[70:71], atol=1e-6)


class TestLearnedPositionalEncoding:
    def test_contract(self):
        inputs = {"inputs": np.random.default_rng(0).normal(size=(B, T, D)).astype("float32")}
        kwargs = {"max_length": 13, "d_model": D}
        assert_layer_contract(LearnedPositionalEncoding, kwargs, inputs, num_parameters=13 * D)

    def test_adds_one_row_a_position(self):
        layer = LearnedPositionalEncoding(3, 2)
        layer.build((None, None, 2))
        layer.embeddings.assign([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        inputs = np.full((2, 2, 2), 10.0, "float32")
        np.testing.assert_array_equal(layer(inputs), [[[11, 12], [13, 14]]] * 2)
        np.testing.assert_array_equal(layer(inputs, offset=1), [[[13, 14], [15, 16]]] * 2)

    def test_an_offset_past_the_end_keeps_the_last_row(self):
        layer = LearnedPositionalEncoding(2, 1)
        layer.build((None, None, 1))
        layer.embeddings.assign([[1.0], [2.0]])
        inputs = np.zeros((1, 1, 1), "float32")
        np.testing.assert_array_equal(layer(inputs, offset=ops.convert_to_tensor(9, "int32")), [[[2.0]]])

    def test_too_long_is_refused(self):
        layer = LearnedPositionalEncoding(5, D)
        expected = "end at max_length=5. Received: 7 positions. Build the layer with a larger max_length"
        with pytest.raises(ValueError, match=expected):
            layer(np.zeros((B, 7, D), "float32"))
