"""Beam search as Hugging Face's transformers does it, for models that come from there.

Letters: B sentences, K beams, n hypotheses returned, T buffer length, V vocabulary.
"""

from collections.abc import Callable
from typing import Any

from keras import ops

from kformer.decoding.beam_search import NO_HYPOTHESIS, BeamSearch, BeamState, Candidates
from kformer.decoding.length_penalty import length_power
from kformer.decoding.result import SearchResult
from kformer.decoding.space import SearchSpace
from kformer.indexing import take_columns

_LEAST_SCORE = -1e30  # below any hypothesis's score, and above that of a hypothesis that there is not


class TransformersBeamSearch(BeamSearch):
    """Beam search by the rules of `GenerationMixin.generate` in transformers 5.

    It differs from `beam_search` in these rules:

    - The score of a hypothesis Y is log P(Y) / |Y| ** length_penalty, where |Y| counts the end token.
    - Of the 2K best extensions only the first K may end.
    - K finished hypotheses are kept, whatever n is. A sentence is done when there are K and the best live hypothesis,
      if it ended now, would be no better than the worst of them. A longer one might be: this is no bound.
      With `early_stopping` it is done when there are K.
    - What is live at the limit counts as finished, and competes by its score.
    - What is given counts neither for length nor for probability: the prompt of a language model.
    - With `forced_end`, a hypothesis ends at the limit at no cost: the end token has the probability 1 there. With
      `free_first`, the first token has.

    Args:
        space, beam_size, length_penalty, n_best, reorder: As in `beam_search`.
        forced_end: Whether a sequence that reaches its limit gets the end token there.
        given: (B,) int32, how many first tokens of each sentence are given; None if none are.
        free_first: Whether every sequence begins with the same token, which a constraint forces.
        early_stopping: Whether a sentence is done when it has K finished hypotheses.
    """

    def __init__(
        self,
        space: SearchSpace,
        beam_size: int,
        length_penalty: float,
        n_best: int,
        reorder: Callable[[Any, Any], Any],
        forced_end: bool,
        given: Any = None,
        free_first: bool = False,
        early_stopping: bool = False,
    ) -> None:
        super().__init__(space, beam_size, length_penalty, n_best, reorder)
        self.forced_end = forced_end
        self.given = given
        self.free_first = free_first
        self.early_stopping = early_stopping

    @property
    def num_kept(self) -> int:
        return self.beam_size

    def first_state(self) -> BeamState:
        return super().first_state()._replace(given=() if self.given is None else self.given)

    def after(self, tokens: Any, log_probs: Any) -> BeamState:
        return super().after(tokens, log_probs if self.given is None else ops.zeros_like(log_probs))

    def _best_candidates(self, now: BeamState, logits: Any) -> Candidates:
        found = super()._best_candidates(now, logits)
        if self.free_first:
            is_free = ops.equal(now.step, 0) & (found.log_probs > NO_HYPOTHESIS)
            found = found._replace(log_probs=ops.where(is_free, 0.0, found.log_probs))
        if self.given is not None:
            is_free = self._is_given(now) & (found.log_probs > NO_HYPOTHESIS)
            found = found._replace(log_probs=ops.where(is_free, 0.0, found.log_probs))
        if not self.forced_end:
            return found
        nothing = ops.full_like(now.live_log_probs, NO_HYPOTHESIS)
        forced = ops.concatenate([now.live_log_probs, nothing], axis=1)  # (B, 2K), each beam goes on once
        beams = ops.arange(2 * self.beam_size, dtype="int32") % self.beam_size
        at_limit = self._at_limit(now)
        return Candidates(
            ops.where(at_limit, forced, found.log_probs),
            ops.where(at_limit, beams, found.parents),
            ops.where(at_limit, self.space.end_id, found.next_tokens),
        )

    @staticmethod
    def _is_given(now: BeamState) -> Any:
        """(B, 1) bool, True where the next token is given."""
        return ops.less(now.step, ops.expand_dims(now.given, 1))

    def _at_limit(self, now: BeamState) -> Any:
        """(B, 1) bool, True where the next token is the last one."""
        return ops.greater_equal(now.step + 1, ops.expand_dims(now.limits, 1))

    def _ends(self, now: BeamState, candidates: Candidates) -> Any:
        return ops.logical_or(super()._ends(now, candidates), self._at_limit(now))

    def _with_finished(self, now: BeamState, new: BeamState, candidates: Candidates, ends: Any) -> BeamState:
        is_first = ops.less(ops.arange(2 * self.beam_size), self.beam_size)  # (2K,)
        return super()._with_finished(now, new, candidates, ops.logical_and(ends, is_first))

    def _last_tokens(self, candidates: Candidates, kept: Any) -> Any:
        earlier = ops.full_like(candidates.next_tokens[:, : self.beam_size], self.space.end_id)
        return take_columns(ops.concatenate([earlier, candidates.next_tokens], axis=1), kept)

    def _scores(self, now: BeamState, log_probs: Any, lengths: Any) -> Any:
        if self.given is not None:
            lengths = lengths - ops.expand_dims(now.given, 1)
        return log_probs / length_power(lengths, self.length_penalty)

    def _score_to_stop_at(self, new: BeamState) -> Any:
        # A live hypothesis may still exceed the score that it has now: transformers stops all the same.
        if self.early_stopping:
            return ops.full_like(new.live_log_probs[:, 0], _LEAST_SCORE)
        return self._scores(new, new.live_log_probs[:, :1], new.step)[:, 0]

    def result(self, now: BeamState) -> SearchResult:
        found = super().result(now)
        return SearchResult(*(values[:, : self.n_best] for values in found))
