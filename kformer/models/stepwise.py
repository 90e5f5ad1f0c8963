"""A Transformer as a `next_logits` closure, for the searches of `kformer.decoding`.

Shape letters: B sentences, R rows per sentence (the beam size of a search), N = B x R, k positions of a step,
S source length, T positions in a cache, V vocabulary, H heads, K size of a head.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from kformer.indexing import take_rows
from kformer.layers import Cache, HeadOrder, head_order
from kformer.layers.head_order import query_positions
from kformer.layers.tensors import KeysValues, Tensor, rank
from kformer.models import transformer


class Context(NamedTuple):
    """The values that stay the same while a batch of sentences is decoded."""

    memory: list[KeysValues]  # for every layer, the projected output of the encoder, in the cache's `source_layout`
    source_mask: Tensor  # (B, 1, 1, S) booleans
    room: int | Tensor  # number of positions that can be decoded; with a window, caches keep fewer


class History(NamedTuple):
    """The state of the positions decoded so far."""

    caches: list[KeysValues]  # for every step of the decoder's depth, the tensors of its cache
    # (N, T x R) booleans, which keys of its sentence each row attends to: those of its own history. () with one row per
    # sentence, which needs no record.
    seen: Any
    # () int32, the next position; or (N,) int32, the next position of each row. A search may lower (N,) positions by up
    # to k, to give up some of its last tokens.
    position: Tensor


@dataclasses.dataclass(frozen=True)
class StepwiseTransformer:
    """A Transformer that decodes position by position, as the searches of `kformer.decoding` need it.

    Args:
        model: From `build_transformer`, or another model with the same layer names.
        max_length: The largest number of positions.
        pad_id: Marks padding in sources.
        rows_per_source: R, hypotheses per sentence; row b x R + r belongs to sentence b.
        cache: The class that keeps keys and values. An export uses its own class.
        more_room: The largest number of positions by which full caches grow, at least `block`. Smaller caches double.
        block: The largest number of positions of a step, k.

    Examples:
        Vocabularies of nine tokens, and one layer each in encoder and decoder:

        >>> model = build_transformer(kformer.TransformerConfig(9, 9, 1, 1, d_model=8, d_ff=16, num_heads=2))
        >>> stepwise = StepwiseTransformer(model, max_length=4, rows_per_source=3)
        >>> context, history = stepwise.start(source=np.array([[5, 6, 2]]), room=4)
        >>> tuple(stepwise.begin(context)(np.array([1, 1, 1]), history)[0].shape)
        (3, 9)
    """

    model: keras.Model
    max_length: int | Tensor
    pad_id: int = 0
    rows_per_source: int = 1
    cache: type[Cache] = Cache
    more_room: int = 16
    block: int | Tensor = 1

    def start(self, source: Tensor, room: int | Tensor) -> tuple[Context, History]:
        """Encodes the source.

        Args:
            source: (B, S) int32 ids.
            room: Number of positions that the caches have room for at first, at least `block`.
        """
        memory, source_mask = self.encode(source)
        return Context(memory, source_mask, room), self.no_history(ops.shape(source)[0], room)

    def no_history(self, batch_size: int | Tensor, room: int | Tensor) -> History:
        """The history of B sentences before the first position, with room for as many positions."""
        order = self._order(batch_size)
        caches = [cache.tensors for cache in self._decoder.empty_caches(self.cache, room, order, self.block)]
        seen: Any = ()
        if self.rows_per_source > 1:
            keys = self._kept(room) * self.rows_per_source
            seen = ops.zeros((batch_size * self.rows_per_source, keys), dtype="bool")
        return History(caches, seen, ops.convert_to_tensor(0, "int32"))

    def encode(self, source: Tensor) -> tuple[list[KeysValues], Tensor]:
        """Keys and values of the source for every layer, as the cache keeps them, and its mask (B, 1, 1, S)."""
        encoder_output, source_mask = transformer.encode_source(self.model, source, self.pad_id)
        return [self.cache.source_layout(pair) for pair in self._decoder.project_memory(encoder_output)], source_mask

    def begin(self, context: Context) -> Callable[[Tensor, History], tuple[Tensor, History]]:
        """The function `next_logits(tokens, history) -> (logits, history)` for sentences and caches of this context.

        `tokens` are the (N,) int32 ids of one position, at first the start ids; `logits` are (N, V) float32 for the
        next position. Or `tokens` are the (N, k) int32 ids of k positions; then `logits` are (N, k, V).
        """
        target_embedding = transformer.find_embedding(self.model, transformer.TARGET_EMBEDDING)
        to_logits = self.model.get_layer(transformer.LOGITS)
        batch_size = ops.shape(context.source_mask)[0]
        order = self._order(batch_size)
        memory = [self.cache.of_source(pair, order) for pair in context.memory]
        cross_mask = self.cache.mask_form(context.source_mask)
        table = self._decoder.positions.table(context.room)
        room = self._kept(context.room)
        num_keys = room * self.rows_per_source
        seen_by_rows = self._seen_by_rows(batch_size, room)

        def next_logits(tokens: Tensor, history: History) -> tuple[Tensor, History]:
            caches = [self.cache.of_history(pair, num_keys, order) for pair in history.caches]
            length = ops.shape(tokens)[1] if len(tokens.shape) == 2 else 1
            at = query_positions(history.position, self.rows_per_source, length)
            if rank(at) == 0 and isinstance(self.block, int) and self.block == 1:
                seen, self_mask = seen_by_rows(history)
            else:
                seen, self_mask = self._seen_by_queries(history, at, length, room)
            embedded = target_embedding(tokens)  # (N, D) or (N, k, D)
            self_mask = self.cache.mask_form(self_mask)
            output, caches = self._decoder.step(
                embedded, caches, history.position, self_mask, table, memory, cross_mask
            )
            logits = to_logits(target_embedding(output, reverse=True))  # (N, V) or (N, k, V)
            return logits, History([cache.tensors for cache in caches], seen, history.position + length)

        return next_logits

    def _seen_by_rows(self, batch_size: int | Tensor, room: int | Tensor) -> Callable[[History], tuple[Any, Tensor]]:
        """The function that gives `History.seen` with the keys of the next position, and the mask of a step there."""
        rows = self.rows_per_source
        keys = ops.arange(room * rows, dtype="int32")
        if rows == 1:
            # Slot n gets position n, and is never empty again. With a window, later positions take its place there.
            return lambda history: ((), ops.reshape(ops.less_equal(keys, history.position), (1, 1, 1, -1)))
        slots, row = keys // rows, ops.arange(batch_size * rows, dtype="int32") % rows
        own = ops.equal(keys % rows, ops.expand_dims(row, 1))  # (N, T x R)

        def seen_by_rows(history: History) -> tuple[Any, Tensor]:
            written = ops.equal(slots, self._decoder.reach.slot(history.position, room))
            seen = ops.where(written, own, history.seen)
            return seen, ops.reshape(seen, (batch_size, 1, rows, -1))

        return seen_by_rows

    def _seen_by_queries(
        self, history: History, at: Tensor, length: int | Tensor, room: int | Tensor
    ) -> tuple[Any, Tensor]:
        """`_seen_by_rows` for queries at positions of their own, from `query_positions`: none sees a later position."""
        rows = self.rows_per_source
        at = at if rank(at) else ops.broadcast_to(at, (rows,))  # (Q,) or (B, Q)
        seen = self._decoder.reach.seen(at, room)  # (Q, T) or (B, Q, T)
        if rows == 1:
            return (), ops.reshape(seen, (-1, 1, length, room))
        places = ops.reshape(self._decoder.reach.slot(at, room), (-1, rows, length, 1))
        written = ops.any(ops.equal(ops.arange(room, dtype="int32"), places), axis=2)  # (1 or B, R, T)
        former = ops.reshape(history.seen, (-1, rows, room, rows))
        by_row = ops.where(ops.expand_dims(written, -1), self._own_keys(), former)  # (B, R, T, R)
        of_queries = ops.reshape(seen, (-1, rows, length, room, 1)) & ops.expand_dims(by_row, 2)  # (B, R, k, T, R)
        return ops.reshape(by_row, (-1, room * rows)), ops.reshape(of_queries, (-1, 1, rows * length, room * rows))

    def _own_keys(self) -> Tensor:
        """(R, 1, R) booleans: which of the R keys of a position each row of a sentence has written."""
        return ops.expand_dims(ops.eye(self.rows_per_source, dtype="bool"), 1)

    def is_full(self, context: Context, history: History) -> Tensor:
        """() boolean, True if the caches have no room for a further step of any row."""
        last = context.room if self.block == 1 else context.room + 1 - self.block
        full = ops.greater_equal(history.position, last)
        return ops.any(full) if rank(history.position) else full

    def keep(self, context: Context, history: History, sentences: Tensor) -> tuple[Context, History]:
        """Context and history of some of the sentences; with more room, if the caches are full.

        It needs a backend whose shapes may change in a loop: TensorFlow without XLA.

        Args:
            context: From `start`, or from an earlier call.
            history: As `context`, or from `next_logits`.
            sentences: int32 numbers from 0 to B - 1, in rising order.
        """
        room = ops.where(
            self.is_full(context, history),
            ops.minimum(context.room + ops.minimum(context.room, self.more_room), self.max_length),
            context.room,
        )
        order = self._order(ops.shape(context.source_mask)[0])
        former, kept_room = self._kept(context.room), self._kept(room)
        keys = former * self.rows_per_source
        caches = [self.cache.of_history(pair, keys, order) for pair in history.caches]
        seen, position = history.seen, history.position
        if self.rows_per_source > 1:
            more_keys = (kept_room - former) * self.rows_per_source
            seen = ops.pad(take_rows(seen, self._rows_of(sentences)), [[0, 0], [0, more_keys]])
        if rank(position):
            position = take_rows(position, self._rows_of(sentences))
        memory = [KeysValues(*(take_rows(tensor, sentences) for tensor in pair)) for pair in context.memory]
        kept = Context(memory, take_rows(context.source_mask, sentences), room)
        return kept, History([cache.keep(sentences, kept_room) for cache in caches], seen, position)

    def _rows_of(self, sentences: Tensor) -> Tensor:
        """The numbers of the rows of these sentences."""
        first_rows = ops.expand_dims(sentences * self.rows_per_source, 1)
        return ops.reshape(first_rows + ops.arange(self.rows_per_source, dtype="int32"), (-1,))

    @property
    def _decoder(self) -> Any:
        return self.model.get_layer(transformer.DECODER)

    def _kept(self, room: int | Tensor) -> int | Tensor:
        """T, how many positions the caches of a search of `room` positions keep."""
        return self._decoder.reach.room(room, self.block)

    def _order(self, batch_size: int | Tensor) -> HeadOrder:
        attention = self._decoder.layers[0].self_attention
        return head_order(batch_size, attention.num_heads, self.rows_per_source, attention.num_key_value_heads)


def start_decoding(
    model: keras.Model,
    source: Tensor,
    max_length: int | Tensor,
    pad_id: int = 0,
    rows_per_source: int = 1,
    cache: type[Cache] = Cache,
) -> tuple[Callable[[Tensor, History], tuple[Tensor, History]], History]:
    """Encodes the source once, and returns the function and the first state for a search, with room for all steps.

    Args:
        source: (B, S) int32 ids.
        model, max_length, pad_id, rows_per_source, cache: As in `StepwiseTransformer`.

    Returns:
        `next_logits(tokens, state) -> (logits, state)` and the first state. `tokens` are the (N,) int32
        ids of one position, at first the start ids; `logits` are (N, V) float32 for the next position. A search that
        reorders the rows of a sentence must reorder the state by `reorder_rows`.

    Examples:
        Vocabularies of nine tokens, and one layer each in encoder and decoder:

        >>> model = build_transformer(kformer.TransformerConfig(9, 9, 1, 1, d_model=8, d_ff=16, num_heads=2))
        >>> next_logits, state = start_decoding(model, source=np.array([[5, 6, 2]]), max_length=4)
        >>> logits, state = next_logits(np.array([1]), state)
        >>> tuple(logits.shape), int(state.position)
        ((1, 9), 1)
    """
    stepwise = StepwiseTransformer(model, max_length, pad_id, rows_per_source, cache)
    context, history = stepwise.start(source, max_length)
    return stepwise.begin(context), history


def reorder_rows(history: History, rows: Tensor) -> History:
    """The history in which row i continues the former row `rows[i]` of the same sentence; `rows` is (N,) int32.

    The rows of a sentence must stand at one position: a row that stands further back would write over what other rows
    now continue.

    Only `seen` is reordered, the record of which keys each row has in its history. The caches are not copied, because
    that would cost more memory traffic than the rest of a step of beam search.

    Examples:
        Each row wrote its first position itself. Then both rows continue row 1:

        >>> from kformer.models.stepwise import History
        >>> history = History(caches=[], seen=np.array([[True, False], [False, True]]), position=1)
        >>> np.asarray(reorder_rows(history, np.array([1, 1])).seen).tolist()
        [[False, True], [False, True]]
    """
    return history._replace(seen=take_rows(history.seen, rows))
