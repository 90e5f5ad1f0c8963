"""Records all hypotheses that a beam search considers, step by step, so that they can be shown. Letter: K beams."""

from typing import Any, Literal, NamedTuple

import numpy as np
from keras import ops

from kformer.decoding.beam_search import NO_HYPOTHESIS, BeamSearch, BeamState, Candidates
from kformer.decoding.length_penalty import length_norm
from kformer.decoding.search import NextLogits

START = -1  # the parent of the first extensions, which extend no other extension
Outcome = Literal["kept", "finished", "pruned"]


class Extension(NamedTuple):
    """A hypothesis that a search considered: a kept hypothesis and one more token."""

    parent: int  # the number of the extension that this one extends, or START
    token: int
    length: int  # tokens so far, this one included
    log_prob: float  # of all tokens so far
    score: float  # the log probability divided by the length penalty: equation 14 of Wu et al. (2016)
    outcome: Outcome  # kept in a beam, finished by the end token, or pruned because it was not among the best


class _Tracing(BeamSearch):
    """A `BeamSearch` that keeps the candidates of its last step."""

    candidates: Candidates

    def _best_candidates(self, now: BeamState, logits: Any) -> Candidates:
        self.candidates = super()._best_candidates(now, logits)
        return self.candidates


def trace_beam_search(search: BeamSearch, next_logits: NextLogits, model_state: Any) -> list[Extension]:
    """All extensions that a search of one sentence considered: in each step the 2K best ones, best first.

    Args:
        search: A search of one sentence.
        next_logits: As in `beam_search`.
        model_state: The model's first state.

    Raises:
        ValueError: There is not exactly one sentence.
    """
    if search.space.limits.shape[0] != 1:
        raise ValueError(
            f"A trace needs a search of exactly one sentence. Received: {search.space.limits.shape[0]} sentences."
        )
    options = (search.beam_size, search.length_penalty, search.n_best, search.reorder)
    tracing = _Tracing(search.space, *options)
    now = tracing.first_state()
    found: list[Extension] = []
    beams = [START] * search.beam_size  # the numbers of the extensions that the beams hold
    while not bool(ops.convert_to_numpy(tracing.finished(now))[0]):
        now, model_state = tracing.step(now, next_logits, model_state)
        first = len(found)
        found += _extensions(tracing, beams, int(now.step))
        kept = [number for number in range(first, len(found)) if found[number].outcome == "kept"]
        beams = kept + [START] * (search.beam_size - len(kept))  # an empty beam has no extensions
    return found


def _extensions(search: _Tracing, beams: list[int], length: int) -> list[Extension]:
    """The candidates of the last step that are hypotheses, each with its outcome."""
    log_probs, parents, tokens = (ops.convert_to_numpy(part)[0] for part in search.candidates)
    norm = float(ops.convert_to_numpy(length_norm(np.array(length), search.length_penalty)))
    found, room = [], search.beam_size
    for log_prob, parent, token in zip(log_probs.tolist(), parents.tolist(), tokens.tolist(), strict=True):
        if log_prob == NO_HYPOTHESIS:
            continue
        outcome: Outcome = "pruned"
        if token == search.space.end_id:
            outcome = "finished"
        elif room:
            outcome, room = "kept", room - 1
        found.append(Extension(beams[parent], token, length, log_prob, log_prob / norm, outcome))
    return found
