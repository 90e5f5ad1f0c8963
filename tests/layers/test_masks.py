import numpy as np
import pytest
from keras import ops

from kformer.layers import MultiHeadAttention, ancestry_mask, causal_mask, padding_mask


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
    for mask in (padding_mask(np.array([[1, 0]])), causal_mask(2), ancestry_mask(np.array([[0, -1]]), 1)):
        assert ops.convert_to_numpy(mask).dtype == bool


@pytest.mark.parametrize(
    ("mask", "received"),
    [
        (np.ones((2, 5, 5), bool), r"Received: shape \(2, 5, 5\) and dtype bool"),  # Keras's own layer takes it
        (np.ones((5, 5), bool), r"Received: shape \(5, 5\) and dtype bool"),
        (np.ones((2, 1, 5, 5), "int32"), r"Received: shape \(2, 1, 5, 5\) and dtype int32"),
        (np.zeros((2, 1, 5, 5), "float32"), r"Received: shape \(2, 1, 5, 5\) and dtype float32"),
    ],
)
def test_a_mask_that_could_be_misread_is_refused(mask, received):
    """With as many sentences as heads, (B, T, S) would broadcast as (H, T, S) without an error."""
    layer, inputs = MultiHeadAttention(d_model=6, num_heads=2), np.ones((2, 5, 6), "float32")
    message = rf"booleans and broadcasts to \(batch, heads, queries, keys\). {received}. For a mask of keys"
    with pytest.raises(ValueError, match=message):
        layer(inputs, attention_mask=ops.convert_to_tensor(mask))


def test_a_causal_and_a_padding_mask_combine():
    both = ops.logical_and(causal_mask(3), padding_mask(np.array([[4, 0, 6]], "int32")))
    np.testing.assert_array_equal(both[0, 0], drawn("x..", "x..", "x.x"))


def test_with_one_row_ancestry_masks_are_the_rows_of_the_causal_mask():
    for position in range(5):
        written = np.where(np.arange(5) <= position, 0, -1)
        mask = ancestry_mask(written[None], rows=1)
        assert mask.shape == (1, 1, 1, 5)
        np.testing.assert_array_equal(mask[0, 0, 0], causal_mask(5)[0, 0, position])


def test_ancestry_mask_shows_each_row_the_keys_of_its_own_history():
    # The second row went on from the first one after one position, and the first from the second after two.
    ancestors = np.array([[0, 1, 0, -1], [0, 1, 1, -1], [0, -1, -1, -1], [1, -1, -1, -1]])
    mask = ancestry_mask(ancestors, rows=2)
    assert mask.shape == (2, 1, 2, 8)
    # Keys lie position by position, in each the two rows side by side.
    np.testing.assert_array_equal(mask[0, 0], drawn("x..xx...", "x..x.x.."))
    np.testing.assert_array_equal(mask[1, 0], drawn("x.......", ".x......"))


def test_ancestry_mask_takes_tensors():
    mask = ancestry_mask(ops.convert_to_tensor([[0, 0, -1]], "int32"), rows=1)
    np.testing.assert_array_equal(mask[0, 0], drawn("xx."))
