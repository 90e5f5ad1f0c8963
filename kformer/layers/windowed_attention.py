"""Self-attention within a window (section 4), block by block, and its mask, which is never stored as a matrix.

The paper restricts self-attention to "a neighborhood of size r" to make long sequences cheaper. Here the positions are
divided into blocks of r. Scores are computed only between the queries of a block and the keys of the same block and of
its neighbours. So both time and memory grow with T r instead of T^2.

Shape letters: B batch, T positions of queries and keys, H heads, G heads of keys and values, K size of a head, r window
(in short sequences T), n = T / r blocks, rounded up, P keys of a block and its neighbours: 2 r if causal, else 3 r.
"""

import dataclasses
from collections.abc import Callable

from keras import ops

from kformer.layers.masks import window_mask
from kformer.layers.tensors import ScoreBias, Tensor


@dataclasses.dataclass(frozen=True)
class Band:
    """An attention mask for a window, which is never stored as a matrix of T x T.

    Pass it as `attention_mask` to the self-attention of a layer. The result is that of the mask from `window_mask`.

    Args:
        window: r, from 1 up: a position attends to itself and to those that are less than r positions away.
        causal: Whether a position attends to no later ones.
        keys: Booleans that broadcast to (B, 1, 1, T), True where a key may be attended to; None: everywhere.

    Raises:
        ValueError: `keys` is no mask of keys.

    Examples:
        >>> attention, inputs = MultiHeadAttention(d_model=8, num_heads=2), np.ones((1, 7, 8))
        >>> tuple(attention(inputs, attention_mask=Band(window=3, causal=True)).shape)
        (1, 7, 8)
    """

    window: int
    causal: bool = False
    keys: Tensor | None = None

    def __post_init__(self) -> None:
        if self.keys is not None and (len(self.keys.shape) != 4 or tuple(self.keys.shape[1:3]) != (1, 1)):
            raise ValueError(
                "Attention with a window takes masks of keys, (batch, 1, 1, keys). "
                f"Received: shape {tuple(self.keys.shape)}. Pass such a mask, or leave out the window."
            )

    def whole(self, length: int | Tensor) -> Tensor:
        """The mask as booleans, (1 or B, 1, T, T)."""
        positions = ops.arange(length)
        near = window_mask(positions, positions, self.window, self.causal)
        return near if self.keys is None else near & self.keys

    def attend(
        self,
        attention: Callable[..., Tensor],
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: ScoreBias | None = None,
    ) -> Tensor:
        """Computes attention within the window.

        Args:
            attention: Such as `scaled_dot_product_attention`. It is called once, for all blocks as one batch:
                its query is (B x n, H, r, K), its key and value are (B x n, G, P, K).
            query, key, value: (B, H, T, K), (B, G, T, K) and (B, G, T, K) floats.
            bias: Floats that broadcast to (B x n, H, r, P), as from `Window.score_bias`; or a function that computes
                them from the queries of the blocks.

        Returns:
            (B, H, T, K) floats.

        Raises:
            ValueError: The numbers of queries and of keys differ, or the bias does not have the shape for blocks.
        """
        _check_self_attention(query, key)
        batch_size, _, length, _ = ops.shape(query)
        blocks = Blocks(smaller_of(self.window, length), length, self.causal)
        _check_bias(bias, blocks)
        mask = blocks.mask(self.window) & self._visible(batch_size, length, blocks)
        heads = attention(blocks.of_queries(query), blocks.of_keys(key), blocks.of_keys(value), mask, bias)
        return blocks.joined(heads, batch_size)

    def _visible(self, batch_size: int | Tensor, length: int | Tensor, blocks: "Blocks") -> Tensor:
        """(B x n, 1, 1, P) booleans, False for padding and for positions before and after the sequence."""
        keys = True if self.keys is None else ops.cast(self.keys, "bool")
        keys = ops.broadcast_to(keys, (batch_size, 1, 1, length))
        return ops.swapaxes(blocks.of_keys(ops.swapaxes(keys, 2, 3)), 2, 3)


class Blocks:
    """The division of T positions into blocks of `size` positions."""

    def __init__(self, size: int | Tensor, length: int | Tensor, causal: bool) -> None:
        self.size = size
        self.length = length
        self.number = (length + size - 1) // size
        self.before, self.behind = 1, 0 if causal else 1  # blocks of neighbours
        self.causal = causal

    @property
    def met(self) -> int | Tensor:
        """P, the number of keys of a block and its neighbours."""
        return (self.before + 1 + self.behind) * self.size

    def mask(self, window: int) -> Tensor:
        """(1, 1, r, P) booleans: which keys lie in the window of each query of a block."""
        queries = ops.arange(self.size) + self.before * self.size
        return window_mask(queries, ops.arange(self.met), window, self.causal)

    def of_queries(self, tensor: Tensor) -> Tensor:
        """(B, H, T, K) to (B x n, H, r, K)."""
        return self._apart(self._padded(tensor, 0, 0))

    def of_keys(self, tensor: Tensor) -> Tensor:
        """(B, G, T, K) to (B x n, G, P, K): each block with its neighbours."""
        blocks = self._padded(tensor, self.before, self.behind)  # (B, G, 1 + n or 2 + n, r, K)
        neighbours = [blocks[:, :, first : first + self.number] for first in range(self.before + 1 + self.behind)]
        return self._apart(ops.concatenate(neighbours, axis=3))

    def joined(self, tensor: Tensor, batch_size: int | Tensor) -> Tensor:
        """(B x n, H, r, K) back to (B, H, T, K)."""
        _, heads, _, width = ops.shape(tensor)
        blocks = ops.reshape(tensor, (batch_size, self.number, heads, self.size, width))
        rows = ops.reshape(ops.swapaxes(blocks, 1, 2), (batch_size, heads, self.number * self.size, width))
        return rows[:, :, : self.length]

    def _padded(self, tensor: Tensor, before: int, behind: int) -> Tensor:
        """(B, H, T, K) to (B, H, blocks, r, K), with further blocks of zeros before and after the sequence."""
        batch_size, heads, _, width = ops.shape(tensor)
        missing = self.number * self.size - self.length
        padded = ops.pad(tensor, [[0, 0], [0, 0], [before * self.size, missing + behind * self.size], [0, 0]])
        return ops.reshape(padded, (batch_size, heads, before + self.number + behind, self.size, width))

    @staticmethod
    def _apart(blocks: Tensor) -> Tensor:
        """(B, H, n, R, K) to (B x n, H, R, K), where R is r or P: each block becomes an entry of the batch."""
        batch_size, heads, number, rows, width = ops.shape(blocks)
        return ops.reshape(ops.swapaxes(blocks, 1, 2), (batch_size * number, heads, rows, width))


def smaller_of(one: int | Tensor, other: int | Tensor) -> int | Tensor:
    """The smaller of two numbers: an integer if both are integers, else a tensor."""
    return min(one, other) if isinstance(one, int) and isinstance(other, int) else ops.minimum(one, other)


def _check_self_attention(query: Tensor, key: Tensor) -> None:
    lengths = query.shape[2], key.shape[2]
    if None not in lengths and lengths[0] != lengths[1]:
        raise ValueError(
            "A window is for self-attention, whose queries and keys stand at the same positions. "
            f"Received: {lengths[0]} queries and {lengths[1]} keys. Leave out the window."
        )


def _check_bias(bias: ScoreBias | None, blocks: Blocks) -> None:
    if bias is None or callable(bias):
        return
    for size, expected in zip(bias.shape[-2:], (blocks.size, blocks.met), strict=False):
        if isinstance(size, int) and isinstance(expected, int) and size not in (1, expected):
            raise ValueError(
                "With a window, a bias broadcasts to (blocks, heads, queries, keys of a block and its neighbours): "
                f"(..., {blocks.size}, {blocks.met}). Received: shape {tuple(bias.shape)}. Take it from "
                "`Window.score_bias`."
            )
