import numpy as np
import pytest
from keras import ops

from kformer.layers import causal_mask, padding_mask, step_mask


def drawn(*rows: str) -> np.ndarray:
    """A mask from a picture: x may be attended to, . may not."""
    return np.array([[symbol == "x" for symbol in row] for row in rows])


def test_padding_mask_hides_the_pad_id():
    mask = padding_mask(np.array([[5, 3, 0, 0], [7, 0, 8, 1]], "int32"))
    assert mask.shape == (2, 1, 1, 4)
    np.testing.assert_array_equal(mask[:, 0, 0], drawn("xx..", "x.xx"))


def test_padding_mask_takes_another_pad_id():
    mask = padding_mask(np.array([[5, 3, 0]], "int32"), pad_id=3)
    np.testing.assert_array_equal(mask[:, 0, 0], drawn("x.x"))


def test_causal_mask_shows_each_query_itself_and_the_past():
    mask = causal_mask(5)
    assert mask.shape == (1, 1, 5, 5)
    np.testing.assert_array_equal(mask[0, 0], drawn("x....", "xx...", "xxx..", "xxxx.", "xxxxx"))


def test_masks_are_booleans():
    for mask in (padding_mask(np.array([[1, 0]])), causal_mask(2), step_mask(0, 2)):
        assert ops.convert_to_numpy(mask).dtype == bool


def test_a_causal_and_a_padding_mask_combine():
    both = ops.logical_and(causal_mask(3), padding_mask(np.array([[4, 0, 6]], "int32")))
    np.testing.assert_array_equal(both[0, 0], drawn("x..", "x..", "x.x"))


@pytest.mark.parametrize("position", range(5))
def test_step_mask_is_a_row_of_the_causal_mask(position):
    mask = step_mask(position, 5)
    assert mask.shape == (1, 1, 1, 5)
    np.testing.assert_array_equal(mask[0, 0, 0], causal_mask(5)[0, 0, position])


def test_step_mask_takes_tensors():
    mask = step_mask(ops.convert_to_tensor(1, "int32"), ops.convert_to_tensor(3, "int32"))
    np.testing.assert_array_equal(mask[0, 0], drawn("xx."))
