"""Beam search with the length penalty of Google's NMT system (Wu et al. 2016).

Letters: B sentences, K beams (beam_size), n hypotheses returned (n_best), T buffer length, V vocabulary,
N = B * K rows.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from kformer.decoding.constraints import NextLogits, SearchConstraints, state_tensors, write_column
from kformer.decoding.greedy import greedy_search
from kformer.decoding.result import SearchResult

NO_HYPOTHESIS = float("-inf")  # log probability of a beam that is empty


class BeamState(NamedTuple):
    """The loop's variables. Live hypotheses are those without an end token; they go on."""

    step: Any  # () int32; number of tokens of every live hypothesis of a sentence that is not done
    last_tokens: Any  # (B, K) int32; newest token of each live hypothesis
    live_tokens: Any  # (B, K, T) int32
    live_log_probs: Any  # (B, K) float32, in falling order; -inf where there is no hypothesis
    finished_tokens: Any  # (B, n, T) int32
    finished_scores: Any  # (B, n) float32, divided by the length penalty, in falling order; -inf: no hypothesis
    finished_lengths: Any  # (B, n) int32, the end token included
    done: Any  # (B,) bool; True if the sentence's result is final
    model_state: Any  # nested tensors that only next_logits and reorder read and change


class _Candidates(NamedTuple):
    """The 2K best extensions of a sentence's live hypotheses, best first."""

    log_probs: Any  # (B, 2K) float32
    parents: Any  # (B, 2K) int32, beam from 0 to K - 1
    next_tokens: Any  # (B, 2K) int32
    tokens: Any  # (B, 2K, T) int32


class _Search(NamedTuple):
    """The arguments of a search that stay the same in every step."""

    constraints: SearchConstraints
    beam_size: int
    length_penalty: float
    n_best: int
    reorder: Callable[[Any, Any], Any]


def gather_rows(state: Any, rows: Any) -> Any:
    """The state in which row i continues the hypothesis of the old row `rows[i]`.

    Every leaf of rank >= 1 is gathered along its first axis.
    """
    return keras.tree.map_structure(lambda leaf: ops.take(leaf, rows, axis=0) if len(leaf.shape) else leaf, state)


def beam_search(
    next_logits: NextLogits,
    state: Any,
    constraints: SearchConstraints,
    *,
    beam_size: int = 4,
    length_penalty: float = 0.6,
    n_best: int = 1,
    reorder: Callable[[Any, Any], Any] = gather_rows,
) -> SearchResult:
    """Finds the `n_best` finished hypotheses with the highest score, among those that a beam of `beam_size` meets.

    A hypothesis Y has the score log P(Y) / lp(Y) with lp(Y) = ((5 + |Y|) / 6) ** length_penalty (Wu et al. 2016,
    equation 14, without coverage), where |Y| counts the end token. Each step looks at the 2K best extensions of a
    sentence's live hypotheses. At most K of them end, so at least K can go on. Extensions that end join the
    sentence's finished hypotheses, of which the n best stay.

    A sentence is done at its limit, or when its n-th finished hypothesis is at least as good as any live one can
    become. Log probabilities only fall and lp only grows, so log P / lp(limit) is an upper bound of what a live
    hypothesis can become. The result of a sentence that is done stays as it is, whatever the rest of the batch does.
    Of equal scores, the shorter hypothesis comes first, then that of the better beam, then the lower id.

    Where fewer than n hypotheses are finished, live ones that were cut off at the limit follow behind them. They have
    no end token, and their log probability is divided by lp(limit). Where even these are too few (in a small
    vocabulary), the rest has score -inf, length 0 and pad ids.

    With `beam_size=1` this is greedy search whose score is divided by lp: the only beam ends with its first end token.

    Row b * K + k of the tokens, the logits and the state is beam k of sentence b.

    Args:
        next_logits: `(tokens (N,) int32, state) -> (logits (N, V) any float, state)`.
        state: nested structure of tensors.
        constraints: which sequences may be produced, with one limit for each sentence.
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
    """
    check_beam_options(beam_size, length_penalty, n_best)
    if beam_size == 1:
        result = greedy_search(next_logits, state, constraints)
        return result._replace(scores=result.scores / length_norm(result.lengths, length_penalty))
    search = _Search(constraints, beam_size, length_penalty, n_best, reorder)

    def unfinished(*values: Any) -> Any:
        return ops.logical_not(ops.all(BeamState(*values).done))

    def step(*values: Any) -> BeamState:
        return _next_state(next_logits, search, BeamState(*values))

    last = BeamState(*ops.while_loop(unfinished, step, tuple(_first_state(search, state))))
    return _result(search, last)


def length_norm(lengths: Any, length_penalty: float) -> Any:
    """lp(Y) = ((5 + |Y|) / 6) ** alpha, Wu et al. 2016, equation 14; float32, shape of `lengths`."""
    return ops.power((5.0 + ops.cast(lengths, "float32")) / 6.0, length_penalty)


def _first_state(search: _Search, state: Any) -> BeamState:
    constraints = search.constraints
    state = state_tensors(state)
    _check_rows(search, state)
    sentences = ops.shape(constraints.limits)[0]
    live, best = (sentences, search.beam_size), (sentences, search.n_best)
    # All beams start alike. Only the first one counts, or else every beam would hold the same hypothesis.
    only_first = ops.where(ops.arange(search.beam_size) == 0, 0.0, NO_HYPOTHESIS)  # (K,)
    return BeamState(
        step=ops.convert_to_tensor(0, "int32"),
        last_tokens=ops.full(live, constraints.start_id, dtype="int32"),
        live_tokens=ops.full((*live, constraints.buffer_length), constraints.pad_id, dtype="int32"),
        live_log_probs=ops.broadcast_to(ops.cast(only_first, "float32"), live),
        finished_tokens=ops.full((*best, constraints.buffer_length), constraints.pad_id, dtype="int32"),
        finished_scores=ops.full(best, NO_HYPOTHESIS, dtype="float32"),
        finished_lengths=ops.zeros(best, dtype="int32"),
        done=ops.less_equal(constraints.limits, 0),
        model_state=state,
    )


def _check_rows(search: _Search, state: Any) -> None:
    """Checks that every leaf of rank >= 1 has N rows, as `gather_rows` needs it, where the shapes are known."""
    sentences = search.constraints.limits.shape[0]
    if sentences is None or search.reorder is not gather_rows:
        return
    rows = sentences * search.beam_size
    for leaf in keras.tree.flatten(state):
        if len(leaf.shape) > 0 and leaf.shape[0] not in (None, rows):
            raise ValueError(
                f"Every state leaf of rank >= 1 must have leading dimension {rows} (sentences x beams). "
                f"Received: a leaf of shape {tuple(leaf.shape)}. Repeat the state of each sentence for every beam, "
                "or pass a `reorder` of your own."
            )


def _next_state(next_logits: NextLogits, search: _Search, now: BeamState) -> BeamState:
    constraints = search.constraints
    logits, model_state = next_logits(ops.reshape(now.last_tokens, (-1,)), now.model_state)
    candidates = _best_candidates(search, now, logits)
    ends = ops.equal(candidates.next_tokens, constraints.end_id)  # (B, 2K)

    # The K best extensions that go on. Empty beams come last, where they do no harm.
    live_log_probs, kept = ops.top_k(ops.where(ends, NO_HYPOTHESIS, candidates.log_probs), search.beam_size)  # (B, K)
    parents = ops.take_along_axis(candidates.parents, kept, axis=1)  # (B, K)
    finished_tokens, finished_scores, finished_lengths = _merge_finished(search, now, candidates, ends)

    # Log probabilities are at most 0 and lp grows with the length: no live hypothesis can get a better score than this.
    best_attainable = live_log_probs[:, 0] / length_norm(constraints.limits, search.length_penalty)  # (B,)
    no_better_to_come = ops.greater_equal(finished_scores[:, -1], best_attainable)
    new = BeamState(
        step=now.step + 1,
        last_tokens=ops.take_along_axis(candidates.next_tokens, kept, axis=1),
        live_tokens=_take_hypotheses(candidates.tokens, kept),
        live_log_probs=live_log_probs,
        finished_tokens=finished_tokens,
        finished_scores=finished_scores,
        finished_lengths=finished_lengths,
        done=no_better_to_come | ops.greater_equal(now.step + 1, constraints.limits),
        model_state=search.reorder(model_state, ops.reshape(_flat_rows(parents, search.beam_size), (-1,))),
    )
    return _freeze_done(now, new)


def _best_candidates(search: _Search, now: BeamState, logits: Any) -> _Candidates:
    beams = search.beam_size
    # At most 2K of the best extensions can come from one beam.
    each = min(2 * beams, logits.shape[-1])
    log_probs, ids = search.constraints.best_tokens(logits, now.step, each)  # (B * K, each)
    totals = ops.reshape(now.live_log_probs, (-1, 1)) + log_probs
    best, indices = ops.top_k(
        ops.reshape(totals, (-1, beams * each)), 2 * beams
    )  # (B, 2K); the lower index first where two are equal
    indices = ops.cast(indices, "int32")
    parents = ops.floor_divide(indices, each)
    next_tokens = ops.take_along_axis(ops.reshape(ids, (-1, beams * each)), indices, axis=1)
    tokens = write_column(_take_hypotheses(now.live_tokens, parents), next_tokens, now.step)  # (B, 2K, T)
    return _Candidates(best, parents, next_tokens, tokens)


def _merge_finished(search: _Search, now: BeamState, candidates: _Candidates, ends: Any) -> tuple[Any, Any, Any]:
    """The n best of the finished hypotheses so far and the candidates that end: tokens, scores, lengths."""
    scores = candidates.log_probs / length_norm(now.step + 1, search.length_penalty)  # (B, 2K)
    # The earlier hypotheses stand first, so that they stay first where scores are equal.
    scores = ops.concatenate([now.finished_scores, ops.where(ends, scores, NO_HYPOTHESIS)], axis=1)  # (B, n + 2K)
    tokens = ops.concatenate([now.finished_tokens, candidates.tokens], axis=1)  # (B, n + 2K, T)
    new_lengths = ops.zeros_like(candidates.next_tokens) + now.step + 1  # (B, 2K)
    lengths = ops.concatenate([now.finished_lengths, new_lengths], axis=1)
    best, kept = ops.top_k(scores, search.n_best)  # (B, n)
    return _take_hypotheses(tokens, kept), best, ops.take_along_axis(lengths, kept, axis=1)


def _freeze_done(now: BeamState, new: BeamState) -> BeamState:
    """`new`, but with the old values for sentences that were done, except for their model state, which is not used."""

    def old_where_done(old: Any, fresh: Any) -> Any:
        done = ops.reshape(now.done, (-1,) + (1,) * (len(old.shape) - 1))
        return ops.where(done, old, fresh)

    frozen = {
        name: old_where_done(getattr(now, name), getattr(new, name))
        for name in BeamState._fields
        if name not in ("step", "model_state")
    }
    return new._replace(**frozen)


def _result(search: _Search, last: BeamState) -> SearchResult:
    """The finished hypotheses, best first, then live ones that were cut off at the limit."""
    limits = ops.expand_dims(search.constraints.limits, -1)  # (B, 1)
    cut_scores = last.live_log_probs / length_norm(limits, search.length_penalty)  # (B, K)
    cut_lengths = ops.zeros_like(last.last_tokens) + limits  # (B, K)
    scores = ops.concatenate([last.finished_scores, cut_scores], axis=1)  # (B, n + K)
    lengths = ops.concatenate([last.finished_lengths, cut_lengths], axis=1)
    tokens = ops.concatenate([last.finished_tokens, last.live_tokens], axis=1)  # (B, n + K, T)

    finished = ops.sum(ops.cast(last.finished_scores > NO_HYPOTHESIS, "int32"), axis=1, keepdims=True)  # (B, 1)
    rank = ops.arange(search.n_best, dtype="int32")  # (n,)
    chosen = ops.where(rank < finished, rank, rank - finished + search.n_best)  # (B, n)
    scores = ops.take_along_axis(scores, chosen, axis=1)
    exists = scores > NO_HYPOTHESIS
    tokens = ops.where(ops.expand_dims(exists, -1), _take_hypotheses(tokens, chosen), search.constraints.pad_id)
    return SearchResult(tokens, scores, ops.where(exists, ops.take_along_axis(lengths, chosen, axis=1), 0))


def _take_hypotheses(tokens: Any, indices: Any) -> Any:
    """Gathers `tokens` (B, M, T) along its second axis by `indices` (B, R): (B, R, T)."""
    sentences, per_sentence, length = ops.shape(tokens)
    flat = ops.reshape(tokens, (sentences * per_sentence, length))  # (B * M, T)
    return ops.take(flat, _flat_rows(indices, per_sentence), axis=0)  # one gather of whole rows


def _flat_rows(indices: Any, per_sentence: int) -> Any:
    """Converts indices (B, R) of rows within a sentence to indices (B, R) of rows within the whole batch."""
    first = ops.arange(ops.shape(indices)[0], dtype="int32") * per_sentence  # (B,)
    return ops.expand_dims(first, -1) + ops.cast(indices, "int32")


def check_beam_options(beam_size: int, length_penalty: float, n_best: int) -> None:
    """Raises a ValueError for an option of `beam_search` that is out of range."""
    if beam_size < 1:
        raise ValueError(f"beam_size must be at least 1. Received: beam_size={beam_size}. Pass 1 for greedy search.")
    if not 0 <= length_penalty < float("inf"):
        raise ValueError(
            f"length_penalty must be a finite number from 0 up. Received: length_penalty={length_penalty}. "
            "Pass 0 to compare plain log probabilities."
        )
    if not 1 <= n_best <= beam_size:
        raise ValueError(
            f"n_best must be from 1 to beam_size. Received: n_best={n_best}, beam_size={beam_size}. "
            "Raise beam_size or lower n_best."
        )
