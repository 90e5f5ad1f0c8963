import numpy as np
import pytest
from keras import ops

from kformer.layers import MultiHeadAttention, causal_mask, padding_mask


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
    for mask in (padding_mask(np.array([[1, 0]])), causal_mask(2)):
        assert ops.convert_to_numpy(mask).dtype == bool


@pytest.mark.parametrize("shape", [(5, 7), (1, 7), (2, 5, 7), (2, 1, 7)], ids=str)
@pytest.mark.parametrize("dtype", ["bool", "int32"])
def test_masks_of_two_and_three_dimensions_mean_what_they_mean_to_keras(shape, dtype):
    """With as many sentences as heads, (B, T, S) would broadcast as (H, T, S), too."""
    layer, random = MultiHeadAttention(d_model=6, num_heads=2), np.random.default_rng(0)
    query, key = random.normal(size=(2, 5, 6)), random.normal(size=(2, 7, 6))
    mask = random.random(shape) < 0.7
    all_heads = mask[None, None] if len(shape) == 2 else mask[:, None]
    expected = layer(query, key, attention_mask=all_heads)
    np.testing.assert_array_equal(layer(query, key, attention_mask=mask.astype(dtype)), expected)
    scores = layer.attention_scores(query, key, attention_mask=mask.astype(dtype))
    assert (ops.convert_to_numpy(scores) > 0).tolist() == np.broadcast_to(all_heads, (2, 2, 5, 7)).tolist()


@pytest.mark.parametrize(
    ("mask", "received"),
    [
        (np.ones((2, 7), bool), r"Received: shape \(2, 7\) and dtype bool, for 5 queries and 7 keys. For a mask"),
        (np.ones((7,), bool), r"Received: shape \(7,\) and dtype bool"),
        (np.ones((2, 5, 6), bool), r"Received: shape \(2, 5, 6\) and dtype bool, for 5 queries and 7 keys"),
        (np.ones((2, 1, 4, 7), bool), r"Received: shape \(2, 1, 4, 7\) and dtype bool, for 5 queries and 7 keys"),
        (np.zeros((2, 1, 5, 7), "float32"), r"dtype float32, .* mask == 0 if the mask is to be added"),
        (
            np.full((5, 7), -10000, "int32"),
            r"dtype int32 with the value -10000, for 5 queries .* mask == 0 if the mask is to be",
        ),
    ],
)
def test_a_mask_that_could_be_misread_is_refused(mask, received):
    layer, query, key = MultiHeadAttention(d_model=6, num_heads=2), np.ones((2, 5, 6)), np.ones((2, 7, 6))
    with pytest.raises(ValueError, match=rf"An attention mask holds booleans, (.|\n)*{received}"):
        layer(query, key, attention_mask=ops.convert_to_tensor(mask))


def test_causal_mask_of_other_keys():
    np.testing.assert_array_equal(causal_mask(2, num_keys=4)[0, 0], drawn("x...", "xx.."))


def test_a_causal_and_a_padding_mask_combine():
    both = ops.logical_and(causal_mask(3), padding_mask(np.array([[4, 0, 6]], "int32")))
    np.testing.assert_array_equal(both[0, 0], drawn("x..", "x..", "x.x"))
