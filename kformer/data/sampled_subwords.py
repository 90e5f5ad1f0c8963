"""Subword regularization: the texts of a batch are divided into subwords anew each time they are seen.

Shapes: B rows, L length, I ids, N pairs.
"""

import numpy as np

from kformer.config import SAMPLING_FIELDS, TrainingConfig
from kformer.data.arrangements import NO_GROWTH, Arrangement, Batch, Growth, Rows
from kformer.data.encoding import EncodedPairs
from kformer.tokenizers import Tokenizer
from kformer.tokenizers.subword_sampling import SAMPLERS, Subwords, SubwordSampler

_MEASURED = 1000  # sequences of which the growth is measured
_UNLIMITED = 1 << 62


class SampledSubwords(Arrangement):
    """Divides the texts of a batch anew, and hands them on to another arrangement.

    A text that does not fit into its row then keeps its usual ids. `growth` makes this rare, but no text gets more than
    the run's `max_length` ids.

    Args:
        arrangement: Makes the inputs and labels.
        source, target: How the texts of a side are divided; None: as usual.

    Examples:
        >>> words = Subwords("unigram", ("", "▁a", "▁", "a"), (0.0, -1.0, -1.0, -1.0))  # id 0 is padding
        >>> ids = np.array([[1, 1, 0, 0]])
        >>> rows = Rows(ids, ids, source_pad_id=0, target_pad_id=0, start_id=9)
        >>> arrangement = SampledSubwords(ShiftedTarget(), None, UnigramSampling(words, alpha=1.0))
        >>> inputs, labels = arrangement.arrange(rows, np.random.default_rng(1))
        >>> inputs["source"].tolist(), inputs["target_in"].tolist(), labels.tolist()
        ([[1, 1, 0, 0]], [[9, 1, 2, 0]], [[1, 2, 3, 0]])
    """

    def __init__(self, arrangement: Arrangement, source: SubwordSampler | None, target: SubwordSampler | None) -> None:
        self.arrangement = arrangement
        self.inputs = arrangement.inputs  # type: ignore[misc]  # they are those of a class elsewhere
        self.source, self.target = source, target

    def arrange(self, rows: Rows, random: np.random.Generator) -> Batch:
        source = _sampled(self.source, rows.source, rows.source_pad_id, random)
        target = _sampled(self.target, rows.target, rows.target_pad_id, random)
        return self.arrangement.arrange(rows._replace(source=source, target=target), random)

    def growth(self, pairs: EncodedPairs) -> tuple[Growth, Growth]:
        """Measured on a thousand pairs at equal distances, by random numbers that are always the same."""
        return (
            _growth(self.source, pairs.source_ids, pairs.source_offsets),
            _growth(self.target, pairs.target_ids, pairs.target_offsets),
        )


def with_sampled_subwords(
    arrangement: Arrangement, source: Tokenizer | None, target: Tokenizer | None, training: TrainingConfig
) -> Arrangement:
    """The arrangement, of texts that are divided anew if the configuration asks for it.

    Args:
        arrangement: Makes the inputs and labels.
        source, target: The tokenizer of a side; None: its texts are not used, or always have their usual subwords.
        training: As of `subword_sampler`.
    """
    of_source = None if source is None else subword_sampler(source.subwords(), training)
    of_target = of_source
    if target is not source:
        of_target = None if target is None else subword_sampler(target.subwords(), training)
    return arrangement if of_source is of_target is None else SampledSubwords(arrangement, of_source, of_target)


def subword_sampler(subwords: Subwords | None, training: TrainingConfig) -> SubwordSampler | None:
    """Divides texts anew as the configuration says; None: they have their usual subwords.

    Args:
        subwords: As of `Tokenizer.subwords`.
        training: Its fields `bpe_dropout` and `unigram_alpha` are used.

    Examples:
        >>> subword_sampler(Subwords("bpe", ("▁a",), (-1.0,)), TrainingConfig(bpe_dropout=0.1)).dropout
        0.1
    """
    if subwords is None or subwords.kind not in SAMPLING_FIELDS:
        return None
    strength = getattr(training, SAMPLING_FIELDS[subwords.kind])
    return SAMPLERS[subwords.kind](subwords, strength) if strength else None


def _sampled(sampler: SubwordSampler | None, rows: np.ndarray, pad_id: int, random: np.random.Generator) -> np.ndarray:
    """(B, L) int32: the rows with new ids."""
    if sampler is None:
        return rows
    real = rows != pad_id
    ids, counts = sampler.sample(rows[real], real.sum(axis=1), rows.shape[1], random)
    found = np.full_like(rows, pad_id)
    found[np.arange(rows.shape[1]) < counts[:, None]] = ids
    return found


def _growth(sampler: SubwordSampler | None, ids: np.ndarray, offsets: np.ndarray) -> Growth:
    """Of sequences, whose (I,) ids and (N + 1,) offsets are those of `EncodedPairs`."""
    if sampler is None:
        return NO_GROWTH
    some = np.unique(np.linspace(0, len(offsets) - 2, _MEASURED).astype(np.int64))
    counts = np.asarray(offsets[some + 1]) - offsets[some]
    chosen = np.concatenate([ids[start : start + count] for start, count in zip(offsets[some], counts, strict=True)])
    _, found = sampler.sample(chosen, counts, _UNLIMITED, np.random.default_rng(0))
    more, total = found - counts, int(counts.sum())
    mean = int(more.sum()) / total
    return Growth(mean, float(np.sum(np.square(more - mean * counts))) / total)
