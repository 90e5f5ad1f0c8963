"""What every search returns."""

from typing import Any, NamedTuple


class SearchResult(NamedTuple):
    """The best `n` sequences of each of B sentences, best first; T is the buffer length."""

    tokens: Any  # (B, n, T) int32; the end id included where there is one, pad id behind it
    scores: Any  # (B, n) float32, natural logarithm; -inf where fewer than n sequences exist
    lengths: Any  # (B, n) int32; number of tokens, the end token included
