"""The attention weights of a model, with their tokens. `attention` computes them, `kformer.visualization` draws them.

Letters: L layers, H heads, S source tokens with the end, T target tokens with the end.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from keras import ops

START, END = "<s>", "</s>"
NO_BYTES = "·"  # a token that has no bytes of its own, such as the second byte of a character


@dataclasses.dataclass(frozen=True)
class AttentionMap:
    """Attention weights, with the tokens of their rows and columns.

    Args:
        weights: (L, H, queries, keys) floats; or (H, queries, keys) of one layer, or (queries, keys) of one head.
        queries: The tokens that attend, one for each row.
        keys: The tokens that are attended to, one for each column.
        name: Name of the attention in titles.

    Raises:
        ValueError: The weights have fewer than two or more than four dimensions, or the numbers of tokens differ from
            those of rows and columns.

    Examples:
        >>> attention = AttentionMap([[0.75, 0.25], [0.5, 0.5]], queries=["la", "casa"], keys=["the", "house"])
        >>> attention.weights.shape
        (1, 1, 2, 2)
        >>> attention.of(layer=0, head=0).tolist()
        [[0.75, 0.25], [0.5, 0.5]]
    """

    weights: Any
    queries: Sequence[str]
    keys: Sequence[str]
    name: str = "Attention"

    def __post_init__(self) -> None:
        weights = np.asarray(ops.convert_to_numpy(self.weights), "float32")
        if not 2 <= weights.ndim <= 4:
            raise ValueError(
                "Attention weights have the shape (layers, heads, queries, keys), or the last two or three of these. "
                f"Received: shape {weights.shape}."
            )
        if weights.shape[-2:] != (len(self.queries), len(self.keys)):
            raise ValueError(
                f"Expected a token for each of the {weights.shape[-2]} rows and {weights.shape[-1]} columns of the "
                f"weights. Received: {len(self.queries)} queries and {len(self.keys)} keys."
            )
        object.__setattr__(self, "weights", weights.reshape((1,) * (4 - weights.ndim) + weights.shape))
        object.__setattr__(self, "queries", tuple(self.queries))
        object.__setattr__(self, "keys", tuple(self.keys))

    @property
    def num_layers(self) -> int:
        """L, the number of layers."""
        return self.weights.shape[0]

    @property
    def num_heads(self) -> int:
        """H, the number of heads."""
        return self.weights.shape[1]

    def of(self, layer: int = -1, head: int | None = None) -> np.ndarray:
        """(queries, keys): the weights of one head, or the mean of a layer's heads.

        Args:
            layer: From 0 to L - 1; negative numbers count from the last.
            head: From 0 to H - 1; None for the mean of all heads.

        Raises:
            ValueError: There is no such layer or head.
        """
        _check_index("layer", layer, self.num_layers)
        if head is None:
            return self.weights[layer].mean(axis=0)
        _check_index("head", head, self.num_heads)
        return self.weights[layer, head]


class Attention(NamedTuple):
    """All attention weights of a model that reads a text and its translation.

    Examples:
        >>> cross = translator.attention("c a t", translation="K AE T").cross
        >>> cross.weights.shape  # layers, heads, target tokens, source tokens
        (3, 4, 4, 4)
        >>> [f"{query} looks at {cross.keys[key]}" for query, key in zip(cross.queries, cross.of().argmax(axis=1))]
        ['K looks at c', 'AE looks at a', 'T looks at t', '</s> looks at </s>']
    """

    encoder: AttentionMap  # between the source tokens
    decoder: AttentionMap  # from each position of the translation to the tokens that it has read
    cross: AttentionMap  # from each position of the translation to the source tokens


def read_detailed(found: Mapping[str, Any], number: int = 0) -> AttentionMap:
    """The alignment of one text in the result of the signature or method `translate_detailed`.

    Args:
        found: The result: arrays, tensors, or lists as from a server.
        number: Index of the text in the batch.

    Returns:
        One map (T, S) between the tokens of the translation and those of the text: the mean of a layer's heads.

    Examples:
        >>> found = {"source_token": [["g", "o"]], "source_length": [2], "alignment_start": [[0, 0]]}
        >>> found |= {"target_token": [["G", "OW"]], "target_length": [2], "alignment": [[[0.75, 0.25], [0.5, 0.5]]]}
        >>> alignment = read_detailed(found)
        >>> alignment.queries, alignment.keys, alignment.of().tolist()
        (('G', 'OW'), ('g', 'o'), [[0.75, 0.25], [0.5, 0.5]])
    """
    one = {name: np.asarray(values)[number] for name, values in found.items()}
    rows, columns = int(one["target_length"]), int(one["source_length"])
    weights = np.zeros((rows, columns), "float32")
    for row in range(rows):
        first = int(one["alignment_start"][row])
        width = min(columns - first, one["alignment"].shape[1])
        weights[row, first : first + width] = one["alignment"][row, :width]
    queries = [_text(token, END) for token in one["target_token"][:rows]]
    keys = [_text(token, NO_BYTES) for token in one["source_token"][:columns]]
    return AttentionMap(weights, queries, keys, "Alignment")


def _text(token: str | bytes, empty: str) -> str:
    text = token.decode("utf-8", "replace") if isinstance(token, bytes) else str(token)
    return text.strip() or (empty if not text else NO_BYTES)


def _check_index(name: str, index: int, number: int) -> None:
    if not -number <= index < number:
        raise ValueError(f"{name} must be from 0 to {number - 1}. Received: {name}={index}.")
