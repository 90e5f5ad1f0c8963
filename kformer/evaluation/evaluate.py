"""A model's scores on a test set: it translates or labels the sources, or tells how probable they are."""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kformer.data import Pair, references
from kformer.data.label_checks import labels_of
from kformer.evaluation.metrics import (
    bleu_and_chrf,
    label_scores,
    phoneme_error_rate,
    translation_edit_rate,
    word_error_rate,
)
from kformer.text.batches import AnswerBatch, answer_all
from kformer.wording import count


def sentences(pairs: Iterable[Pair], symbols: bool = False) -> list[tuple[str, list[str]]]:
    """Each source with its references. Pairs with a blank target, which is no reference, are left out.

    Args:
        pairs: Test pairs.
        symbols: Whether all targets of a source are its references, as with the pronunciations of a word. Otherwise
            every pair is scored by itself, even if two have the same source.
    """
    filled = [(source, target) for source, target in pairs if target.strip()]
    return list(references(filled).items()) if symbols else [(source, [target]) for source, target in filled]


def _some(found: list[Any], what: str) -> list[Any]:
    """What there is to evaluate.

    Raises:
        ValueError: There is nothing.
    """
    if not found:
        raise ValueError(f"There is nothing to evaluate: the test set has no {what}. Name another split or file.")
    return found


def score(
    translate: AnswerBatch,
    pairs: Iterable[Pair],
    symbols: bool = False,
    limit: int | None = None,
    on_batch: Callable[[int], None] = lambda done: None,
    bleu_tokenizer: str | None = None,
) -> dict[str, Any]:
    """Translates the sources and compares the translations with the targets.

    Args:
        translate: Such as a `kformer.inference.Model`.
        pairs: Test pairs.
        symbols: Whether word and phoneme error rate are wanted, instead of BLEU and chrF; see `sentences`.
        limit: The number of results of `sentences` to score, from the first one; None: all.
        on_batch: Called after each batch with the number of sources in it.
        bleu_tokenizer: As in `kformer.evaluation.bleu_and_chrf`.

    Returns:
        Plain values for one line of JSON.

    Raises:
        ValueError: There are no pairs with a target.
    """
    return score_parts(translate, [pairs], symbols, limit, on_batch, bleu_tokenizer)[0]


def score_parts(
    translate: AnswerBatch,
    parts: Sequence[Iterable[Pair]],
    symbols: bool = False,
    limit: int | None = None,
    on_batch: Callable[[int], None] = lambda done: None,
    bleu_tokenizer: str | None = None,
    ter: bool = False,
) -> list[dict[str, Any]]:
    """As `score`, of several test sets together, and then of each apart, in their order.

    Args:
        translate, symbols, on_batch, bleu_tokenizer: As of `score`.
        parts: Pairs of each test set.
        limit: The number of results of `sentences` to score, about the same number of each test set.
        ter: Whether the translation edit rate is wanted, too, which takes longer than the other scores.
    """
    found = translated(translate, parts, symbols, limit, on_batch)
    ends = [*itertools.accumulate(found.sizes)]
    places = [slice(None), *(slice(end - size, end) for end, size in zip(ends, found.sizes, strict=True))]
    return [measured(found.translations[one], found.references[one], symbols, bleu_tokenizer, ter) for one in places]


class Translated(NamedTuple):
    """A test set and its translations, one part after another.

    Attributes:
        sources, translations: Texts.
        references: Those of each source.
        sizes: How many sources each part has.
    """

    sources: list[str]
    translations: list[str]
    references: list[list[str]]
    sizes: list[int]


def translated(
    translate: AnswerBatch,
    parts: Sequence[Iterable[Pair]],
    symbols: bool = False,
    limit: int | None = None,
    on_batch: Callable[[int], None] = lambda done: None,
) -> Translated:
    """The translations of several test sets; arguments as of `score_parts`."""
    limits = [None] * len(parts) if limit is None else [max(1, limit // len(parts))] * len(parts)
    grouped = [
        _some(sentences(pairs, symbols)[:most], "pairs with a target")
        for pairs, most in zip(parts, limits, strict=True)
    ]
    sources = [source for part in grouped for source, _ in part]
    answers = answer_all(translate, [source.encode("utf-8") for source in sources], on_batch=on_batch)
    references = [texts for part in grouped for _, texts in part]
    return Translated(sources, [found[0].text for found in answers], references, [*map(len, grouped)])


def measured(
    found: Sequence[str],
    targets: Sequence[Sequence[str]],
    symbols: bool,
    bleu_tokenizer: str | None,
    ter: bool = False,
) -> dict[str, Any]:
    """The scores of translations; arguments as of `score_parts`."""
    if not symbols:
        edits = translation_edit_rate(found, targets) if ter else {}
        return {**bleu_and_chrf(found, targets, bleu_tokenizer), **edits}
    return {**word_error_rate(found, targets), **phoneme_error_rate(found, targets)}


def score_labels(
    classify: AnswerBatch,
    pairs: Iterable[Pair],
    limit: int | None = None,
    on_batch: Callable[[int], None] = lambda done: None,
) -> dict[str, Any]:
    """Finds the labels of the sources and compares them with the targets.

    Args:
        classify: A `kformer.inference.Model`, with the task "classify" or "tag". A tagger's answer has a
            label for each word.
        pairs: Test pairs.
        limit, on_batch: As in `score`.

    Returns:
        Plain values for one line of JSON, see `label_scores`; and `whole`, the share of texts whose labels are all
        right, and `texts`, their number.

    Raises:
        ValueError: There are no pairs with a target.
    """
    chosen = _some(sentences(pairs)[:limit], "pairs with a target")
    answers = answer_all(classify, [text.encode("utf-8") for text, _ in chosen], on_batch=on_batch)
    found = [labels_of(hypotheses[0].text) for hypotheses in answers]
    right = [labels_of(target) for _, (target,) in chosen]
    for (text, _), labels, expected in zip(chosen, found, right, strict=True):
        if len(labels) != len(expected):
            raise ValueError(
                f"A text must have as many labels as the model gives. Received: {count(len(expected), 'label')} where "
                f"the model gives {len(labels)}, for the text {text[:60]!r}. Correct the test set."
            )
    whole = sum(labels == expected for labels, expected in zip(found, right, strict=True))
    flat = [list(itertools.chain.from_iterable(rows)) for rows in (found, right)]
    return {**label_scores(*flat), "whole": whole / len(chosen), "texts": len(chosen)}


def score_texts(
    read: Callable[[Sequence[str]], Mapping[str, np.ndarray]], texts: Sequence[str], limit: int | None = None
) -> dict[str, float | int]:
    """How well a language model predicts texts. Blank texts are left out.

    In training, `kformer.metrics.Perplexity` measures the pieces of texts that a batch has.

    Args:
        read: `LanguageModel.score`, or another function that gives `log_probability` and `tokens` of each text.
        texts: Test texts.
        limit: The number of texts to score, from the first one; None: all.

    Returns:
        `perplexity`, e to the mean negative log probability of a token; `bits_per_character`, the negative binary
        logarithm of the probability of all texts, divided by the number of their characters; `tokens`, the end of each
        text included; `characters` and `texts`.

    Raises:
        ValueError: There are no texts.

    Examples:
        Each of two tokens, "a" and the end, has the probability 1/4:

        >>> read = lambda texts: {"log_probability": np.log([1 / 16]), "tokens": np.array([2])}
        >>> found = score_texts(read, ["a"])
        >>> round(found["perplexity"], 6), round(found["bits_per_character"], 6)
        (4.0, 4.0)
    """
    chosen = _some([text for text in texts if text.strip()][:limit], "texts")
    found = read(chosen)
    nats, tokens = -float(np.sum(found["log_probability"], dtype=np.float64)), int(found["tokens"].sum())
    characters = sum(map(len, chosen))
    return {
        "perplexity": math.exp(nats / tokens),
        "bits_per_character": nats / math.log(2) / characters,
        "tokens": tokens,
        "characters": characters,
        "texts": len(chosen),
    }
