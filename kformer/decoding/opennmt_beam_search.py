"""Beam search as OpenNMT-tf does it, for models that come from there.

Letters: B sentences, K beams, n hypotheses returned, T buffer length, V vocabulary.
"""

from typing import Any, NamedTuple

from keras import ops

from kformer.decoding.beam_search import (
    NO_HYPOTHESIS,
    SearchWithBeams,
    extended,
    flat_rows,
)
from kformer.decoding.length_penalty import length_norm
from kformer.decoding.result import SearchResult
from kformer.decoding.search import NextLogits, gather_rows
from kformer.decoding.space import States
from kformer.indexing import take_columns


class _State(NamedTuple):
    """The state of an `OpenNMTBeamSearch`. Finished hypotheses stay in the beam."""

    step: Any  # () int32
    last_tokens: Any  # (B, K) int32
    tokens: Any  # (B, K, T) int32
    log_probs: Any  # (B, K) float32; -inf where there is no hypothesis
    lengths: Any  # (B, K) int32, the end token included
    ended: Any  # (B, K) bool, True for hypotheses with an end token
    limits: Any  # (B,) int32; the largest lengths
    constraints: States  # with B * K rows


class OpenNMTBeamSearch(SearchWithBeams):
    """Beam search by the rules of `opennmt.utils.BeamSearch` in OpenNMT-tf 2.

    A finished hypothesis keeps its place in the beam, where it competes by its score with those that go on. A sentence
    is done when all K hypotheses are finished, or at its limit. The best one is the first of the beam then.

    Two oddities of OpenNMT-tf are kept, because they decide which hypothesis is the first: in the beam the length of a
    finished hypothesis counts one token more; and where a finished hypothesis moves to another place in the beam, it
    takes over the log probability of the one that stood there before.

    Args:
        space, beam_size, length_penalty, n_best, reorder: As in `beam_search`.
    """

    def first_state(self) -> _State:
        space = self.space
        sentences = ops.shape(space.limits)[0]
        beam = (sentences, self.beam_size)
        return _State(
            step=ops.convert_to_tensor(0, "int32"),
            last_tokens=self._in_beams(space.first_inputs()),
            tokens=ops.full((*beam, space.buffer_length), space.pad_id, dtype="int32"),
            log_probs=self._first_log_probs(),
            lengths=ops.zeros(beam, dtype="int32"),
            ended=ops.zeros(beam, dtype="bool"),
            limits=space.limits,
            constraints=space.start(ops.zeros((sentences, 0), dtype="int32"), self.beam_size),
        )

    def after(self, tokens: Any, log_probs: Any) -> _State:
        first, length = self.first_state(), ops.shape(tokens)[1] - 1
        return first._replace(
            step=ops.cast(length, "int32"),
            last_tokens=ops.broadcast_to(tokens[:, -1:], ops.shape(first.last_tokens)),
            tokens=self._in_every_beam(tokens[:, 1:]),
            log_probs=first.log_probs + ops.expand_dims(log_probs, 1),
            lengths=first.lengths + ops.cast(length, "int32"),
            constraints=self.space.start(tokens[:, 1:], self.beam_size),
        )

    def step(self, now: _State, next_logits: NextLogits, model_state: Any) -> tuple[_State, Any]:
        logits, model_state = next_logits(ops.reshape(now.last_tokens, (-1,)), model_state)
        beams = self.beam_size
        each = min(beams, logits.shape[-1])
        gains, ids = self.space.best_tokens(now.constraints, logits, each)  # (B * K, each)
        gains, ids = self.space.with_forced(now.constraints, logits, gains, ids)
        has_ended = ops.reshape(now.ended, (-1, 1))
        stays = ops.where(ops.arange(each) == 0, 0.0, NO_HYPOTHESIS)  # what has ended goes on in one way, at no cost
        totals = ops.reshape(now.log_probs, (-1, 1)) + ops.where(has_ended, stays, gains)
        ids = ops.where(has_ended, self.space.end_id, ids)
        scores = totals / length_norm(ops.reshape(now.lengths, (-1, 1)) + 1, self.length_penalty)
        _, chosen = ops.top_k(ops.reshape(scores, (-1, beams * each)), beams)  # (B, K)
        chosen = ops.cast(chosen, "int32")
        done = ops.expand_dims(self.finished(now), 1)  # (B, 1)
        parents = ops.where(done, ops.arange(beams, dtype="int32"), ops.floor_divide(chosen, each))
        tokens = ops.where(done, self.space.pad_id, take_columns(ops.reshape(ids, (-1, beams * each)), chosen))
        had_ended = take_columns(now.ended, parents)
        grows = ops.logical_not(ops.logical_or(had_ended, done))  # (B, K)
        rows = ops.reshape(flat_rows(parents, beams), (-1,))
        log_probs = take_columns(ops.reshape(totals, (-1, beams * each)), chosen)
        new = _State(
            step=now.step + 1,
            last_tokens=tokens,
            tokens=extended(take_columns(now.tokens, parents), tokens, now.step, grows),
            log_probs=ops.where(ops.logical_or(had_ended, done), now.log_probs, log_probs),
            lengths=take_columns(now.lengths, parents) + ops.cast(grows, "int32"),
            ended=ops.logical_or(had_ended, ops.logical_and(grows, ops.equal(tokens, self.space.end_id))),
            limits=now.limits,
            constraints=self.space.advance(gather_rows(now.constraints, rows), tokens),
        )
        return new, self.reorder(model_state, rows)

    def finished(self, now: _State) -> Any:
        return ops.logical_or(ops.all(now.ended, axis=1), ops.greater_equal(now.step, now.limits))

    def result(self, now: _State) -> SearchResult:
        best = slice(None, self.n_best)
        log_probs, lengths = now.log_probs[:, best], now.lengths[:, best]
        exists = log_probs > NO_HYPOTHESIS
        scores = log_probs / length_norm(lengths, self.length_penalty)
        return SearchResult(now.tokens[:, best], scores, ops.where(exists, lengths, 0))
