"""A model's scores on a test set: the model translates the sources, `kformer.evaluation.metrics` compares."""

from collections.abc import Callable, Sequence
from typing import Any

from kformer.data import Pair, references
from kformer.evaluation.metrics import bleu_and_chrf, phoneme_error_rate, word_error_rate
from kformer.translation.batches import TranslateBatch, translate_all


def sentences(pairs: Sequence[Pair], symbols: bool = False) -> list[tuple[str, list[str]]]:
    """Each source with its references. Pairs of two blank texts, such as blank lines of a file, are left out.

    Args:
        pairs: Test pairs.
        symbols: Whether all targets of a source are its references, as with the pronunciations of a word. Otherwise
            every pair is scored by itself, even if two have the same source.
    """
    filled = [(source, target) for source, target in pairs if source.strip() or target.strip()]
    return list(references(filled).items()) if symbols else [(source, [target]) for source, target in filled]


def score(
    translate: TranslateBatch,
    pairs: Sequence[Pair],
    symbols: bool = False,
    limit: int | None = None,
    on_batch: Callable[[int], None] = lambda done: None,
) -> dict[str, Any]:
    """Translates the sources and compares the translations with the targets.

    Args:
        translate: From `kformer.inference.load.load_model`.
        pairs: Test pairs.
        symbols: Whether word and phoneme error rate are wanted, instead of BLEU and chrF; see `sentences`.
        limit: The number of results of `sentences` to score, from the first one; None: all.
        on_batch: Called after each batch with the number of sources in it.

    Returns:
        Plain values for one line of JSON.

    Raises:
        ValueError: There are no pairs.
    """
    grouped = sentences(pairs, symbols)
    if not grouped:
        raise ValueError("There is nothing to evaluate: the test set has no pairs. Name another split or file.")
    grouped = grouped[:limit]
    sources = [source.encode("utf-8") for source, _ in grouped]
    hypotheses = [found[0].text for found in translate_all(translate, sources, on_batch=on_batch)]
    targets = [texts for _, texts in grouped]
    if not symbols:
        return bleu_and_chrf(hypotheses, targets)
    return {**word_error_rate(hypotheses, targets), **phoneme_error_rate(hypotheses, targets)}
