"""Constraints: what a search may choose next. Each kind is a class.

`Searcher.constraints` in `kformer/text/searcher.py` chooses those of a model.

Letters: B sentences, K beams (1 in greedy search and sampling), N = B * K rows, P tokens read at once, F tokens of the
longest prefix, T buffer length, V vocabulary.
"""

from typing import Any

from keras import ops

from kformer.decoding.buffers import buffer_of, write_column


class Constraint:
    """A rule that every hypothesis of a search keeps.

    A constraint is an automaton: `start` gives the state of every row before its next token, and `advance` the state
    after it. A state is a nested structure of tensors: a tensor of rank 0 belongs to all rows, every other one has N
    rows. When beams are reordered, or finished sentences leave, the search gathers these rows, so that each state stays
    with its hypothesis. Row b * K + k is beam k of sentence b.

    Three methods say what may come next: `allowed` in general, `may_end` for the end token alone, and `forced` for a
    single token. By default they allow everything. The last two are much cheaper than the first. A subclass has its own
    version of those that it needs, in operations of `keras.ops` alone.

    A constraint only forbids. What it allows keeps the log probability that the model gives it, so the bound by which
    a beam search stops (see `beam_search`) holds with every constraint. Where nothing may follow, a beam search drops
    the hypothesis; greedy search and sampling end it with the end token and the score -inf.

    Examples:
        After an `a` (3) comes no second one. The state says where the last token was an `a`:

        >>> class NoDoubleA(Constraint):
        ...     def start(self, tokens, beams, buffer_length):
        ...         return np.zeros(tokens.shape[0] * beams, bool)
        ...
        ...     def allowed(self, state, vocab_size):
        ...         return ~state[:, None] | (np.arange(vocab_size) != 3)
        ...
        ...     def advance(self, state, tokens):
        ...         return tokens == 3
        >>> rule = NoDoubleA()
        >>> state = rule.advance(rule.start(np.zeros((2, 0)), 1, 10), np.array([3, 4]))
        >>> print(rule.allowed(state, 5))
        [[ True  True  True False  True]
         [ True  True  True  True  True]]
    """

    def start(self, tokens: Any, beams: int, buffer_length: Any) -> Any:
        """The first state.

        Args:
            tokens: (B, P) int32, what the sentences begin with and the model has read at once; P is usually 0.
            beams: K. All beams of a sentence begin alike.
            buffer_length: int or () int32, T, the largest number of tokens.
        """
        return ()

    def advance(self, state: Any, tokens: Any) -> Any:
        """The state after `tokens` (N,) int32: any ids in rows that are finished."""
        return state

    def allowed(self, state: Any, vocab_size: int) -> Any:
        """(N or 1, V) bool, True for tokens that may come next; None if all may."""
        return None

    def may_end(self, state: Any) -> Any:
        """(N,) or () bool, True where the end token may come next; None if it always may."""
        return None

    def forced(self, state: Any) -> Any:
        """(N,) int32, the token that comes next whatever else is forbidden, and the pad id where none is forced.

        None if no row has one.
        """
        return None


class Prefix(Constraint):
    """Every sentence's sequence begins with tokens of its own. They count for length and score like all others.

    Args:
        tokens: (B, F) int32, filled up with pad ids. Tokens beyond a sentence's limit are cut off.
        pad_id: int.

    Raises:
        ValueError: The tokens are not (B, F).

    Examples:
        The first sentence begins with 5 and 6, the second one with 7:

        >>> prefix = Prefix(np.array([[5, 6], [7, 0]]), pad_id=0)
        >>> state = prefix.advance(prefix.start(np.zeros((2, 0)), beams=1, buffer_length=10), np.array([5, 7]))
        >>> np.asarray(prefix.forced(state)).tolist()
        [6, 0]
    """

    def __init__(self, tokens: Any, pad_id: int) -> None:
        tokens = ops.cast(tokens, "int32")
        if len(tokens.shape) != 2:
            _refuse_prefix(tokens)
        self.tokens = tokens
        self.pad_id = pad_id

    def start(self, tokens: Any, beams: int, buffer_length: Any) -> Any:
        if len({*self.tokens.shape[:1], *tokens.shape[:1]} - {None}) > 1:
            _refuse_prefix(self.tokens)
        # A last column of pad ids, at which all rows stop.
        padded = ops.pad(self.tokens, [[0, 0], [0, 1]], constant_values=self.pad_id)
        return ops.repeat(padded, beams, axis=0), _number_of(tokens)  # (N, F + 1), ()

    def advance(self, state: Any, tokens: Any) -> Any:
        prefixes, position = state
        return prefixes, position + 1

    def forced(self, state: Any) -> Any:
        prefixes, position = state
        return prefixes[:, ops.minimum(position, ops.shape(prefixes)[1] - 1)]


def _refuse_prefix(tokens: Any) -> None:
    raise ValueError(
        "prefix must have shape (sentences, tokens): a row for each of max_lengths. "
        f"Received: shape {tuple(tokens.shape)}. Fill up shorter prefixes with the pad id."
    )


class MinLength(Constraint):
    """The end token comes after at least `min_length` others.

    Args:
        min_length: an int for all sentences, or (B,) int32.

    Raises:
        ValueError: `min_length` is negative, or of another shape.

    Examples:
        >>> rule = MinLength(1)
        >>> state = rule.start(np.zeros((1, 0)), beams=1, buffer_length=10)
        >>> bool(rule.may_end(state)), bool(rule.may_end(rule.advance(state, np.array([5]))))
        (False, True)
    """

    def __init__(self, min_length: Any) -> None:
        if isinstance(min_length, int) and min_length < 0:
            raise ValueError(
                f"min_length must be at least 0. Received: min_length={min_length}. Pass 0 for no minimum."
            )
        self.min_length = ops.cast(min_length, "int32")
        if len(self.min_length.shape) > 1:
            raise ValueError(
                "min_length must be an int, or have shape (sentences,): one minimum for each sentence. "
                f"Received: shape {tuple(self.min_length.shape)}. Repeat one minimum for all sentences."
            )

    def start(self, tokens: Any, beams: int, buffer_length: Any) -> Any:
        is_of_all = len(self.min_length.shape) == 0
        return _number_of(tokens), self.min_length if is_of_all else ops.repeat(self.min_length, beams)

    def advance(self, state: Any, tokens: Any) -> Any:
        length, least = state
        return length + 1, least

    def may_end(self, state: Any) -> Any:
        length, least = state
        return ops.greater_equal(length, least)


class ForcedEnd(Constraint):
    """A sequence that reaches its largest length has the end token there.

    Args:
        limits: (B,) int32, the largest lengths, the end token included.
        end_id: int.
        pad_id: int.

    Examples:
        >>> rule = ForcedEnd(np.array([2]), end_id=2, pad_id=0)
        >>> state = rule.start(np.zeros((1, 0)), beams=1, buffer_length=10)
        >>> np.asarray(rule.forced(state)).tolist(), np.asarray(rule.forced(rule.advance(state, [5]))).tolist()
        ([0], [2])
    """

    def __init__(self, limits: Any, end_id: int, pad_id: int) -> None:
        self.limits = ops.cast(limits, "int32")
        self.end_id = end_id
        self.pad_id = pad_id

    def start(self, tokens: Any, beams: int, buffer_length: Any) -> Any:
        limits = ops.minimum(self.limits, ops.cast(buffer_length, "int32"))
        return _number_of(tokens), ops.repeat(limits, beams)

    def advance(self, state: Any, tokens: Any) -> Any:
        length, limits = state
        return length + 1, limits

    def forced(self, state: Any) -> Any:
        length, limits = state
        return ops.where(ops.equal(length + 1, limits), self.end_id, self.pad_id)


class NoRepeatedNGrams(Constraint):
    """No n-gram (n tokens in a row) comes twice in a hypothesis; Paulus et al. 2018, section 2.5, with n = 3.

    It is the `no_repeat_ngram_size` of fairseq and JoeyNMT. The n-grams of a prefix count: what is forced may repeat
    them, and what comes behind it may not.

    Args:
        size: n, at least 1; with 1, no token comes twice.

    Raises:
        ValueError: `size` is below 1.

    Examples:
        After 5, 6 and another 5, a second 6 would repeat the bigram (5, 6):

        >>> rule = NoRepeatedNGrams(2)
        >>> state = rule.start(np.array([[5, 6, 5]], "int32"), beams=1, buffer_length=4)
        >>> np.asarray(rule.allowed(state, 8)).tolist()
        [[True, True, True, True, True, True, False, True]]
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(
                f"The size of an n-gram must be at least 1. Received: size={size}. Leave out the constraint if "
                "n-grams may be repeated."
            )
        self.size = size

    def start(self, tokens: Any, beams: int, buffer_length: Any) -> Any:
        history = ops.repeat(buffer_of(tokens, buffer_length, 0), beams, axis=0)  # (N, T)
        return history, _number_of(tokens)

    def advance(self, state: Any, tokens: Any) -> Any:
        history, length = state
        return write_column(history, tokens, length), length + 1

    def allowed(self, state: Any, vocab_size: int) -> Any:
        history, length = state
        rows = ops.shape(history)[0]
        repeats = self._would_repeat(history, length)  # (N, T)
        first_ids = ops.expand_dims(ops.arange(rows, dtype="int32") * vocab_size, 1)  # (N, 1), of V ids for each row
        flat = ops.reshape(first_ids + history, (-1, 1))
        times = ops.scatter(flat, ops.reshape(ops.cast(repeats, "int32"), (-1,)), (rows * vocab_size,))
        return ops.reshape(ops.equal(times, 0), (-1, vocab_size))

    def _would_repeat(self, history: Any, length: Any) -> Any:
        """(N, T), True where a token stands behind the same n - 1 tokens that the next one will stand behind."""
        positions = ops.arange(ops.shape(history)[1], dtype="int32")
        repeats = ops.less(positions, length) & ops.greater_equal(positions, self.size - 1)  # (T,)
        repeats = ops.broadcast_to(repeats, ops.shape(history))
        for distance in range(1, self.size):
            before_next = history[:, ops.maximum(length - distance, 0)]  # (N,)
            before_each = ops.roll(history, distance, axis=1)  # (N, T); what comes round is in the first n - 1 columns
            repeats = repeats & ops.equal(before_each, ops.expand_dims(before_next, 1))
        return repeats


def _number_of(tokens: Any) -> Any:
    """P of the tokens (B, P): () int32."""
    return ops.convert_to_tensor(ops.shape(tokens)[1], "int32")
