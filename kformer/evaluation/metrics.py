"""Scores of translations and pronunciations, as plain dicts: one line of JSON each.

Every sentence has a list of references, of any length from 1 up.
"""

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import sacrebleu

from kformer.evaluation.bleu_tokenizers import bleu_metric, suitable_bleu_tokenizer


def bleu_and_chrf(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], tokenizer: str | None = None
) -> dict[str, Any]:
    """Corpus BLEU (Papineni et al. 2002) and chrF2 (Popović 2015) by sacreBLEU, with its default settings.

    Args:
        hypotheses: one text per sentence, detokenized.
        references: the reference texts of each sentence, detokenized. Blank ones do not count, and sentences without
            another one are left out.
        tokenizer: how BLEU splits texts into words, one of `kformer.config.BLEU_TOKENIZERS`; None: by the script of the
            references, see `kformer.evaluation.bleu_tokenizers.suitable_bleu_tokenizer`. `bleu_signature` names it.

    Returns:
        `bleu` and `chrf`, from 0 to 100; `bleu_signature` and `chrf_signature`, which name the settings and version
        (Post 2018); `sentences`, the number of those that were scored.

    Raises:
        ValueError: There are no sentences to score, the lengths differ, a sentence has no reference, or the tokenizer
            cannot be used.

    Examples:
        >>> scores = bleu_and_chrf(["The cat sat down."], [["The cat sat down.", "The cat took a seat."]])
        >>> round(scores["bleu"], 1), round(scores["chrf"], 1), scores["sentences"]
        (100.0, 100.0, 1)
        >>> scores = bleu_and_chrf(["他去了城里的市场。"], [["他去了城市的市场。"]])  # each character is a word
        >>> round(scores["bleu"], 2), scores["bleu_signature"].split("|")[3]
        (59.69, 'tok:zh')
    """
    hypotheses, references = without_blanks(hypotheses, references)
    streams = reference_streams(references)
    tokenizer = tokenizer or suitable_bleu_tokenizer(itertools.chain.from_iterable(references))
    bleu, chrf = bleu_metric(tokenizer), sacrebleu.CHRF()
    return {
        "bleu": bleu.corpus_score(hypotheses, streams).score,
        "bleu_signature": str(bleu.get_signature()),
        "chrf": chrf.corpus_score(hypotheses, streams).score,
        "chrf_signature": str(chrf.get_signature()),
        "sentences": len(hypotheses),
    }


def translation_edit_rate(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Corpus TER (Snover et al. 2006) by sacreBLEU, with its default settings. Lower is better.

    It is the number of edits that turn the hypotheses into the nearest references, for 100 words of the references.
    An edit inserts, removes or replaces a word, or moves a sequence of words. Words are what blanks divide, so TER does
    not suit scripts without blanks. It takes seconds for 500 sentences, and minutes if most words of the hypotheses are
    right but in another order.

    Args:
        hypotheses, references: As of `bleu_and_chrf`.

    Returns:
        `ter`, from 0 up, above 100 if there are more edits than words; and `ter_signature`.

    Raises:
        ValueError: There are no sentences to score, the lengths differ, or a sentence has no reference.

    Examples:
        One of four words is wrong:

        >>> translation_edit_rate(["the cat sat up"], [["the cat sat down"]])["ter"]
        25.0
    """
    hypotheses, references = without_blanks(hypotheses, references)
    ter = sacrebleu.TER()
    return {
        "ter": ter.corpus_score(hypotheses, reference_streams(references)).score,
        "ter_signature": str(ter.get_signature()),
    }


def reference_streams(references: Sequence[Sequence[str]]) -> list[Any]:
    """The references as sacreBLEU wants them: the first of every sentence, then the second; None where there is none.

    Examples:
        >>> reference_streams([["a"], ["b", "c"]])
        [['a', 'b'], [None, 'c']]
    """
    most = max(len(texts) for texts in references)
    return [[texts[n] if n < len(texts) else None for texts in references] for n in range(most)]


def word_error_rate(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, Any]:
    """The share of words whose pronunciation equals none of the references.

    This is the word error rate of grapheme-to-phoneme conversion: a word is right or wrong as a whole.

    Args:
        hypotheses: one pronunciation a word, symbols split by blanks.
        references: all accepted pronunciations of each word.

    Returns:
        `word_error_rate` (wrong / words, from 0 to 1), `wrong_words` and `words`.

    Raises:
        ValueError: There are no words, the lengths differ, or a word has no reference.

    Examples:
        >>> word_error_rate(["T AH M EY T OW", "K AA T"], [["T AH M AA T OW", "T AH M EY T OW"], ["K AE T"]])
        {'word_error_rate': 0.5, 'wrong_words': 1, 'words': 2}
    """
    _check(hypotheses, references)
    wrong = sum(
        hypothesis.split() not in [text.split() for text in texts]
        for hypothesis, texts in zip(hypotheses, references, strict=True)
    )
    return {"word_error_rate": wrong / len(hypotheses), "wrong_words": wrong, "words": len(hypotheses)}


def phoneme_error_rate(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, Any]:
    """The number of edits to the nearest references, divided by the number of phonemes in these references.

    PER = sum_i d(h_i, r_i) / sum_i |r_i|, where r_i is the reference of word i with the smallest edit distance d
    (Levenshtein: substitutions, insertions and deletions cost 1) to the hypothesis h_i. Of several equally near
    references, it is the first. The PER can exceed 1, because insertions count.

    Args:
        hypotheses: one pronunciation a word, symbols split by blanks.
        references: all accepted pronunciations of each word.

    Returns:
        `phoneme_error_rate`, `phoneme_errors` and `phonemes`: the quotient and its two sums.

    Raises:
        ValueError: There are no words, the lengths differ, or a word has no reference or an empty one.

    Examples:
        >>> phoneme_error_rate(["K AE T S"], [["K AA T S", "D AO G Z"]])  # the first one is nearer
        {'phoneme_error_rate': 0.25, 'phoneme_errors': 1, 'phonemes': 4}
    """
    _check(hypotheses, references)
    errors, phonemes = 0, 0
    for number, (hypothesis, texts) in enumerate(zip(hypotheses, references, strict=True)):
        if not all(text.strip() for text in texts):
            raise ValueError(
                f"Every reference must hold at least one phoneme. Received: references[{number}]={list(texts)!r}. "
                "Remove the empty reference."
            )
        distances = [(edit_distance(hypothesis.split(), text.split()), len(text.split())) for text in texts]
        distance, length = min(distances, key=lambda pair: pair[0])
        errors, phonemes = errors + distance, phonemes + length
    return {"phoneme_error_rate": errors / phonemes, "phoneme_errors": errors, "phonemes": phonemes}


def label_scores(labels: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """Accuracy and macro F1 of labels.

    Macro F1 is the mean of F1 = 2 tp / (2 tp + fp + fn) over all labels that the model chose or the references have,
    where tp, fp and fn are the numbers of true positives, false positives and false negatives of a label. So a label
    that only the model chose counts with an F1 of 0, as in scikit-learn.

    Args:
        labels: What the model chose.
        references: The right labels.

    Returns:
        `accuracy` and `macro_f1`, from 0 to 1, and `labels`, the number of labels that were compared.

    Raises:
        ValueError: There are no labels, or the lengths differ.

    Examples:
        >>> label_scores(["law", "law", "poetry"], ["law", "poetry", "poetry"])
        {'accuracy': 0.6666666666666666, 'macro_f1': 0.6666666666666666, 'labels': 3}
        >>> round(label_scores(["law", "psalms"], ["law", "law"])["macro_f1"], 3)  # the mean of 2 / 3 and 0
        0.333
    """
    _check(labels, [[reference] for reference in references])
    pairs = list(zip(labels, references, strict=True))
    hits, chosen, right = (Counter(found) for found in ([a for a, b in pairs if a == b], labels, references))
    f1 = [2 * hits[label] / (chosen[label] + right[label]) for label in chosen | right]
    return {"accuracy": sum(hits.values()) / len(pairs), "macro_f1": sum(f1) / len(f1), "labels": len(pairs)}


def edit_distance(first: Sequence[str], second: Sequence[str]) -> int:
    """Levenshtein distance of two sequences of symbols: the fewest substitutions, insertions and deletions.

    Examples:
        >>> edit_distance("kitten", "sitting"), edit_distance("K AE T".split(), "K AA T S".split())
        (3, 2)
    """
    return _distances(first, second)[-1][-1]


def edits(first: Sequence[str], second: Sequence[str]) -> list[tuple[str | None, str | None]]:
    """Aligns two sequences of symbols by the fewest edits that turn the first into the second.

    If several alignments have the fewest edits, a substitution is preferred to a deletion, and a deletion to an
    insertion, beginning at the end of the sequences.

    Returns:
        Pairs: (a, a) for a symbol that stays, (a, b) for a substitution, (a, None) for a deletion, (None, b) for an
        insertion.
    """
    distances = _distances(first, second)
    row, column = len(first), len(second)
    pairs: list[tuple[str | None, str | None]] = []
    while row or column:
        here = distances[row][column]
        if row and column and here == distances[row - 1][column - 1] + (first[row - 1] != second[column - 1]):
            row, column = row - 1, column - 1
            pairs.append((first[row], second[column]))
        elif row and here == distances[row - 1][column] + 1:
            row -= 1
            pairs.append((first[row], None))
        else:
            column -= 1
            pairs.append((None, second[column]))
    return pairs[::-1]


def _distances(first: Sequence[str], second: Sequence[str]) -> list[list[int]]:
    """[i][j]: the distance of the first i symbols of `first` from the first j of `second`."""
    rows = [list(range(len(second) + 1))]
    for row, symbol in enumerate(first, start=1):
        current = [row]
        for column, other in enumerate(second, start=1):
            substituted = rows[-1][column - 1] + (symbol != other)
            current.append(min(substituted, rows[-1][column] + 1, current[-1] + 1))
        rows.append(current)
    return rows


def without_blanks(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """The sentences that have references which are not blank, and these references."""
    _check(hypotheses, references)
    filled = [[text for text in texts if text.strip()] for texts in references]
    kept = [(hypothesis, texts) for hypothesis, texts in zip(hypotheses, filled, strict=True) if texts]
    if not kept:
        raise ValueError("There must be a reference to score by. Received: blank ones only. Correct the test set.")
    return [hypothesis for hypothesis, _ in kept], [texts for _, texts in kept]


def _check(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    if len(hypotheses) != len(references):
        raise ValueError(
            "There must be one list of references for each hypothesis. "
            f"Received: {len(hypotheses)} hypotheses and {len(references)} lists of references."
        )
    if not hypotheses:
        raise ValueError("There must be at least one hypothesis to score. Received: none. Is the test set empty?")
    for number, texts in enumerate(references):
        if isinstance(texts, str) or not texts:
            raise ValueError(
                "The references of a sentence must be a list of at least one text. "
                f"Received: references[{number}]={texts!r}. Pass [text] where there is only one."
            )
