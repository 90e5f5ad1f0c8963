"""Keys and values of the positions that a search has decoded so far.

Shape letters: B batch (sentences), R rows per sentence (1, or the beam size), N = B x R rows, H heads,
G heads of keys and values (H, or a divisor of H), K size of a head, T positions that a cache has room for, S keys,
D model size.
"""

import dataclasses
from typing import NamedTuple, Self

from keras import ops

from kformer.indexing import take_rows
from kformer.layers.attention import MultiHeadAttention
from kformer.layers.scaled_dot_product import scaled_dot_product_attention
from kformer.layers.tensors import KeysValues, Rotation, ScoreBias, Tensor


class RowOrder(NamedTuple):
    """Indices that convert between two orders of the B x R x H head vectors at one position.

    The first order is by row and head: the projections give the vectors in it, and caches are written in it. The second
    order is by head and row: attention needs it. Gathering whole vectors by an index that is computed once is faster
    than transposing. Caches hold G heads.

    Examples:
        >>> order = row_order(batch_size=1, num_heads=2, rows=3)
        >>> order.rows, np.asarray(order.row).tolist()
        (3, [0, 0, 1, 1, 2, 2])
    """

    sentence_and_head: Tensor  # (N x G,) int32, in the first order: number of the sentence x G + number of the head
    row: Tensor  # (N x G,) int32, in the first order: number of the row in its sentence
    by_head: Tensor  # (N x H,) int32: vectors[by_head] are in the second order, if vectors are in the first
    by_row: Tensor  # (N x H,) int32: vectors[by_row] are in the first order, if vectors are in the second
    batch_size: int | Tensor  # B
    num_heads: int  # H
    rows: int  # R
    key_value_heads: int  # G


def row_order(batch_size: int | Tensor, num_heads: int, rows: int, num_key_value_heads: int | None = None) -> RowOrder:
    """The order of the vectors of B sentences with R rows and H heads each. A search makes it once.

    `num_key_value_heads` is G; None: as many as `num_heads`.

    Examples:
        Rows 0 to 2 with the heads a and b, ordered by row and head, are reordered by head and row:

        >>> vectors = np.array(["0a", "0b", "1a", "1b", "2a", "2b"])
        >>> vectors[np.asarray(row_order(batch_size=1, num_heads=2, rows=3).by_head)].tolist()
        ['0a', '1a', '2a', '0b', '1b', '2b']
    """
    number, sentence, row, head = _numbered(batch_size, rows, num_heads)
    second_row, second_head = number % rows, number // rows % num_heads
    written = num_heads if num_key_value_heads is None else num_key_value_heads
    _, written_sentence, written_row, written_head = _numbered(batch_size, rows, written)
    return RowOrder(
        sentence_and_head=written_sentence * written + written_head,
        row=written_row,
        by_head=(sentence * rows + second_row) * num_heads + second_head,
        by_row=(sentence * num_heads + head) * rows + row,
        batch_size=batch_size,
        num_heads=num_heads,
        rows=rows,
        key_value_heads=written,
    )


def _numbered(batch_size: int | Tensor, rows: int, num_heads: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The number of each of the B x R x H vectors in the first order, and those of its sentence, row and head."""
    number = ops.arange(batch_size * rows * num_heads, dtype="int32")
    return number, number // (rows * num_heads), number // num_heads % rows, number % num_heads


@dataclasses.dataclass(frozen=True)
class Cache:
    """Keys and values of one attention layer. A cache is immutable: `write` and `keep` return a new one.

    All rows of a sentence share one list of keys. The key of row r at position t has the index t x R + r. A mask limits
    each row to its own history. So a search that reorders its rows changes only that mask.

    The caller who starts a search chooses the class. Subclasses may keep and read the keys in another way.

    Args:
        key: (B x G x S, K) floats, S = T x R; or (B, G, S, K) floats of a source, which is never written to.
        value: As `key`.
        num_keys: S.
        order: The order of the rows and heads.

    Examples:
        >>> cache = Cache.empty(room=3, head_dim=2, dtype="float32", order=row_order(batch_size=1, num_heads=1, rows=1))
        >>> cache = cache.write(key=np.ones((1, 2)), value=np.array([[5.0, 7.0]]), place=cache.place(position=1))
        >>> np.asarray(cache.value).tolist()
        [[0.0, 0.0], [5.0, 7.0], [0.0, 0.0]]
    """

    key: Tensor
    value: Tensor
    num_keys: int | Tensor
    order: RowOrder

    @classmethod
    def empty(cls, room: int | Tensor, head_dim: int, dtype: str, order: RowOrder) -> Self:
        """A cache with room for T positions and nothing written."""
        num_keys = room * order.rows
        shape = (order.batch_size * order.key_value_heads * num_keys, head_dim)
        return cls(cls.zeros(shape, dtype), cls.zeros(shape, dtype), num_keys, order)

    @classmethod
    def holding(cls, keys_values: KeysValues, positions: Tensor, order: RowOrder) -> Self:
        """A cache that holds keys and values which were computed at once; all rows of a sentence begin with them.

        Args:
            keys_values: (B, G, P, K) floats of the first P positions.
            positions: (T,) int32, which position each place of the cache keeps, as from `Reach.kept_positions`. Places
                for later positions, P or more, are free.
            order: The order of the rows and heads.
        """
        last = ops.shape(keys_values.key)[2] - 1

        def laid(tensor: Tensor) -> Tensor:
            by_place = ops.take(tensor, ops.minimum(positions, last), axis=2)  # (B, G, T, K)
            by_row = by_place if order.rows == 1 else ops.repeat(by_place, order.rows, axis=2)  # (B, G, S, K)
            return ops.reshape(by_row, (-1, tensor.shape[-1]))

        return cls(laid(keys_values.key), laid(keys_values.value), ops.shape(positions)[0] * order.rows, order)

    @staticmethod
    def source_layout(keys_values: KeysValues) -> KeysValues:
        """Keys and values (B, G, S, K) of a source, as a search keeps them; a subclass may change their layout."""
        return keys_values

    @classmethod
    def of_source(cls, keys_values: KeysValues, order: RowOrder) -> "Cache":
        """A cache of the result of `source_layout`. All rows of a sentence attend to it; it is never written to."""
        return cls(*keys_values, ops.shape(keys_values.key)[2], order)

    @classmethod
    def of_history(cls, tensors: KeysValues, room: int | Tensor, order: RowOrder) -> Self:
        """A cache made of the `tensors` of another cache, which has room for `room` positions."""
        return cls(tensors.key, tensors.value, room * order.rows, order)

    @property
    def room(self) -> int | Tensor:
        """T, how many positions the cache has room for."""
        return self.num_keys // self.order.rows

    @property
    def tensors(self) -> KeysValues:
        """The tensors that a loop passes from step to step."""
        return KeysValues(self.key, self.value)

    def place(self, position: int | Tensor) -> Tensor:
        """Where a position is stored: (N x G,) int32 row indices of `key`, the same in all caches of equal size."""
        return self.order.sentence_and_head * self.num_keys + (position * self.order.rows + self.order.row)

    def write(self, key: Tensor, value: Tensor, place: Tensor) -> Self:
        """The cache with one more position: keys and values (N x G, K) at the rows that `place` gives."""
        return dataclasses.replace(
            self, key=self.scatter(self.key, place, key), value=self.scatter(self.value, place, value)
        )

    def attend(
        self, query: Tensor, attention_mask: Tensor | None = None, score_bias: ScoreBias | None = None
    ) -> Tensor:
        """Attends from one position of every row.

        Args:
            query: (N x H, K) floats, ordered by row and head.
            attention_mask: Booleans that broadcast to (B, H, R, S), True where a row may attend.
            score_bias: Floats that broadcast to (B, H, R, T), added to the scores of each position; or a function that
                computes them from the queries (B, H, R, K).

        Returns:
            (N x H, K) floats in the same order.
        """
        order, head_dim = self.order, query.shape[-1]
        if order.rows > 1:  # With one row both orders are the same.
            query = take_rows(query, order.by_head)
        query = ops.reshape(query, (-1, order.num_heads, order.rows, head_dim))  # (B, H, R, K)
        if callable(score_bias):
            score_bias = score_bias(query)
        if score_bias is not None:
            score_bias = ops.repeat(score_bias, order.rows, axis=-1)
        heads = self.attention(query, self._by_head(self.key), self._by_head(self.value), attention_mask, score_bias)
        heads = ops.reshape(heads, (-1, head_dim))  # (N x H, K)
        return heads if order.rows == 1 else take_rows(heads, order.by_row)

    def keep(self, sentences: Tensor, room: int | Tensor) -> KeysValues:
        """The tensors of the sentences that go on, with room for more positions.

        It needs a backend whose shapes may change in a loop: TensorFlow without XLA.

        Args:
            sentences: The numbers of these sentences, from 0 to B - 1.
            room: Number of positions, at least the present room.
        """
        missing = room * self.order.rows - self.num_keys

        def kept(tensor: Tensor) -> Tensor:
            by_head = take_rows(self._by_head(tensor), sentences)  # (B, G, S, K)
            padded = ops.pad(by_head, [[0, 0], [0, 0], [0, missing], [0, 0]])
            return ops.reshape(padded, (-1, tensor.shape[-1]))

        return KeysValues(kept(self.key), kept(self.value))

    def _by_head(self, tensor: Tensor) -> Tensor:
        """(B, G, S, K)."""
        if len(tensor.shape) == 4:
            return tensor
        return ops.reshape(tensor, (self.order.batch_size, self.order.key_value_heads, self.num_keys, tensor.shape[-1]))

    @staticmethod
    def zeros(shape: tuple, dtype: str) -> Tensor:
        """The zeros that a new cache begins with."""
        return ops.zeros(shape, dtype)

    @staticmethod
    def scatter(tensor: Tensor, place: Tensor, update: Tensor) -> Tensor:
        """`tensor` (M, K) with the rows `place` (n,) replaced by those of `update` (n, K).

        It does not use `slice_update`, which would add an XLA operation to TensorFlow graphs.
        """
        return ops.scatter_update(tensor, ops.expand_dims(place, 1), update)

    @staticmethod
    def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
        """Computes `scaled_dot_product_attention`. A subclass may compute it in another way."""
        return scaled_dot_product_attention(query, key, value, mask, bias)


def self_attention_step(
    layer: MultiHeadAttention,
    inputs: Tensor,
    cache: Cache,
    place: Tensor,
    attention_mask: Tensor | None = None,
    score_bias: ScoreBias | None = None,
    rotation: Rotation | None = None,
) -> tuple[Tensor, Cache]:
    """Writes one position of every row into the cache, and computes self-attention from this position.

    Args:
        layer: A self-attention layer.
        inputs: (N, D) floats, with the rows of a sentence next to each other.
        cache: The layer's cache after the previous position.
        place: From `Cache.place`.
        attention_mask, score_bias: As in `Cache.attend`.
        rotation: As in `MultiHeadAttention.call`, for this position.

    Returns:
        (N, D) floats, those of `MultiHeadAttention.call` at this position, and the new cache.
    """
    query, key, value = layer.project(inputs)
    cache = cache.write(_heads(layer, key, rotation), _heads(layer, value), place)
    return _attended(layer, _heads(layer, query, rotation), cache, attention_mask, score_bias), cache


def attend_step(
    layer: MultiHeadAttention,
    inputs: Tensor,
    cache: Cache,
    attention_mask: Tensor | None = None,
    score_bias: ScoreBias | None = None,
) -> Tensor:
    """Computes attention from one position of every row to a cache, without writing to it.

    Args:
        layer: An attention layer.
        inputs: (N, D) floats, with the rows of a sentence next to each other.
        cache: The keys and values to attend to, such as those of a source from `Cache.of_source`.
        attention_mask, score_bias: As in `Cache.attend`.

    Returns:
        (N, D) floats.
    """
    return _attended(layer, _heads(layer, layer.query_projection(inputs)), cache, attention_mask, score_bias)


def _attended(
    layer: MultiHeadAttention,
    query: Tensor,
    cache: Cache,
    attention_mask: Tensor | None,
    score_bias: ScoreBias | None = None,
) -> Tensor:
    heads = cache.attend(query, attention_mask, score_bias)
    return layer.output_projection(ops.reshape(heads, (-1, layer.num_heads * layer.head_dim)))


def _heads(layer: MultiHeadAttention, tensor: Tensor, rotation: Rotation | None = None) -> Tensor:
    """Splits (N, D) at one position into heads (N x H or G, K), ordered by row and head, and applies the rotation."""
    heads = ops.reshape(tensor, (-1, layer.head_dim))
    if rotation is None:
        return heads
    return ops.squeeze(rotation(ops.expand_dims(heads, 1)), 1)  # (N x H, 1, K): T is 1
