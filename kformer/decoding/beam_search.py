"""Beam search with the length penalty of Google's NMT system (Wu et al. 2016).

Letters: B sentences, K beams (beam_size), n hypotheses returned (n_best), T buffer length, V vocabulary,
N = B * K rows.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from kformer.decoding.buffers import buffer_of
from kformer.decoding.greedy import greedy_search
from kformer.decoding.length_penalty import length_norm
from kformer.decoding.result import SearchResult
from kformer.decoding.search import NextLogits, Search, gather_rows, run
from kformer.decoding.space import SearchSpace, States
from kformer.indexing import take_columns

NO_HYPOTHESIS = float("-inf")  # log probability of a beam that is empty


class BeamState(NamedTuple):
    """The state of a `BeamSearch`. Live hypotheses have no end token yet, and can be extended."""

    step: Any  # () int32; number of tokens of every live hypothesis of a sentence that is not done
    last_tokens: Any  # (B, K) int32; newest token of each live hypothesis
    live_tokens: Any  # (B, K, T) int32
    live_log_probs: Any  # (B, K) float32, in falling order; -inf where there is no hypothesis
    finished_tokens: Any  # (B, n, T) int32
    finished_scores: Any  # (B, n) float32, divided by the length penalty, in falling order; -inf: no hypothesis
    finished_lengths: Any  # (B, n) int32, the end token included
    limits: Any  # (B,) int32; the largest lengths
    done: Any  # (B,) bool; True if the sentence's result is final
    constraints: States  # with B * K rows
    given: Any = ()  # (B,) int32; number of first tokens that are given and do not count; () if all tokens count


class Candidates(NamedTuple):
    """The 2K best extensions of a sentence's live hypotheses, best first."""

    log_probs: Any  # (B, 2K) float32
    parents: Any  # (B, 2K) int32, beam from 0 to K - 1
    next_tokens: Any  # (B, 2K) int32


def beam_search(
    next_logits: NextLogits,
    state: Any,
    space: SearchSpace,
    *,
    beam_size: int = 4,
    length_penalty: float = 0.6,
    n_best: int = 1,
    reorder: Callable[[Any, Any], Any] = gather_rows,
) -> SearchResult:
    """Finds the `n_best` finished hypotheses with the highest scores, among those that a beam of `beam_size` reaches.

    A hypothesis Y has the score log P(Y) / lp(Y) with lp(Y) = ((5 + |Y|) / 6) ** length_penalty (Wu et al. 2016,
    equation 14, without coverage), where |Y| counts the end token. Each step looks at the 2K best extensions of a
    sentence's live hypotheses. At most K of them end, so at least K can go on. Extensions that end join the
    sentence's finished hypotheses, of which the n best stay.

    A sentence is done at its limit, or when the score of its n-th finished hypothesis is at least as high as any live
    hypothesis can reach. Log probabilities only fall and lp only grows, so log P / lp(limit) is an upper bound of a
    live hypothesis's score. The result of a sentence that is done no longer changes while the rest of the batch goes
    on. Among equal scores, the shorter hypothesis comes first, then the one from the better beam, then the lower id.

    If fewer than n hypotheses are finished, live ones that were cut off at the limit follow them. They have no end
    token, and their log probability is divided by lp(limit). If even these are too few (in a small vocabulary), the
    rest has score -inf, length 0 and pad ids.

    With `beam_size=1` this is greedy search, with the score divided by lp: the only beam ends with its first end token.

    Row b * K + k of the tokens, the logits and the state is beam k of sentence b.

    Args:
        next_logits: `(tokens (N,) int32, state) -> (logits (N, V) any float, state)`.
        state: nested structure of tensors.
        space: which sequences may be produced, with one limit for each sentence.
        beam_size: int >= 1; may be larger than V.
        length_penalty: float >= 0, alpha; 0 compares plain log probabilities, larger values favour longer hypotheses.
        n_best: int from 1 to beam_size.
        reorder: `(state, rows (N,) int32) -> state`, gives each row the state of the hypothesis that it continues. By
            default, leaves of rank >= 1, whose leading dimension must be N, are gathered; leaves of rank 0 stay.

    Returns:
        A `SearchResult` with n = n_best.

    Raises:
        ValueError: An argument is out of range, a leaf of the state does not have N rows (with the default `reorder`),
            or the logits do not hold the special ids.

    Examples:
        After the start (1), token 3 is more probable than 4. But 3 and the end (2) together have the probability
        0.6 * 0.4, 4 and the end 0.4 * 1. One beam misses the better sequence, two beams find it:

        >>> chances = np.array([[0.2] * 5, [0, 0, 0, 0.6, 0.4], [0.2] * 5, [0, 0, 0.4, 0.3, 0.3], [0, 0, 1, 0, 0]])
        >>> next_logits = lambda tokens, state: (np.log(chances[tokens] + 1e-9), state)
        >>> space = SearchSpace(start_id=1, end_id=2, pad_id=0, max_lengths=np.array([2]), buffer_length=2)
        >>> [np.asarray(beam_search(next_logits, (), space, beam_size=k).tokens).tolist() for k in (1, 2)]
        [[[[3, 2]]], [[[4, 2]]]]
    """
    check_beam_options(beam_size, length_penalty, n_best)
    if beam_size == 1:
        result = greedy_search(next_logits, state, space)
        return result._replace(scores=result.scores / length_norm(result.lengths, length_penalty))
    if reorder is gather_rows:
        _check_rows(space, beam_size, state)
    return run(BeamSearch(space, beam_size, length_penalty, n_best, reorder), next_logits, state)


def _check_rows(space: SearchSpace, beam_size: int, state: Any) -> None:
    """Checks that every leaf of rank >= 1 has N rows, as `gather_rows` needs it, where the shapes are known."""
    sentences = space.limits.shape[0]
    if sentences is None:
        return
    rows = sentences * beam_size
    for leaf in keras.tree.flatten(state):
        if len(leaf.shape) > 0 and leaf.shape[0] not in (None, rows):
            raise ValueError(
                f"Every state leaf of rank >= 1 must have leading dimension {rows} (sentences x beams). "
                f"Received: a leaf of shape {tuple(leaf.shape)}. Repeat the state of each sentence for every beam, "
                "or pass a `reorder` of your own."
            )


class SearchWithBeams(Search):
    """What all beam searches have in common. `beam_search` describes the arguments."""

    def __init__(
        self,
        space: SearchSpace,
        beam_size: int,
        length_penalty: float,
        n_best: int,
        reorder: Callable[[Any, Any], Any],
    ) -> None:
        super().__init__(space)
        self.beam_size = beam_size
        self.length_penalty = length_penalty
        self.n_best = n_best
        self.reorder = reorder

    def keep(self, now: Any, sentences: Any) -> BeamState:
        rows = ops.expand_dims(sentences * self.beam_size, 1) + ops.arange(self.beam_size, dtype="int32")  # (B, K)
        staying = gather_rows(now._replace(constraints=()), sentences)
        return staying._replace(constraints=gather_rows(now.constraints, ops.reshape(rows, (-1,))))

    def _first_log_probs(self) -> Any:
        """(B, K) float32. All beams start with the same hypothesis, so all but the first count as empty."""
        only_first = ops.where(ops.arange(self.beam_size) == 0, 0.0, NO_HYPOTHESIS)  # (K,)
        return ops.broadcast_to(ops.cast(only_first, "float32"), (ops.shape(self.space.limits)[0], self.beam_size))

    def _in_beams(self, values: Any) -> Any:
        """(B, K), `values` (B,) in every beam."""
        return ops.repeat(ops.expand_dims(values, 1), self.beam_size, axis=1)

    def _in_every_beam(self, tokens: Any) -> Any:
        """(B, K, T) int32, `tokens` (B, t) at the beginning of the buffer of every beam."""
        buffer = buffer_of(tokens, self.space.buffer_length, self.space.pad_id)  # (B, T)
        return ops.repeat(ops.expand_dims(buffer, 1), self.beam_size, axis=1)


class BeamSearch(SearchWithBeams):
    """Beam search with at least two beams. `beam_search` describes it and its arguments."""

    @property
    def num_kept(self) -> int:
        """n, how many finished hypotheses of a sentence are kept."""
        return self.n_best

    def first_state(self) -> BeamState:
        space = self.space
        sentences = ops.shape(space.limits)[0]
        live, best = (sentences, self.beam_size), (sentences, self.num_kept)
        return BeamState(
            step=ops.convert_to_tensor(0, "int32"),
            last_tokens=self._in_beams(space.first_inputs()),
            live_tokens=ops.full((*live, space.buffer_length), space.pad_id, dtype="int32"),
            live_log_probs=self._first_log_probs(),
            finished_tokens=ops.full((*best, space.buffer_length), space.pad_id, dtype="int32"),
            finished_scores=ops.full(best, NO_HYPOTHESIS, dtype="float32"),
            finished_lengths=ops.zeros(best, dtype="int32"),
            limits=space.limits,
            done=ops.less_equal(space.limits, 0),
            constraints=space.start(ops.zeros((sentences, 0), dtype="int32"), self.beam_size),
        )

    def after(self, tokens: Any, log_probs: Any) -> BeamState:
        first, length = self.first_state(), ops.shape(tokens)[1] - 1
        return first._replace(
            step=ops.cast(length, "int32"),
            last_tokens=ops.broadcast_to(tokens[:, -1:], ops.shape(first.last_tokens)),
            live_tokens=self._in_every_beam(tokens[:, 1:]),
            live_log_probs=first.live_log_probs + ops.expand_dims(log_probs, 1),
            done=ops.less_equal(first.limits, length),
            constraints=self.space.start(tokens[:, 1:], self.beam_size),
        )

    def step(self, now: BeamState, next_logits: NextLogits, model_state: Any) -> tuple[BeamState, Any]:
        logits, model_state = next_logits(ops.reshape(now.last_tokens, (-1,)), model_state)
        candidates = self._best_candidates(now, logits)
        ends = self._ends(now, candidates)  # (B, 2K)
        new, parents = self._extend_live(now, candidates, ends)
        new = self._with_finished(now, new, candidates, ends)
        is_good_enough = ops.greater_equal(new.finished_scores[:, -1], self._score_to_stop_at(new))
        done = now.done | is_good_enough | ops.greater_equal(new.step, now.limits)
        rows = ops.reshape(flat_rows(parents, self.beam_size), (-1,))
        constraints = self.space.advance(gather_rows(now.constraints, rows), new.last_tokens)
        return new._replace(done=done, constraints=constraints), self.reorder(model_state, rows)

    def _ends(self, now: BeamState, candidates: Candidates) -> Any:
        """(B, 2K) bool, True for extensions that end a hypothesis."""
        return ops.equal(candidates.next_tokens, self.space.end_id)

    def _scores(self, now: BeamState, log_probs: Any, lengths: Any) -> Any:
        """The scores (B, M) of M hypotheses of each sentence, for their log probabilities and lengths, () or (B, 1)."""
        return log_probs / length_norm(lengths, self.length_penalty)

    def _score_to_stop_at(self, new: BeamState) -> Any:
        """(B,) float32: a sentence is done when the last of its finished hypotheses has this score.

        No live hypothesis can exceed it: log probabilities are at most 0, and lp grows with the length.
        """
        return new.live_log_probs[:, 0] / length_norm(new.limits, self.length_penalty)

    def _best_candidates(self, now: BeamState, logits: Any) -> Candidates:
        beams = self.beam_size
        # At most 2K of the best extensions can come from one beam.
        each = min(2 * beams, logits.shape[-1])
        log_probs, ids = self.space.best_tokens(now.constraints, logits, each)  # (B * K, each)
        log_probs, ids = self.space.with_forced(now.constraints, logits, log_probs, ids)
        totals = ops.reshape(now.live_log_probs, (-1, 1)) + log_probs
        best, indices = ops.top_k(
            ops.reshape(totals, (-1, beams * each)), 2 * beams
        )  # (B, 2K); the lower index first where two are equal
        indices = ops.cast(indices, "int32")
        next_tokens = take_columns(ops.reshape(ids, (-1, beams * each)), indices)
        return Candidates(best, ops.floor_divide(indices, each), next_tokens)

    def _extend_live(self, now: BeamState, candidates: Candidates, ends: Any) -> tuple[BeamState, Any]:
        """The state with the K best extensions that go on, and the beams (B, K) that they extend.

        Empty beams come last. Sentences that are done keep their hypotheses.
        """
        done = ops.expand_dims(now.done, 1)  # (B, 1)
        best, kept = ops.top_k(ops.where(ends, NO_HYPOTHESIS, candidates.log_probs), self.beam_size)  # (B, K)
        parents = ops.where(done, ops.arange(self.beam_size, dtype="int32"), take_columns(candidates.parents, kept))
        tokens = take_columns(candidates.next_tokens, kept)
        new = now._replace(
            step=now.step + 1,
            last_tokens=tokens,
            live_tokens=extended(take_columns(now.live_tokens, parents), tokens, now.step, ~done),
            live_log_probs=ops.where(done, now.live_log_probs, best),
        )
        return new, parents

    def _with_finished(self, now: BeamState, new: BeamState, candidates: Candidates, ends: Any) -> BeamState:
        """`new` with the n best of the finished hypotheses so far and the candidates that end."""
        done = ops.expand_dims(now.done, 1)  # (B, 1)
        scores = self._scores(new, candidates.log_probs, new.step)  # (B, 2K)
        scores = ops.where(ends & ~done, scores, NO_HYPOTHESIS)
        # The earlier hypotheses stand first, so that they stay first where scores are equal.
        best, kept = ops.top_k(ops.concatenate([now.finished_scores, scores], axis=1), self.num_kept)  # (B, n)
        # The origin of each hypothesis: one of the n finished ones, or one of the K live ones, to be ended.
        earlier = ops.broadcast_to(ops.arange(self.num_kept, dtype="int32"), ops.shape(now.finished_lengths))
        origins = take_columns(ops.concatenate([earlier, candidates.parents + self.num_kept], axis=1), kept)  # (B, n)
        hypotheses = ops.concatenate([now.finished_tokens, now.live_tokens], axis=1)  # (B, n + K, T)
        tokens = take_columns(hypotheses, origins)
        lengths = ops.concatenate([now.finished_lengths, ops.zeros_like(candidates.parents) + new.step], axis=1)
        ended = ops.greater_equal(origins, self.num_kept) & (best > NO_HYPOTHESIS)  # (B, n)
        return new._replace(
            finished_tokens=extended(tokens, self._last_tokens(candidates, kept), now.step, ended),
            finished_scores=best,
            finished_lengths=take_columns(lengths, kept),
        )

    def _last_tokens(self, candidates: Candidates, kept: Any) -> Any:
        """The last token of the hypotheses `kept` (B, n) of n finished ones and 2K candidates; one for all, or (B, n).

        Those of the finished ones do not matter.
        """
        return self.space.end_id

    def finished(self, now: BeamState) -> Any:
        return now.done

    def result(self, now: BeamState) -> SearchResult:
        """The finished hypotheses, best first, then live ones that were cut off at the limit."""
        limits = ops.expand_dims(now.limits, -1)  # (B, 1)
        cut_scores = self._scores(now, now.live_log_probs, limits)  # (B, K)
        cut_lengths = ops.zeros_like(now.last_tokens) + limits  # (B, K)
        scores = ops.concatenate([now.finished_scores, cut_scores], axis=1)  # (B, n + K)
        lengths = ops.concatenate([now.finished_lengths, cut_lengths], axis=1)
        tokens = ops.concatenate([now.finished_tokens, now.live_tokens], axis=1)  # (B, n + K, T)

        finished = ops.sum(ops.cast(now.finished_scores > NO_HYPOTHESIS, "int32"), axis=1, keepdims=True)  # (B, 1)
        rank = ops.arange(self.num_kept, dtype="int32")  # (n,)
        chosen = ops.where(rank < finished, rank, rank - finished + self.num_kept)  # (B, n)
        scores = take_columns(scores, chosen)
        exists = scores > NO_HYPOTHESIS
        tokens = ops.where(ops.expand_dims(exists, -1), take_columns(tokens, chosen), self.space.pad_id)
        return SearchResult(tokens, scores, ops.where(exists, take_columns(lengths, chosen), 0))


def extended(hypotheses: Any, tokens: Any, position: Any, chosen: Any) -> Any:
    """`hypotheses` (B, M, T) with `tokens` at `position`, where `chosen`, (B, 1) or (B, M), is True."""
    at_position = ops.equal(ops.arange(ops.shape(hypotheses)[2], dtype="int32"), position)  # (T,)
    here = at_position & ops.expand_dims(chosen, -1)  # (B, 1 or M, T)
    return ops.where(here, tokens if isinstance(tokens, int) else ops.expand_dims(tokens, -1), hypotheses)


def flat_rows(indices: Any, per_sentence: int) -> Any:
    """Converts indices (B, R) of rows within a sentence to indices (B, R) of rows within the whole batch."""
    first = ops.arange(ops.shape(indices)[0], dtype="int32") * per_sentence  # (B,)
    return ops.expand_dims(first, -1) + ops.cast(indices, "int32")


def check_beam_options(beam_size: int, length_penalty: float, n_best: int) -> None:
    """Raises a ValueError for an option of `beam_search` that is out of range."""
    if beam_size < 1:
        raise ValueError(f"beam_size must be at least 1. Received: beam_size={beam_size}. Pass 1 for greedy search.")
    if not 0 <= length_penalty < float("inf"):
        raise ValueError(
            f"length_penalty must be a finite number of at least 0. Received: length_penalty={length_penalty}. "
            "Pass 0 to compare plain log probabilities."
        )
    if not 1 <= n_best <= beam_size:
        raise ValueError(
            f"n_best must be from 1 to beam_size. Received: n_best={n_best}, beam_size={beam_size}. "
            "Raise beam_size or lower n_best."
        )
