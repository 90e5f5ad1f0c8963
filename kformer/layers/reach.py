"""The positions that self-attention in a stack can attend to: all, or those in a window (section 4).

The mask of a stack and the places of a cache follow from it. Attention in a window: see `windowed_attention`.

Shape letters: B batch, T positions of queries and keys, r window, k positions of a step.
"""

import abc
from typing import Any

from keras import ops

from kformer.indexing import take_rows
from kformer.layers.masks import causal_mask
from kformer.layers.positional_encoding import Positions
from kformer.layers.tensors import ScoreBias, Tensor, rank
from kformer.layers.windowed_attention import Band, Blocks, smaller_of


class Reach(abc.ABC):
    """Which positions the self-attention of a stack attends to; made by `make_reach`.

    A search that decodes step by step asks it where a cache keeps each position.

    Args:
        causal: Whether a position attends to no later ones, as in a decoder.
    """

    def __init__(self, causal: bool) -> None:
        self.causal = causal

    @abc.abstractmethod
    def mask(self, length: int | Tensor, keys: Tensor | None = None) -> Any:
        """The `attention_mask` for T positions: a tensor, a `Band`, or None.

        Args:
            length: T.
            keys: Booleans that broadcast to (B, 1, 1, T), True where a key may be attended to.
        """

    @abc.abstractmethod
    def score_bias(self, positions: Positions, rows: Tensor) -> ScoreBias | None:
        """The bias of the positional encoding for the scores that `mask` applies to; `rows` are T rows of its table."""

    @abc.abstractmethod
    def whole(self) -> "Reach":
        """The same reach with masks and biases that are whole matrices of T x T, to compute attention weights."""

    @abc.abstractmethod
    def room(self, room: int | Tensor, block: int | Tensor = 1) -> int | Tensor:
        """How many positions a cache must hold for a search of `room` positions: all, or those that windows need.

        `block` is the most positions of a step, k.
        """

    @abc.abstractmethod
    def slot(self, position: int | Tensor, room: int | Tensor) -> int | Tensor:
        """Where a cache of `room` keeps a position."""

    @abc.abstractmethod
    def kept_positions(self, position: int | Tensor, room: int | Tensor) -> Tensor:
        """Which position each place of a cache of `room` keeps, as a query at `position` sees it.

        For a place that this query does not see, it may be a position that the place keeps later.

        Args:
            position: () or (...) int32.
            room: Number of places.

        Returns:
            int32, (room,), or (room,) or (..., room).
        """

    @abc.abstractmethod
    def seen(self, position: Tensor, room: int | Tensor) -> Tensor:
        """(..., room) booleans: which places of a cache of `room` a query at `position`, (...) int32, attends to."""

    def kept_rows(self, table: Tensor, position: int | Tensor, room: int | Tensor) -> Tensor:
        """The rows of `table` for `kept_positions`, in the cache's order."""
        return take_rows(table, self.kept_positions(position, room))


class Everywhere(Reach):
    """Attention to all positions, or to all earlier ones.

    Args:
        causal: As in `Reach`.
        window: Masks the positions outside a window. Their scores are computed all the same.
    """

    def __init__(self, causal: bool, window: int | None = None) -> None:
        super().__init__(causal)
        self.window = window

    def mask(self, length: int | Tensor, keys: Tensor | None = None) -> Tensor | None:
        if self.window is not None:
            return Band(self.window, self.causal, keys).whole(length)
        if not self.causal:
            return keys
        return causal_mask(length) if keys is None else causal_mask(length) & keys

    def score_bias(self, positions: Positions, rows: Tensor) -> ScoreBias | None:
        return positions.score_bias(rows, rows)

    def whole(self) -> Reach:
        return self

    def room(self, room: int | Tensor, block: int | Tensor = 1) -> int | Tensor:
        return room

    def slot(self, position: int | Tensor, room: int | Tensor) -> int | Tensor:
        return position

    def kept_positions(self, position: int | Tensor, room: int | Tensor) -> Tensor:
        return ops.arange(room, dtype="int32")

    def seen(self, position: Tensor, room: int | Tensor) -> Tensor:
        return ops.less_equal(self.kept_positions(position, room), ops.expand_dims(position, -1))

    def kept_rows(self, table: Tensor, position: int | Tensor, room: int | Tensor) -> Tensor:
        return table[:room]


class Window(Reach):
    """Attention to the positions that are less than `size` away: the last `size` positions if it is causal.

    A cache has `size` + k - 1 slots, which the positions take in turn. So no position of a step takes the slot of one
    that another position of the same step attends to, and a search may go back to any position of its last step.

    Args:
        causal: As in `Reach`.
        size: r.

    Raises:
        ValueError: `size` is below 1.
    """

    def __init__(self, causal: bool, size: int) -> None:
        super().__init__(causal)
        if size < 1:
            raise ValueError(f"attention_window must be at least 1. Received: {size}. Pass None for no window.")
        self.size = size

    def mask(self, length: int | Tensor, keys: Tensor | None = None) -> Band:
        return Band(self.size, self.causal, keys)

    def score_bias(self, positions: Positions, rows: Tensor) -> ScoreBias | None:
        first = rows[:1]
        if positions.score_bias(first, first) is None:
            return None
        length = ops.shape(rows)[0]
        blocks = Blocks(smaller_of(self.size, length), length, self.causal)
        # Biases depend on distances alone, so all blocks have the biases of the first ones.
        table = positions.table(blocks.met)
        return positions.score_bias(table[blocks.size : 2 * blocks.size], table)

    def whole(self) -> Reach:
        return Everywhere(self.causal, self.size)

    def room(self, room: int | Tensor, block: int | Tensor = 1) -> int | Tensor:
        return smaller_of(self.size + block - 1, room)

    def slot(self, position: int | Tensor, room: int | Tensor) -> int | Tensor:
        return position % room

    def kept_positions(self, position: int | Tensor, room: int | Tensor) -> Tensor:
        slots = ops.arange(room, dtype="int32")
        if rank(position):
            position = ops.expand_dims(position, -1)
        # For each slot, the newest position up to this one; for an empty slot, the position that it will keep first.
        return slots + room * ops.maximum((position - slots) // room, 0)

    def seen(self, position: Tensor, room: int | Tensor) -> Tensor:
        back = ops.expand_dims(position, -1) - self.kept_positions(position, room)
        return ops.logical_and(back >= 0, back < self.size)


def make_reach(window: int | None, causal: bool) -> Reach:
    """The reach of a stack: all positions if `window` is None, else a window of this size.

    Examples:
        >>> make_reach(None, causal=True).room(100), make_reach(8, causal=True).room(100)
        (100, 8)
    """
    return Everywhere(causal) if window is None else Window(causal, window)
