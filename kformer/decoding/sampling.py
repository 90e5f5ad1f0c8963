"""Sampling with temperature, top-k and top-p, reproducible from a seed."""

from typing import Any

import keras
from keras import ops

from kformer.decoding.constraints import NextLogits, SearchConstraints
from kformer.decoding.loop import decode_rows
from kformer.decoding.result import SearchResult


class _FixedSeed(keras.random.SeedGenerator):
    """Hands a given key to `keras.random`, which takes a traced key in no other form. Owns no variable."""

    def __init__(self, key: Any) -> None:  # The parent would create the variable: it is not called.
        self.key = key

    def next(self, ordered: bool = True) -> Any:
        return self.key


def sample(
    next_logits: NextLogits,
    state: Any,
    constraints: SearchConstraints,
    *,
    seed: Any,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
) -> SearchResult:
    """Draws every token from the model's distribution, as narrowed by `temperature`, `top_k` and `top_p`.

    The three apply in this order: log probabilities are divided by `temperature`; the `top_k` most probable
    tokens stay; of these, renormalised, the smallest set whose probability reaches `top_p` stays (nucleus
    sampling, Holtzman et al. 2020, section 3.1). Equal probabilities: the lower id stays.
    The same seed, arguments and batch give the same tokens on the same backend.

    Args:
        next_logits: see `greedy_search`.
        state: see `greedy_search`.
        constraints: what may be produced.
        seed: int, or (2,) integer tensor (which may be an input of a traced graph).
        temperature: float > 0; below 1 sharpens.
        top_k: int; 0 keeps every token.
        top_p: float in (0, 1]; 1 keeps every token.

    Returns:
        A `SearchResult` with n = 1; the score is the sum of float32 log probabilities under the model itself:
        before temperature, top-k and top-p.

    Raises:
        ValueError: An argument is out of range, or the logits do not hold the special ids.
    """
    _check_sampling(temperature, top_k, top_p)
    key = _seed_key(seed)

    def choose(logits: Any, step: Any) -> tuple[Any, Any]:
        log_probs = constraints.log_probabilities(logits, step)  # (B, V)
        ranked, ids = narrowed_logits(log_probs, temperature, top_k, top_p)
        step_key = key + ops.stack([ops.zeros_like(step), step])  # One key a step.
        # uint32 is JAX's key dtype; TensorFlow takes it, too.
        drawn = keras.random.categorical(ranked, 1, dtype="int32", seed=_FixedSeed(ops.cast(step_key, "uint32")))
        chosen = ops.take_along_axis(ids, drawn, axis=-1)  # (B, 1)
        gain = ops.take_along_axis(log_probs, chosen, axis=-1)
        return ops.squeeze(chosen, -1), ops.squeeze(gain, -1)

    return decode_rows(next_logits, state, constraints, choose)


def narrowed_logits(log_probs: Any, temperature: float, top_k: int, top_p: float) -> tuple[Any, Any]:
    """The logits to draw from, most probable first, and their token ids.

    Args:
        log_probs: (B, V) float32, -inf for what may not come.

    Returns:
        (B, R) float32 with -inf for what was cut off, and (B, R) int32 ids; R is `top_k`, or V.
    """
    vocab_size = log_probs.shape[-1]
    kept = min(top_k, vocab_size) if top_k else vocab_size
    if kept == vocab_size and top_p == 1.0:  # Nothing is cut off: no need to sort the vocabulary.
        ids = ops.broadcast_to(ops.arange(vocab_size, dtype="int32"), ops.shape(log_probs))
        return log_probs / temperature, ids
    ranked, ids = ops.top_k(log_probs / temperature, kept)  # (B, R); equal values: lower id first
    if top_p < 1.0 and kept > 1:
        probs = ops.softmax(ranked, axis=-1)
        before = ops.cumsum(probs, axis=-1) - probs  # (B, R), probability of all ranks above
        ranked = ops.where(ops.less(before, top_p), ranked, float("-inf"))
    return ranked, ids


def _seed_key(seed: Any) -> Any:
    if isinstance(seed, int):
        # 30 bits each leave room for the step in int32.
        seed = [seed % 2**30, (seed >> 30) % 2**30]
    key = ops.cast(ops.convert_to_tensor(seed), "int32")
    if tuple(key.shape) != (2,):
        raise ValueError(
            f"seed must be an int or an integer tensor of shape (2,). Received: shape {tuple(key.shape)}. "
            "Pass one seed for the whole batch."
        )
    return key


def _check_sampling(temperature: float, top_k: int, top_p: float) -> None:
    if not 0 < temperature < float("inf"):
        raise ValueError(
            f"temperature must be a finite number greater than 0. Received: temperature={temperature}. "
            "For the most probable token at every step use greedy_search."
        )
    if top_k < 0:
        raise ValueError(f"top_k must be at least 0. Received: top_k={top_k}. Pass 0 to keep every token.")
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p must be above 0 and at most 1. Received: top_p={top_p}. Pass 1 to keep every token.")
