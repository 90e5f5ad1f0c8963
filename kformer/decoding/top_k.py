"""Finds the k largest of many values, faster than a backend does. Top-k sampling is in `sampling`.

Letters: N rows, V vocabulary.
"""

from typing import Any

from keras import ops

from kformer.indexing import take_columns


def top_k(values: Any, count: int) -> tuple[Any, Any]:
    """Computes `ops.top_k`, faster; the lower id comes first where two values are equal.

    V is divided into blocks. One fast pass finds the `count` blocks with the largest maxima. The largest values must
    be in these blocks, so only these are ranked.

    Args:
        values: (N, V) with a known V.
        count: int, at most V.

    Returns:
        (N, count) values, largest first, and (N, count) int32 ids.
    """
    size = _block_size(values.shape[-1], count)
    if size is None:
        best, ids = ops.top_k(values, count)
        return best, ops.cast(ids, "int32")
    number = values.shape[-1] // size
    blocks = ops.reshape(values, (-1, number, size))
    _, chosen = ops.top_k(ops.max(blocks, axis=-1), count)  # (N, count)
    # The blocks are sorted by their ids, because `ops.top_k` puts the first of equal values first. This way to sort has
    # half as many operations as `ops.sort`.
    chosen = -ops.top_k(-ops.cast(chosen, "int32"), count)[0]
    ranked = take_columns(blocks, chosen)  # (N, count, size)
    best, places = ops.top_k(ops.reshape(ranked, (-1, count * size)), count)
    places = ops.cast(places, "int32")
    return best, take_columns(chosen, places // size) * size + places % size


def _block_size(length: int, count: int) -> int | None:
    """The size of the blocks: the largest divisor of `length` from 8 to 64 that gives at least 4 x `count` blocks.

    None if there is no such divisor.
    """
    sizes = [size for size in range(8, 65) if length % size == 0 and length // size >= 4 * count]
    return max(sizes, default=None)
