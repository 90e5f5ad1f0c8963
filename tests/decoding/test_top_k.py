import numpy as np
import pytest

from kformer.decoding.top_k import top_k


@pytest.mark.parametrize("vocab_size", [11, 997, 800, 4000])  # one block, a prime, and two that divide into blocks
def test_top_k_ranks_as_a_stable_sort_does(vocab_size):
    # Few different values, so that many are equal, within blocks and across.
    values = np.random.default_rng(5).integers(0, 40, (3, vocab_size)).astype("float32")
    values[0] = 0
    best, ids = top_k(values, 7)
    ranked = np.argsort(-values, axis=1, kind="stable")[:, :7]
    np.testing.assert_array_equal(ids, ranked)
    np.testing.assert_array_equal(best, np.take_along_axis(values, ranked, axis=1))


def test_of_equal_values_in_two_blocks_the_lower_id_comes_first():
    # 800 values are ranked in blocks of 50. The block that starts with 700 has the largest value, and one that is
    # equal to the value with the number 100.
    values = np.zeros((1, 800), "float32")
    values[0, [700, 701, 100]] = [2, 1, 1]
    best, ids = top_k(values, 4)
    np.testing.assert_array_equal(ids, [[700, 100, 701, 0]])
    np.testing.assert_array_equal(best, [[2, 1, 1, 0]])
