"""The result of every search."""

from typing import Any, NamedTuple


class SearchResult(NamedTuple):
    """The best `n` sequences of each of B sentences, best first; T is the buffer length.

    Examples:
        >>> result = SearchResult(tokens=np.array([[[4, 2, 0]]]), scores=np.array([[-0.5]]), lengths=np.array([[2]]))
        >>> result.tokens[0, 0, : result.lengths[0, 0]].tolist()
        [4, 2]
    """

    tokens: Any  # (B, n, T) int32; each sequence with its end id, if it has one, then pad ids
    scores: Any  # (B, n) float32, natural logarithms; -inf where fewer than n sequences exist
    lengths: Any  # (B, n) int32; number of tokens, the end token included
