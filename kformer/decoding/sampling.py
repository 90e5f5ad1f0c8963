"""Sampling with temperature, top-k and top-p, reproducible from a seed.

Letters: B sentences, V vocabulary, R tokens that may be drawn.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from kformer.decoding.result import SearchResult
from kformer.decoding.row_search import RowSearch, RowState
from kformer.decoding.search import NextLogits, run
from kformer.decoding.space import SearchSpace
from kformer.indexing import take_columns

_LEAST_TEMPERATURE = 1e-30  # a processor may take smaller numbers of float32 for 0


class _FixedSeed(keras.random.SeedGenerator):
    """Passes a given key to `keras.random`, which accepts a traced key only in this form. It owns no variable."""

    def __init__(self, key: Any) -> None:  # The parent's __init__ is not called: it would create a variable.
        self.key = key

    def next(self, ordered: bool = True) -> Any:
        return ops.cast(self.key, "uint32")  # the dtype of JAX's keys; TensorFlow takes it, too


def sample(
    next_logits: NextLogits,
    state: Any,
    space: SearchSpace,
    *,
    seed: Any,
    temperature: Any = 1.0,
    top_k: Any = 0,
    top_p: Any = 1.0,
    read: Sequence[Any] | None = None,
) -> SearchResult:
    """Draws every token from the model's distribution, as narrowed by `temperature`, `top_k` and `top_p`.

    The three apply in this order: log probabilities are divided by `temperature`; the `top_k` most probable
    tokens stay, and their probabilities are renormalised; the smallest set whose probability reaches `top_p` stays
    (nucleus sampling, Holtzman et al. 2020, section 3.1). Of tokens with equal probability, the lower id stays.
    The same seed, arguments and batch give the same tokens on the same backend. TensorFlow draws other tokens if XLA
    compiles the search.

    Args:
        next_logits: see `greedy_search`.
        state: see `greedy_search`.
        space: which sequences may be produced.
        seed: int from -2**63 to 2**64 - 1, or (2,) integer tensor, which may be an input of a traced graph. The lower
            32 bits of both numbers of a tensor count.
        temperature: float > 0; values below 1 make probable tokens more probable, values above 1 less.
        top_k: int; 0 keeps every token.
        top_p: float in (0, 1]; 1 keeps every token. `temperature`, `top_k` and `top_p` may also be tensors of rank 0,
            such as the inputs of a graph; then their values are not checked.
        read: the arguments of `Search.after`, if the model has already read the first tokens of every sentence; None
            if it has read nothing.

    Returns:
        A `SearchResult` with n = 1; the score is the sum of float32 log probabilities under the model itself:
        before temperature, top-k and top-p.

    Raises:
        ValueError: An argument is out of range, or the logits do not hold the special ids.

    Examples:
        The same seed draws the same tokens, and `top_k=1` always gives the most probable token:

        >>> next_logits = lambda tokens, state: (np.log([[0.1, 0.1, 0.1, 0.4, 0.3]]), state)
        >>> space = SearchSpace(start_id=1, end_id=2, pad_id=0, max_lengths=np.array([4]), buffer_length=4)
        >>> np.array_equal(*(sample(next_logits, (), space, seed=7).tokens for _ in range(2)))
        True
        >>> np.asarray(sample(next_logits, (), space, seed=7, top_k=1).tokens).tolist()
        [[[3, 3, 3, 3]]]
    """
    check_sampling_options(seed, temperature, top_k, top_p)
    search = _Sampling(space, _first_key(seed), temperature, top_k, top_p)
    return run(search, next_logits, state, None if read is None else search.after(*read))


class _Sampling(RowSearch):
    """Draws every token; see `sample`. `first_key` is (2,) int32."""

    def __init__(self, space: SearchSpace, first_key: Any, temperature: Any, top_k: Any, top_p: Any) -> None:
        super().__init__(space)
        self.first_key = first_key
        self.temperature = temperature
        self.top_k = top_k
        self.top_p = top_p

    def choose(self, now: RowState, logits: Any) -> tuple[Any, Any]:
        log_probs = self.space.log_probabilities(now.constraints, logits)  # (B, V)
        ranked, ids = narrowed_logits(log_probs, self.temperature, self.top_k, self.top_p)  # (B, R)
        # Different keys give unrelated draws. The first key is a random number of 60 bits, so the keys of two seeds are
        # almost certainly different at every step.
        key = self.first_key + ops.stack([ops.zeros_like(now.step), now.step])
        drawn = keras.random.categorical(ranked, 1, dtype="int32", seed=_FixedSeed(key))
        # Where nothing may come next, what is drawn means nothing, and TensorFlow draws a number that is too large.
        chosen = take_columns(ids, ops.minimum(drawn, ranked.shape[-1] - 1))  # (B, 1)
        return take_columns(log_probs, chosen), chosen


def narrowed_logits(log_probs: Any, temperature: Any, top_k: Any, top_p: Any) -> tuple[Any, Any]:
    """The logits to draw from and their token ids, most probable first where tokens are cut off, else in order of ids.

    Args:
        log_probs: (B, V) float32, -inf for forbidden tokens.
        temperature: see `sample`.
        top_k: see `sample`.
        top_p: see `sample`.

    Returns:
        (B, R) float32 with -inf for tokens that were cut off, and (B, R) int32 ids; R is `top_k`, or V if `top_k` is
        0 or a tensor.
    """
    vocab_size = log_probs.shape[-1]
    is_number = isinstance(top_k, int | np.integer)
    kept = min(top_k, vocab_size) if is_number and top_k else vocab_size
    log_probs = log_probs / ops.maximum(temperature, _LEAST_TEMPERATURE)
    cuts = not isinstance(top_p, float | int) or top_p < 1.0
    if is_number and kept == vocab_size and not cuts:  # Nothing is cut off, so the vocabulary need not be sorted.
        ids = ops.broadcast_to(ops.arange(vocab_size, dtype="int32"), ops.shape(log_probs))
        return log_probs, ids
    ranked, ids = ops.top_k(log_probs, kept)  # (B, R); the lower id first where two are equal
    if not is_number:
        stays = ops.equal(top_k, 0) | ops.less(ops.arange(vocab_size, dtype="int32"), top_k)  # (V,)
        ranked = ops.where(stays, ranked, float("-inf"))
    if cuts and kept > 1:
        probs = ops.softmax(ranked, axis=-1)
        before = ops.cumsum(probs, axis=-1) - probs  # (B, R), the probability of all tokens that rank higher
        # The sums are rounded. If `top_p` is 1, the second condition keeps tokens of almost no probability, too.
        ranked = ops.where(ops.less(before, top_p) | ops.equal(top_p, 1.0), ranked, float("-inf"))
    return ranked, ops.cast(ids, "int32")


def check_sampling_options(seed: Any, temperature: Any, top_k: Any, top_p: Any) -> None:
    """Raises a ValueError for an option of `sample` that is out of range. The values of tensors are not checked."""
    if isinstance(seed, int | np.integer):
        if not -(2**63) <= seed < 2**64:
            raise ValueError(
                f"seed must be from -2**63 to 2**64 - 1. Received: seed={seed}. Pass a number of at most 64 bits."
            )
    else:
        _check_seed_tensor(ops.convert_to_tensor(seed))
    if _is_known(temperature) and not 0 < temperature < float("inf"):
        raise ValueError(
            f"temperature must be a finite number greater than 0. Received: temperature={temperature}. "
            "For the most probable token at every step use greedy search (beam size 1)."
        )
    if _is_known(top_k) and (not isinstance(top_k, int | np.integer) or top_k < 0):
        raise ValueError(f"top_k must be an int of at least 0. Received: top_k={top_k}. Pass 0 to keep every token.")
    if _is_known(top_p) and not 0 < top_p <= 1:
        raise ValueError(f"top_p must be above 0 and at most 1. Received: top_p={top_p}. Pass 1 to keep every token.")


def _is_known(option: Any) -> bool:
    return not keras.ops.is_tensor(option)


def _check_seed_tensor(seed: Any) -> None:
    dtype = keras.backend.standardize_dtype(seed.dtype)
    if tuple(seed.shape) != (2,) or not keras.backend.is_int_dtype(dtype):
        raise ValueError(
            "seed must be an int or an integer tensor of shape (2,). "
            f"Received: shape {tuple(seed.shape)} and dtype {dtype}. Pass one seed for the whole batch."
        )


def _first_key(seed: Any) -> Any:
    """The (2,) int32 key of the first step. It depends on all 64 bits of the seed."""
    if isinstance(seed, int | np.integer):
        seed = np.array([int(seed) % 2**32, (int(seed) >> 32) % 2**32], "uint32")
    words = ops.cast(seed, "uint32")  # (2,)
    low = ops.cast(ops.bitwise_and(words, 2**16 - 1), "int32")
    high = ops.cast(ops.right_shift(words, 16), "int32")
    return _hashed(_hashed(low) + high)


def _hashed(key: Any) -> Any:
    """Two random numbers from a key, (2,) int32, from 0 to 2**30 - 1. Similar keys give unrelated numbers.

    With a step added, the numbers stay below 2**31. TensorFlow uses such keys unchanged, and reduces larger ones.
    """
    return keras.random.randint((2,), 0, 2**30, dtype="int32", seed=_FixedSeed(key))
