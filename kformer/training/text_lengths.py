"""How long the texts are that a run learns from: its model translates what is much longer badly.

A model that never saw more than a sentence or two at once leaves out the end of a paragraph. So a run folder keeps
these numbers in `decoding.json`, and the model gets longer lines in parts.
"""

import numpy as np

from kformer.config import DecodingConfig, task_kind
from kformer.data import EncodedPairs
from kformer.data.buckets import count_lengths

# A line longer than 95 % of the training sources is divided into its sentences. With 99 %, two verses of `bible-en-es`
# on a line were translated worse (BLEU 36.9 for 37.9), and single verses no better.
_LINES = 95


def search_of_data(task: str, short_ratio: float | None, encoded: EncodedPairs) -> DecodingConfig:
    """The paper's search, within the lengths of the training texts.

    Args:
        task: One of `kformer.config.TASKS`.
        short_ratio: Of the training pairs, see `kformer.data.corpus_facts.CorpusFacts`.
        encoded: The ids of the training pairs.
    """
    lengths = count_lengths(encoded.source_offsets, encoded.source_offsets)
    longest = int(lengths.source.max())
    kind = task_kind(task)
    if kind.has_labels:  # their answers for longer texts are as good, and what they do not read is lost
        return DecodingConfig(max_source_length=max(longest, DecodingConfig().longest_source))
    if kind.targets != "text":
        return DecodingConfig(max_source_length=longest)
    return DecodingConfig(
        max_source_length=_line(lengths.source, lengths.pairs), max_sentence_length=longest, short_ratio=short_ratio
    )


def _line(lengths: np.ndarray, counts: np.ndarray) -> int:
    """The least length that all but 5 in 100 texts do not exceed; `counts` texts have each of the lengths."""
    order = np.argsort(lengths)
    return int(lengths[order][np.searchsorted(np.cumsum(counts[order]) - 1, _LINES / 100 * (counts.sum() - 1))])


def lengths_report(task: str, search: DecodingConfig) -> str:
    """One line that says what the model will be given at once."""
    if task_kind(task).targets != "text":
        return f"The model reads at most {search.longest_source:,} tokens at once"
    found = (
        f"The translator divides lines of more than {search.longest_line} source tokens into sentences, and sentences "
        f"of more than {search.longest_source} into parts"
    )
    if search.max_sentence_length is None:  # a run folder without lengths of its data
        return found
    return f"{found}: at most 5 % of the training sources are longer than the first, and none is longer than the second"
