"""Which word of a text belongs to which word of its translation.

Words are what stands between white space, and are counted from 0. A pair such as `0-1` says that word 1 of the
translation belongs to word 0 of the text: the form of the shared task of Och and Ney (2003), which is also called
Pharaoh's, as fast_align, eflomal and Moses write and read it.
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from kformer.text.batches import Hypothesis
from kformer.writing_systems import WHITESPACE

_BLANKS = re.compile(f"([{WHITESPACE}]+)")


def with_alignments(
    found: list[list[Hypothesis]], texts: Sequence[bytes], outputs: Mapping[str, np.ndarray]
) -> list[list[Hypothesis]]:
    """The first hypothesis of each text, with the alignment of its words.

    Args:
        found: From `kformer.text.batches.hypotheses`.
        texts: (B,) UTF-8.
        outputs: Of the signature `translate_detailed`, see `kformer.Translator.translate_detailed`.
    """
    rows = []
    for row, (hypotheses, text) in enumerate(zip(found, texts, strict=True)):
        best = hypotheses[0]
        weights = _token_weights(outputs, row)
        source = _words(text, outputs["source_start"][row], outputs["source_end"][row])
        target = _words(best.text.encode(), outputs["target_start"][row], outputs["target_end"][row])
        rows.append([best._replace(alignment=aligned(weights, source, target))])
    return rows


def aligned(weights: np.ndarray, source: np.ndarray, target: np.ndarray) -> str:
    """For each word of the target, the word of the source to which its tokens attend most.

    Args:
        weights: (T, S) float: how much each target token attends to each source token.
        source: (S,) int: the word of each source token, -1 for a token of none.
        target: (T,) int: the same of the target tokens.

    Examples:
        The second target word has two tokens, which attend to the first source word most in sum:

        >>> weights = np.array([[0.1, 0.9], [0.8, 0.2], [0.4, 0.6]])
        >>> aligned(weights, source=np.array([0, 1]), target=np.array([0, 1, 1]))
        '0-1 1-0'
    """
    if not (source >= 0).any() or not (target >= 0).any():
        return ""
    sums = np.zeros((target.max() + 1, source.max() + 1))
    tokens = np.nonzero(target >= 0)[0][:, np.newaxis], np.nonzero(source >= 0)[0]
    np.add.at(sums, (target[tokens[0]], source[tokens[1]]), weights[tokens])
    words = np.nonzero(sums.sum(axis=1) > 0)[0]
    pairs = sorted((int(sums[word].argmax()), int(word)) for word in words)
    return " ".join(f"{one}-{other}" for one, other in pairs)


def _token_weights(outputs: Mapping[str, np.ndarray], row: int) -> np.ndarray:
    """(T, S) float32: the attention of each target token, in the places of the source tokens of the whole text."""
    sources, targets = outputs["source_start"].shape[1], outputs["target_start"].shape[1]
    part = outputs["alignment"][row]  # (T, the longest part): a divided text has its parts one after the other
    width = part.shape[1]
    weights = np.zeros((targets, sources + width), np.float32)
    columns = outputs["alignment_start"][row][:, np.newaxis] + np.arange(width)
    weights[np.arange(targets)[:, np.newaxis], columns] = part
    return weights[:, :sources]


def _words(text: bytes, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The number of the word in which each token has its first byte that is no white space; -1 if it has none."""
    pieces = _BLANKS.split(text.decode("utf-8", "surrogateescape"))  # words at even places; the outer ones may be empty
    bounds = np.cumsum([0, *(len(piece.encode("utf-8", "surrogateescape")) for piece in pieces)])
    spans = np.stack([bounds[:-1:2], bounds[1::2]], axis=1)
    spans = spans[spans[:, 0] < spans[:, 1]]
    words = np.searchsorted(spans[:, 1], starts, side="right")  # the first word that ends behind the token's start
    within = (words < len(spans)) & (ends > starts)
    begins = np.append(spans[:, 0], len(text) + 1)[words]
    return np.where(within & (begins < ends), words, -1)
