"""Keys and values of the positions that a search has decoded so far.

Shape letters: B batch (sentences), R rows per sentence (1, or the beam size), N = B x R rows, k positions of a step,
Q = R x k queries of a sentence, M = B x Q, H heads, G heads of keys and values (H, or a divisor of H), K size of a
head, T positions that a cache has room for, S keys, D model size.
"""

import dataclasses
from typing import Self

from keras import ops

from kformer.indexing import take_rows
from kformer.layers.attention import MultiHeadAttention
from kformer.layers.head_order import HeadOrder
from kformer.layers.relative_attention import RelativeBias, own_bias
from kformer.layers.scaled_dot_product import scaled_dot_product_attention
from kformer.layers.tensors import KeysValues, Rotation, ScoreBias, Tensor, rank


@dataclasses.dataclass(frozen=True)
class Cache:
    """Keys and values of one attention layer. A cache is immutable: `write` and `keep` return a new one.

    All rows of a sentence share one list of keys. The key of row r at position t has the index t x R + r. A mask limits
    each row to its own history. So a search that reorders its rows changes only that mask, by `reorder_rows` of
    `kformer.models.stepwise`.

    The caller who starts a search chooses the class. Subclasses may keep and read the keys in another way.

    Args:
        key: (B x G x S, K) floats, S = T x R; or (B, G, S, K) floats of a source, which is never written to.
        value: As `key`.
        num_keys: S.
        order: The order of the rows and heads.

    Examples:
        >>> order = head_order(batch_size=1, num_heads=1, rows=1)
        >>> cache = Cache.empty(room=3, head_dim=2, dtype="float32", order=order)
        >>> cache = cache.write(key=np.ones((1, 2)), value=np.array([[5.0, 7.0]]), place=cache.place(slot=1))
        >>> np.asarray(cache.value).tolist()
        [[0.0, 0.0], [5.0, 7.0], [0.0, 0.0]]
    """

    key: Tensor
    value: Tensor
    num_keys: int | Tensor
    order: HeadOrder

    @classmethod
    def empty(cls, room: int | Tensor, head_dim: int, dtype: str, order: HeadOrder) -> Self:
        """A cache with room for T positions and nothing written."""
        num_keys = room * order.rows
        shape = (order.batch_size * order.key_value_heads * num_keys, head_dim)
        return cls(cls.zeros(shape, dtype), cls.zeros(shape, dtype), num_keys, order)

    @classmethod
    def holding(cls, read: KeysValues, positions: Tensor, order: HeadOrder) -> Self:
        """A cache whose rows all begin with what one row of each sentence has read.

        Args:
            read: The tensors of a cache for one row of each sentence, which has the first P positions.
            positions: (T,) int32, which position each place of the new cache keeps, as from `Reach.kept_positions`.
                Places for later positions, P or more, are free.
            order: The order of the rows and heads.
        """

        def laid(tensor: Tensor) -> Tensor:
            by_head = ops.reshape(tensor, (order.batch_size, order.key_value_heads, -1, tensor.shape[-1]))
            last = ops.shape(by_head)[2] - 1
            by_place = ops.take(by_head, ops.minimum(positions, last), axis=2)  # (B, G, T, K)
            by_row = by_place if order.rows == 1 else ops.repeat(by_place, order.rows, axis=2)  # (B, G, S, K)
            return ops.reshape(by_row, (-1, tensor.shape[-1]))

        return cls(laid(read.key), laid(read.value), ops.shape(positions)[0] * order.rows, order)

    @staticmethod
    def source_layout(keys_values: KeysValues) -> KeysValues:
        """Keys and values (B, G, S, K) of a source, as a search keeps them; a subclass may change their layout."""
        return keys_values

    @staticmethod
    def mask_form(mask: Tensor) -> Tensor:
        """A mask of booleans as `attend` takes it; a search makes it once for all layers. A subclass may change it."""
        return mask

    @classmethod
    def of_source(cls, keys_values: KeysValues, order: HeadOrder) -> "Cache":
        """A cache of the result of `source_layout`. All rows of a sentence attend to it; it is never written to."""
        return cls(*keys_values, ops.shape(keys_values.key)[2], order)

    @classmethod
    def of_history(cls, tensors: KeysValues, num_keys: int | Tensor, order: HeadOrder) -> Self:
        """A cache made of the `tensors` of another cache, which has so many keys."""
        return cls(tensors.key, tensors.value, num_keys, order)

    @property
    def room(self) -> int | Tensor:
        """T, how many positions the cache has room for."""
        # A step starts no operation for 1: no graph rewrite would take it out of an export's loop.
        return self.num_keys if self.order.rows == 1 else self.num_keys // self.order.rows

    @property
    def tensors(self) -> KeysValues:
        """The tensors that a loop passes from step to step."""
        return KeysValues(self.key, self.value)

    def in_order(self, order: HeadOrder) -> Self:
        """The same cache for steps over another number of positions."""
        return dataclasses.replace(self, order=order)

    def place(self, slot: int | Tensor) -> Tensor:
        """Where positions are stored: (M x G,) int32 row indices of `key`, the same in all caches of equal size.

        `slot` is a number below T: () for all queries, or (Q,) or (B, Q) for each.
        """
        order = self.order
        first = slot if order.rows == 1 else slot * order.rows
        if rank(slot):
            first = ops.expand_dims(first, -1) + ops.reshape(order.row, (-1, order.queries, order.key_value_heads))
            return order.sentence_and_head * self.num_keys + ops.reshape(first, (-1,))
        return order.sentence_and_head * self.num_keys + (first + order.row)

    def write(self, key: Tensor, value: Tensor, place: Tensor) -> Self:
        """The cache with keys and values (M x G, K) of further positions at the rows that `place` gives."""
        return dataclasses.replace(
            self, key=self.scatter(self.key, place, key), value=self.scatter(self.value, place, value)
        )

    def attend(
        self, query: Tensor, attention_mask: Tensor | None = None, score_bias: ScoreBias | None = None
    ) -> Tensor:
        """Attends from the positions of a step.

        Args:
            query: (M, H x K) or (M x H, K) floats, ordered by query and head.
            attention_mask: Which keys each query may attend to, in `mask_form`: that of booleans that broadcast to
                (B, H, Q, S).
            score_bias: Floats that broadcast to (B, H, Q, T), added to the scores of each position; or a function that
                computes them from the queries (B, H, Q, K).

        Returns:
            (M, H x K) floats in the same order.
        """
        order, head_dim = self.order, self.value.shape[-1]
        if not order.has_one_query:
            query = take_rows(ops.reshape(query, (-1, head_dim)), order.by_head)
        query = ops.reshape(query, (-1, order.num_heads, order.queries, head_dim))  # (B, H, Q, K)
        if isinstance(score_bias, RelativeBias):
            score_bias = score_bias.repeated(order.rows)
        elif score_bias is not None:
            bias = score_bias(query) if callable(score_bias) else score_bias
            score_bias = ops.repeat(bias, order.rows, axis=-1)
        heads = self.attention(query, self._by_head(self.key), self._by_head(self.value), attention_mask, score_bias)
        if not order.has_one_query:
            heads = take_rows(ops.reshape(heads, (-1, head_dim)), order.by_row)
        return ops.reshape(heads, (-1, order.num_heads * head_dim))

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
    def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, bias: ScoreBias | None) -> Tensor:
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
    """Writes the positions of a step into the cache, and computes self-attention from them.

    Args:
        layer: A self-attention layer.
        inputs: (M, D) floats, with the queries of a sentence next to each other.
        cache: The layer's cache after the previous positions, in the order of this step.
        place: From `Cache.place`.
        attention_mask, score_bias: As in `Cache.attend`.
        rotation: Rotates the heads (M x H or G, K), ordered by query and head.

    Returns:
        (M, D) floats, those of `MultiHeadAttention.call` at these positions, and the new cache.
    """
    query, key, value = layer.project(inputs)
    cache = cache.write(_heads(layer, key, rotation), _heads(layer, value), place)
    if rotation is not None:
        query = _heads(layer, query, rotation)
    attended = cache.attend(query, attention_mask, own_bias(score_bias, layer.relative))
    return layer.output_projection(attended), cache


def attend_step(
    layer: MultiHeadAttention,
    inputs: Tensor,
    cache: Cache,
    attention_mask: Tensor | None = None,
    score_bias: ScoreBias | None = None,
) -> Tensor:
    """Computes attention from the positions of a step to a cache, without writing to it.

    Args:
        layer: An attention layer.
        inputs: (M, D) floats, with the queries of a sentence next to each other.
        cache: The keys and values to attend to, such as those of a source from `Cache.of_source`.
        attention_mask, score_bias: As in `Cache.attend`.

    Returns:
        (M, D) floats.
    """
    return layer.output_projection(cache.attend(layer.query_projection(inputs), attention_mask, score_bias))


def _heads(layer: MultiHeadAttention, tensor: Tensor, rotation: Rotation | None = None) -> Tensor:
    """Splits (M, D) into heads (M x H or G, K), ordered by query and head, and applies the rotation."""
    heads = ops.reshape(tensor, (-1, layer.head_dim))
    return heads if rotation is None else rotation(heads)
