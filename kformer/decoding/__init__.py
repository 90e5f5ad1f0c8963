"""Search for target sequences: greedy search, beam search and sampling.

The searches do not depend on a model or a tokenizer. They call a function `next_logits(tokens, state) -> (logits,
state)` with the newest token of every row. This function returns the logits of the next token.
"""

from kformer.decoding.beam_search import beam_search
from kformer.decoding.constraints import Constraint, ForcedEnd, MinLength, NoRepeatedNGrams, Prefix
from kformer.decoding.greedy import greedy_search
from kformer.decoding.result import SearchResult
from kformer.decoding.sampling import sample
from kformer.decoding.space import SearchSpace

__all__ = [
    "Constraint",
    "ForcedEnd",
    "MinLength",
    "NoRepeatedNGrams",
    "Prefix",
    "SearchResult",
    "SearchSpace",
    "beam_search",
    "greedy_search",
    "sample",
]
