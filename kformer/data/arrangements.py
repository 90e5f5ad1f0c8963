"""Makes the inputs and labels of a model from the ids of a batch, in another way for each task.

Shapes: B rows, S source length, T target length, V vocabulary.
"""

import abc
import math
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from kformer.data.encoding import EncodedPairs

Batch = tuple[dict[str, np.ndarray], np.ndarray]

MASKED_SHARE = 0.15  # Devlin et al. (2019), section 3.1; the two shares below, too
REPLACED_BY_MASK = 0.8  # of the chosen tokens
REPLACED_AT_RANDOM = 0.1


class Rows(NamedTuple):
    """The ids of a batch, filled up with pad ids. Some rows of a batch may consist of pad ids only."""

    source: np.ndarray  # (B, S) int32
    target: np.ndarray  # (B, T) int32
    source_pad_id: int
    target_pad_id: int
    start_id: int | np.ndarray  # one for all rows, or (B,) int32
    aligned: np.ndarray | None = None  # (B, T, S) uint8: 1 where two tokens translate each other


class Growth(NamedTuple):
    """How much longer sequences become when they are arranged.

    Attributes:
        mean: The mean number of more ids for each id.
        variance: The variance of the number of more ids of a sequence, divided by its ids.

    Examples:
        >>> Growth(0.0, 0.0).room(20), Growth(0.25, 0.16).room(20)  # 20 + 5 + 2 sqrt(0.16 * 20)
        (20, 29)
    """

    mean: float
    variance: float

    def room(self, length: int) -> int:
        """A length that is enough for nearly all sequences of so many ids: their mean and two standard deviations."""
        return math.ceil(length * (1 + self.mean) + 2 * math.sqrt(self.variance * length))


NO_GROWTH = Growth(0.0, 0.0)


class Arrangement(abc.ABC):
    """Makes the model's inputs and labels from the ids of a batch.

    Examples:
        >>> rows = Rows(np.array([[7, 2]]), np.array([[8, 9, 2]]), source_pad_id=0, target_pad_id=0, start_id=1)
        >>> inputs, labels = ShiftedTarget().arrange(rows, np.random.default_rng(0))
        >>> {name: ids.tolist() for name, ids in inputs.items()}, labels.tolist()
        ({'source': [[7, 2]], 'target_in': [[1, 8, 9]]}, [[8, 9, 2]])
    """

    inputs: ClassVar[tuple[str, ...]]  # the names of the model's inputs
    matrices: ClassVar[tuple[str, ...]] = ()  # those of inputs that are (B, T, S) uint8, for which pairs are aligned

    @abc.abstractmethod
    def arrange(self, rows: Rows, random: np.random.Generator) -> Batch:
        """The model's inputs and its labels (B, L) int32; positions with pad ids have no loss.

        The inputs are (B, ...) int32 each; those of `matrices` are uint8.

        Args:
            rows: The ids.
            random: Makes the random numbers of this batch. The same batch gets the same ones in every run.
        """

    def growth(self, pairs: "EncodedPairs") -> tuple[Growth, Growth]:
        """How much longer the sources and the targets of these pairs become. By default they keep their lengths."""
        return NO_GROWTH, NO_GROWTH


class ShiftedTarget(Arrangement):
    """Translation: the decoder reads the start id and the target, and predicts the target (section 3.1, Figure 1)."""

    inputs = ("source", "target_in")

    def arrange(self, rows: Rows, random: np.random.Generator) -> Batch:
        return {"source": rows.source, "target_in": shifted(rows)}, rows.target


class AlignedTarget(ShiftedTarget):
    """Translation, of pairs with word alignments, which `kformer.models.GuidedAlignment` learns from.

    Examples:
        >>> aligned = np.array([[[1, 0], [0, 1]]], np.uint8)
        >>> rows = Rows(np.array([[7, 2]]), np.array([[8, 2]]), 0, 0, start_id=1, aligned=aligned)
        >>> inputs, _ = AlignedTarget().arrange(rows, np.random.default_rng(0))
        >>> inputs["alignment"].tolist()
        [[[1, 0], [0, 1]]]
    """

    matrices = ("alignment",)

    def arrange(self, rows: Rows, random: np.random.Generator) -> Batch:
        inputs, labels = super().arrange(rows, random)
        if rows.aligned is None:
            raise ValueError("These pairs have no alignments. Encode them with a store that is aligned.")
        return {**inputs, "alignment": rows.aligned}, labels


class NextToken(Arrangement):
    """A language model: it reads the start id and the target, and predicts the target. The source is not used.

    Args:
        has_start: Whether it reads the start id. If not, it reads the target, and predicts what follows its first
            token.
    """

    inputs = ("target_in",)

    def __init__(self, has_start: bool = True) -> None:
        self.has_start = has_start

    def arrange(self, rows: Rows, random: np.random.Generator) -> Batch:
        if self.has_start:
            return {"target_in": shifted(rows)}, rows.target
        following = _lengthened(rows.target[:, 1:], rows.target.shape[1], rows.target_pad_id)
        return {"target_in": np.where(following == rows.target_pad_id, rows.target_pad_id, rows.target)}, following


class SourceToLabels(Arrangement):
    """Classification and tagging: the model reads the source. The target is one label, or a label for each token."""

    inputs = ("source",)

    def __init__(self, for_each_token: bool) -> None:
        self.for_each_token = for_each_token

    def arrange(self, rows: Rows, random: np.random.Generator) -> Batch:
        if not self.for_each_token:
            return {"source": rows.source}, rows.target[:, :1]
        length = max(rows.source.shape[1], rows.target.shape[1])
        source = _lengthened(rows.source, length, rows.source_pad_id)
        return {"source": source}, _lengthened(rows.target, length, rows.target_pad_id)


class MaskedTokens(Arrangement):
    """Masked language model: some tokens of the source are hidden, and the model predicts them.

    In each row 15 % of the tokens are chosen, at least one. 80 % of these become the mask id, 10 % a random token, and
    10 % stay (Devlin et al. 2019, section 3.1, task 1). Every epoch chooses other tokens.

    Args:
        ordinary: (V,) booleans, True for ids that stand for text. Only these are hidden, or put in place of others.
        mask_id: The id that hides a token.
        word_starts: (V,) booleans, True for tokens that begin a word: then whole words are chosen, with all their
            tokens. The first token of a row begins a word, too. None: each token is chosen by itself.
    """

    inputs = ("source",)

    def __init__(self, ordinary: np.ndarray, mask_id: int, word_starts: np.ndarray | None = None) -> None:
        self.ordinary = ordinary
        self.ids = np.flatnonzero(ordinary)
        self.mask_id = mask_id
        self.word_starts = word_starts

    def arrange(self, rows: Rows, random: np.random.Generator) -> Batch:
        source = rows.source
        chosen = self._choose(source, random)
        kind = random.random(source.shape)
        by_chance = self.ids[random.integers(len(self.ids), size=source.shape)]
        hidden = np.where(kind < REPLACED_BY_MASK, self.mask_id, source)
        hidden = np.where(kind >= 1 - REPLACED_AT_RANDOM, by_chance, hidden)
        labels = np.where(chosen, source, rows.target_pad_id)
        return {"source": np.where(chosen, hidden, source).astype(np.int32)}, labels.astype(np.int32)

    def _choose(self, source: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """(B, S) booleans: the tokens that are predicted."""
        ordinary = self.ordinary[source]
        number = np.cumsum(ordinary, axis=1)
        begins = ordinary if self.word_starts is None else ordinary & (self.word_starts[source] | (number == 1))
        word = np.cumsum(begins, axis=1) - 1
        draw = np.where(ordinary, np.take_along_axis(random.random(source.shape), word.clip(0), axis=1), 1.0)
        lowest = draw.min(axis=1, keepdims=True, initial=1.0)
        return ordinary & ((draw < MASKED_SHARE) | (draw == lowest))


def shifted(rows: Rows) -> np.ndarray:
    """(B, T) int32: the start id, followed by the target without its last id."""
    target_in = np.full_like(rows.target, rows.target_pad_id)
    target_in[:, 1:] = np.where(rows.target[:, 1:] == rows.target_pad_id, rows.target_pad_id, rows.target[:, :-1])
    target_in[:, 0] = np.where(rows.target[:, 0] == rows.target_pad_id, rows.target_pad_id, rows.start_id)
    return target_in


def _lengthened(ids: np.ndarray, length: int, pad_id: int) -> np.ndarray:
    return np.pad(ids, [(0, 0), (0, length - ids.shape[1])], constant_values=pad_id)
