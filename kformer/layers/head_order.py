"""The two orders in which the vectors of a step of a search lie: by query and head, or by head and query.

A search that reorders its rows uses `kformer.models.stepwise.reorder_rows`; nothing here moves then.

Shape letters: B batch (sentences), R rows per sentence (1, or the beam size), N = B x R rows, k positions of a step,
Q = R x k queries of a sentence, M = B x Q, H heads, G heads of keys and values (H, or a divisor of H).
"""

from typing import NamedTuple

from keras import ops

from kformer.layers.tensors import Tensor, rank


class HeadOrder(NamedTuple):
    """Indices that convert between two orders of the B x Q x H head vectors of a step, the queries.

    The first order is by query and head: the projections give the vectors in it, and caches are written in it. The
    queries of a sentence stand in the order of their rows and positions. The second order is by head and query:
    attention needs it. Gathering whole vectors by an index that is computed once is faster than transposing. Caches
    hold G heads.

    Examples:
        >>> order = head_order(batch_size=1, num_heads=2, rows=3)
        >>> order.rows, np.asarray(order.row).tolist()
        (3, [0, 0, 1, 1, 2, 2])
    """

    sentence_and_head: Tensor  # (M x G,) int32, in the first order: number of the sentence x G + number of the head
    row: Tensor  # (M x G,) int32, in the first order: number of the row in its sentence
    by_head: Tensor  # (M x H,) int32: vectors[by_head] are in the second order, if vectors are in the first
    by_row: Tensor  # (M x H,) int32: vectors[by_row] are in the first order, if vectors are in the second
    batch_size: int | Tensor  # B
    num_heads: int  # H
    rows: int  # R
    key_value_heads: int  # G
    length: int | Tensor  # k

    @property
    def queries(self) -> int | Tensor:
        """Q."""
        return self.rows * self.length

    @property
    def has_one_query(self) -> bool:
        """Whether both orders are the same, because a sentence is known to have a single query."""
        return isinstance(self.queries, int) and self.queries == 1

    def of_length(self, length: int | Tensor) -> "HeadOrder":
        """The order of a step over `length` positions."""
        return head_order(self.batch_size, self.num_heads, self.rows, self.key_value_heads, length)


def head_order(
    batch_size: int | Tensor,
    num_heads: int,
    rows: int,
    num_key_value_heads: int | None = None,
    length: int | Tensor = 1,
) -> HeadOrder:
    """The order of the vectors of B sentences with R rows, k positions and H heads each. A search makes it once.

    `num_key_value_heads` is G; None: as many as `num_heads`. `length` is k.

    Examples:
        Rows 0 to 2 with the heads a and b, ordered by row and head, are reordered by head and row:

        >>> vectors = np.array(["0a", "0b", "1a", "1b", "2a", "2b"])
        >>> vectors[np.asarray(head_order(batch_size=1, num_heads=2, rows=3).by_head)].tolist()
        ['0a', '1a', '2a', '0b', '1b', '2b']
    """
    queries = rows * length
    numbered = number, sentence, query, head = _numbered(batch_size, queries, num_heads)
    second_query, second_head = number % queries, number // queries % num_heads
    written = num_heads if num_key_value_heads is None else num_key_value_heads
    of_written = numbered if written == num_heads else _numbered(batch_size, queries, written)
    _, written_sentence, written_query, written_head = of_written
    return HeadOrder(
        sentence_and_head=written_sentence * written + written_head,
        row=written_query // length,
        by_head=(sentence * queries + second_query) * num_heads + second_head,
        by_row=(sentence * num_heads + head) * queries + query,
        batch_size=batch_size,
        num_heads=num_heads,
        rows=rows,
        key_value_heads=written,
        length=length,
    )


def _numbered(batch_size: int | Tensor, queries: int | Tensor, num_heads: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The number of each of the B x Q x H vectors in the first order, and those of its sentence, query and head."""
    number = ops.arange(batch_size * queries * num_heads, dtype="int32")
    return number, number // (queries * num_heads), number // num_heads % queries, number % num_heads


def query_positions(first: int | Tensor, rows: int, length: int | Tensor) -> int | Tensor:
    """The positions of the queries of each sentence in a step over k positions.

    Args:
        first: () int32, the first position of all rows; or (N,) int32, of each row.
        rows: R.
        length: k.

    Returns:
        `first` itself if all rows have one position and it is the same; else (Q,) int32 for all sentences, or (B, Q).

    Examples:
        >>> np.asarray(query_positions(np.array([3, 5]), rows=2, length=3)).tolist()
        [[3, 4, 5, 5, 6, 7]]
    """
    if rank(first):
        each = ops.expand_dims(first, -1) + ops.arange(length, dtype="int32")  # (N, k)
        return ops.reshape(each, (-1, rows * length))
    if isinstance(length, int) and length == 1:
        return first
    return ops.tile(first + ops.arange(length, dtype="int32"), (rows,))
