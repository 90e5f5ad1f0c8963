"""Searches whose batch shrinks: finished sentences leave it. The backend must allow shapes that change in a loop.

Letters: B sentences that take part, A all sentences of the batch.
"""

from typing import Any, Protocol

from keras import ops

from kformer.decoding.result import SearchResult
from kformer.decoding.search import NextLogits, Search
from kformer.indexing import take_rows

# A stretch ends when this share of its sentences is finished. With a smaller share, fewer finished rows are computed,
# but the caches are copied more often.
FINISHED_SHARE = 0.25


class StretchModel(Protocol):
    """A model for `run_in_stretches`. Its state has two parts.

    The context stays the same within a stretch: the data of the sentences, and the room for their history. The history
    changes with every step.
    """

    def begin(self, context: Any) -> NextLogits:
        """The function `next_logits(tokens, history)`. Values that all steps of a stretch need are computed here."""

    def is_full(self, context: Any, history: Any) -> Any:
        """() boolean, True if there is no room for a further step."""

    def keep(self, context: Any, history: Any, sentences: Any) -> tuple[Any, Any]:
        """Context and history of some of the sentences, with room for further steps.

        Args:
            context: The context so far.
            history: The history so far.
            sentences: int32 numbers from 0 to B - 1, in rising order.
        """


def run_in_stretches(
    search: Search, model: StretchModel, context: Any, history: Any, first_state: Any = None
) -> SearchResult:
    """As `run`, but in stretches: within a stretch, the number of sentences and the room for the history are fixed.

    A stretch ends when a share of its sentences is finished, or when the room is used up. Then finished sentences
    leave, and the others get more room. The result of a sentence is the same as if it were searched alone.

    Args:
        search: The search of A sentences.
        model: The model.
        context: The model's first context, of A sentences.
        history: The model's first history.
        first_state: Of the search; by default its own first state.
    """
    first = search.first_state() if first_state is None else first_state
    everyone = ops.arange(ops.shape(search.finished(first))[0], dtype="int32")

    def some_left(sentences: Any, *_: Any) -> Any:
        return ops.shape(sentences)[0] > 0

    def stretch(sentences: Any, now: Any, context: Any, history: Any, found: SearchResult) -> tuple[Any, ...]:
        now, history = _steps(search, model, now, context, history)
        found = _merged(found, sentences, search.result(now))
        (staying,) = ops.nonzero(ops.logical_not(search.finished(now)))
        staying = ops.cast(staying, "int32")
        context, history = model.keep(context, history, staying)
        return take_rows(sentences, staying), search.keep(now, staying), context, history, found

    *_, found = ops.while_loop(some_left, stretch, (everyone, first, context, history, search.result(first)))
    return found


def _steps(search: Search, model: StretchModel, now: Any, context: Any, history: Any) -> tuple[Any, Any]:
    """The states of search and model at the end of a stretch."""
    next_logits = model.begin(context)

    def goes_on(now: Any, history: Any) -> Any:
        finished = ops.mean(ops.cast(search.finished(now), "float32"))
        return ops.logical_and(finished < FINISHED_SHARE, ops.logical_not(model.is_full(context, history)))

    def step(now: Any, history: Any) -> tuple[Any, Any]:
        return search.step(now, next_logits, history)

    return ops.while_loop(goes_on, step, (now, history))


def _merged(found: SearchResult, sentences: Any, fresh: SearchResult) -> SearchResult:
    """The results of all A sentences, with new results for `sentences` (B,)."""
    places = ops.expand_dims(sentences, 1)
    return SearchResult(*(ops.scatter_update(old, places, new) for old, new in zip(found, fresh, strict=True)))
