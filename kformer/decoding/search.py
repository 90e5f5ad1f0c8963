"""The interface of all searches, which are state machines, and the loop `run`, which takes their steps.

Letters: B sentences, P tokens, N rows of the model (one or more for each sentence).
"""

import abc
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from kformer.decoding.result import SearchResult
from kformer.decoding.space import SearchSpace
from kformer.indexing import take_rows

NextLogits = Callable[[Any, Any], tuple[Any, Any]]


class Search(abc.ABC):
    """A search for the target sequences of B sentences, step by step.

    Its state is a named tuple of tensors. A tensor of rank 0 belongs to the whole batch; every other tensor has B rows,
    one for each sentence. Only the states of the constraints have N rows.

    Args:
        space: Which sequences may be produced.
    """

    def __init__(self, space: SearchSpace) -> None:
        self.space = space

    @abc.abstractmethod
    def first_state(self) -> Any:
        """The state before the first token."""

    @abc.abstractmethod
    def after(self, tokens: Any, log_probs: Any) -> Any:
        """The state after the first P tokens of every sentence, which the model has read in a single call.

        Args:
            tokens: (B, P + 1) int32, the start ids and these tokens. No sentence's limit is below P.
            log_probs: (B,) float32, of these tokens together.
        """

    @abc.abstractmethod
    def step(self, now: Any, next_logits: NextLogits, model_state: Any) -> tuple[Any, Any]:
        """The states of the search and of the model after one more token."""

    @abc.abstractmethod
    def keep(self, now: Any, sentences: Any) -> Any:
        """The state of some of the sentences, when the others leave; `sentences` are their numbers, in rising order."""

    @abc.abstractmethod
    def finished(self, now: Any) -> Any:
        """(B,) booleans, True where no further step changes a sentence's result."""

    @abc.abstractmethod
    def result(self, now: Any) -> SearchResult:
        """The sequences found so far."""


def run(search: Search, next_logits: NextLogits, model_state: Any, first_state: Any = None) -> SearchResult:
    """Takes steps until all sentences are finished, from `first_state` on; by default from the search's own."""
    first_state = search.first_state() if first_state is None else first_state

    def unfinished(now: Any, model_state: Any) -> Any:
        return ops.logical_not(ops.all(search.finished(now)))

    def step(now: Any, model_state: Any) -> tuple[Any, Any]:
        return search.step(now, next_logits, model_state)

    state_tensors = keras.tree.map_structure(ops.convert_to_tensor, model_state)  # as a loop needs them
    last, _ = ops.while_loop(unfinished, step, (first_state, state_tensors))
    return search.result(last)


def gather_rows(state: Any, rows: Any) -> Any:
    """The state in which row i continues the hypothesis of the old row `rows[i]`.

    Every leaf of rank >= 1 is gathered along its first axis.
    """
    return keras.tree.map_structure(lambda leaf: take_rows(leaf, rows) if len(leaf.shape) else leaf, state)
