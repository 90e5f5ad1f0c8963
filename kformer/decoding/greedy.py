"""Greedy search: always the most probable next token."""

from typing import Any

from kformer.decoding.result import SearchResult
from kformer.decoding.row_search import RowSearch, RowState
from kformer.decoding.search import NextLogits, run
from kformer.decoding.space import SearchSpace


class GreedySearch(RowSearch):
    """Takes the most probable token at every step, the lower id where two are equally probable."""

    def choose(self, now: RowState, logits: Any) -> tuple[Any, Any]:
        return self.space.best_tokens(now.constraints, logits, 1)


def greedy_search(next_logits: NextLogits, state: Any, space: SearchSpace) -> SearchResult:
    """Takes the most probable token at every step, the lower id where two are equally probable.

    Args:
        next_logits: `(tokens (B,) int32, state) -> (logits (B, V) any float, state)`. It keeps the shapes and dtypes
            of the state's leaves. It receives the pad id for rows that are finished, until all rows are.
        state: nested structure of tensors.
        space: which sequences may be produced.

    Returns:
        A `SearchResult` with n = 1. The score of a sequence is the sum of the float32 log probabilities that the
        model gives its tokens, the end token included.

    Raises:
        ValueError: The logits do not hold the special ids.

    Examples:
        A model that counts down: after token 5 comes 4, and 1 is the end.

        >>> countdown = 9 * np.eye(6, k=-1)
        >>> space = SearchSpace(start_id=5, end_id=1, pad_id=0, max_lengths=np.array([6]), buffer_length=6)
        >>> result = greedy_search(lambda tokens, state: (countdown[tokens], state), (), space)
        >>> np.asarray(result.tokens)[0, 0].tolist(), int(result.lengths[0, 0])
        ([4, 3, 2, 1, 0, 0], 4)
    """
    return run(GreedySearch(space), next_logits, state)
