"""How long the texts are that a run learns from: its model translates what is much longer badly.

A model that never saw more than a sentence or two at once leaves out the end of a paragraph. So a run folder keeps
these numbers in `decoding.json`, and the model gets longer lines in parts.
"""

from collections.abc import Iterable

import numpy as np

from kformer.config import DecodingConfig, task_kind
from kformer.data import EncodedPairs, Pair

# A line longer than 95 % of the training sources is divided into its sentences. With 99 %, two verses of `bible-en-es`
# on a line were translated worse (BLEU 36.9 for 37.9), and single verses no better.
_LINES = 95
# Fewer than 1 in 1,000 training pairs have a shorter target for their source.
_SHORT = 0.1


def search_of_data(task: str, pairs: Iterable[Pair], encoded: EncodedPairs) -> DecodingConfig:
    """The paper's search, within the lengths of the training texts.

    Args:
        task: One of `kformer.config.TASKS`.
        pairs: The training pairs of the task.
        encoded: Their ids.
    """
    lengths = np.diff(encoded.source_offsets)
    longest = int(lengths.max())
    kind = task_kind(task)
    if kind.has_labels:  # their answers for longer texts are as good, and what they do not read is lost
        return DecodingConfig(max_source_length=max(longest, DecodingConfig().longest_source))
    if kind.targets != "text":
        return DecodingConfig(max_source_length=longest)
    line = int(np.percentile(lengths, _LINES, method="higher"))
    stripped = ((source.strip(), target.strip()) for source, target in pairs)
    ratios = (len(target) / len(source) for source, target in stripped if source and target)
    short = round(float(np.percentile(np.fromiter(ratios, float), _SHORT)), 3)
    return DecodingConfig(max_source_length=line, max_sentence_length=longest, short_ratio=short)


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
