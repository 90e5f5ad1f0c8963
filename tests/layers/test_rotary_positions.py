"""Rotary positions against complex numbers in NumPy.

Shape letters: B batch, H heads, T positions, K size of a head.
"""

import keras
import numpy as np
import pytest
from keras import ops

from kformer.layers import RotaryPositions

B, H, T, K = 2, 3, 5, 4


def numbers(tensor):
    return keras.ops.convert_to_numpy(tensor)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


@pytest.mark.parametrize("max_wavelength", [10000.0, 500000.0])
def test_rotary_positions_multiply_pairs_as_complex_numbers(max_wavelength):
    # Su et al. (2021), section 3.2.1: (x_1 + i x_2) exp(i m theta).
    positions, heads = RotaryPositions(K, max_wavelength), normal(B, H, T, K)
    positions = RotaryPositions.from_config(positions.get_config())
    angles = np.outer(np.arange(3, 3 + T), max_wavelength ** (-np.arange(0, K, 2) / K))  # (T, K / 2)
    turned = (heads[..., ::2] + 1j * heads[..., 1::2]) * np.exp(1j * angles)
    expected = np.stack([turned.real, turned.imag], axis=-1).reshape(heads.shape)
    np.testing.assert_allclose(numbers(positions.rotate(heads, positions.table(T, offset=3))), expected, atol=1e-5)


def test_rotary_positions_keep_the_dtype_and_refuse_half_a_pair():
    positions = RotaryPositions(K)
    heads = ops.cast(normal(B, H, T, K), "bfloat16")
    assert keras.backend.standardize_dtype(positions.rotate(heads, positions.table(T)).dtype) == "bfloat16"
    with pytest.raises(ValueError, match="head_dim must be even: .* Received: head_dim=5. Choose 6."):
        RotaryPositions(5)
