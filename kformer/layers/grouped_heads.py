"""Products of query heads that share keys and values (grouped-query and multi-query attention).

Shape letters: B batch, T queries, H heads, G heads of keys and values, N and M any two sizes.
"""

from keras import ops

from kformer.layers.tensors import Tensor


def product_by_head(rows: Tensor, matrix: Tensor) -> Tensor:
    """(B, H, T, N) times (B, G, N, M): (B, H, T, M). H / G neighbouring heads share each of the G matrices.

    The rows of these heads are put together for one product, so that no matrix is copied.
    """
    heads, groups = rows.shape[1], matrix.shape[1]
    if heads == groups:
        return ops.matmul(rows, matrix)
    batch_size, _, length, width = ops.shape(rows)
    together = ops.reshape(rows, (batch_size, groups, heads // groups * length, width))
    products = ops.matmul(together, matrix)  # (B, G, H / G x T, M)
    return ops.reshape(products, (batch_size, heads, length, ops.shape(matrix)[-1]))
