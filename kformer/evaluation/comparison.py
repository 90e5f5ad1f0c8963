"""Compares translators on one test set: how sure a difference is, where it comes from, and in which lines it shows.

Confidence intervals and p-values are those of paired bootstrap resampling (Koehn 2004, "Statistical Significance Tests
for Machine Translation Evaluation"), by sacreBLEU for its metrics.
"""

import dataclasses
import itertools
import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import sacrebleu
from sacrebleu.significance import PairedTest

from kformer.evaluation.bleu_tokenizers import bleu_metric, suitable_bleu_tokenizer
from kformer.evaluation.metrics import reference_streams, without_blanks, word_error_rate

SAMPLES = 1000  # of the bootstrap
_SEED = 12345  # sacreBLEU's
_WER = "WER"


class Score(NamedTuple):
    """A score of a test set.

    Attributes:
        value: The score: BLEU, chrF and TER from 0 to 100, the word error rate from 0 to 1.
        interval: Half of the width of its confidence interval of 95 %.
        p_value: How probable so large a difference from the first translator is if none is better; None: it is that
            one, or alone.
    """

    value: float
    interval: float
    p_value: float | None = None


class Line(NamedTuple):
    """A line of the test set, and two translations of it.

    Attributes:
        source, reference: Of the test set.
        first, other: The translations of the first translator and of another one.
        gain: By how much the second is better: in chrF of the sentence from 0 to 100, or of symbols 1 if it alone is
            right. Negative: it is worse.
    """

    source: str
    reference: str
    first: str
    other: str
    gain: float


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Translations of one test set.

    Args:
        sources: (N,) its sources.
        references: (N,) at least one reference of each.
        translations: By the name of each translator, (N,) translations. The others are compared with the first.
        symbols: Whether translations are symbols, which are right or wrong as a whole.
        bleu_tokenizer: As of `kformer.evaluation.bleu_and_chrf`. If it is None, scores of some of the lines are by the
            tokenizer that suits those lines.
        samples: How often the bootstrap draws a test set.

    Raises:
        ValueError: There is no line or no translator, or the numbers differ.

    Examples:
        >>> made = {"one": ["a b c d", "e"], "two": ["a b c d", "e f g h"]}
        >>> found = Comparison(["1", "2"], [["a b c d"], ["e f g h"]], made)
        >>> round(found.scores["BLEU"]["two"].value), found.lines("two")[0].source
        (100, '2')
    """

    sources: Sequence[str]
    references: Sequence[Sequence[str]]
    translations: Mapping[str, Sequence[str]]
    symbols: bool = False
    bleu_tokenizer: str | None = None
    samples: int = SAMPLES
    scores: Mapping[str, Mapping[str, Score]] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        sizes = {len(self.sources), len(self.references), *map(len, self.translations.values())}
        if not self.translations or len(sizes) != 1 or 0 in sizes:
            raise ValueError(
                "There must be a reference and a translation for each source, and at least one source and translator. "
                f"Received: {len(self.sources)} sources, {len(self.references)} references, and translations: "
                f"{ {name: len(texts) for name, texts in self.translations.items()} }."
            )
        vars(self)["scores"] = self._word_errors() if self.symbols else self._of_sentences()

    @property
    def names(self) -> list[str]:
        """The translators; the first is the one that others are compared with."""
        return list(self.translations)

    def by_length(self, groups: int = 4) -> dict[str, dict[str, float]]:
        """The first metric of short and of long sources.

        Args:
            groups: At most so many, of about as many sources.

        Returns:
            By the numbers of words of the sources, such as "1 to 12 words", the score of each translator.
        """
        lengths = np.array([len(source.split()) for source in self.sources])
        edges = np.unique(np.quantile(lengths, np.linspace(0, 1, groups + 1), method="higher"))
        found = {}
        for low, high in itertools.pairwise([edges[0] - 1, *edges[1:]] if len(edges) > 1 else [edges[0] - 1, edges[0]]):
            chosen = np.flatnonzero((lengths > low) & (lengths <= high)).tolist()
            name = f"{low + 1} to {high} words" if low + 1 < high else f"{high} words"
            found[name] = self.of_lines(chosen)
        return found

    def of_lines(self, lines: Sequence[int]) -> dict[str, float]:
        """The first metric of some of the lines, by the name of the translator."""
        references = [self.references[line] for line in lines]
        return {
            name: self._value([texts[line] for line in lines], references) for name, texts in self.translations.items()
        }

    def lines(self, other: str) -> list[Line]:
        """The lines whose translations by the first translator and by another one differ, the largest gain first."""
        first = next(iter(self.translations.values()))
        rows = zip(self.sources, self.references, first, self.translations[other], strict=True)
        found = [Line(source, texts[0], a, b, self._gain(a, b, texts)) for source, texts, a, b in rows if a != b]
        return sorted(found, key=lambda line: -line.gain)

    def _gain(self, first: str, other: str, references: Sequence[str]) -> float:
        if self.symbols:
            return float(_is_right(other, references) - _is_right(first, references))
        chrf = sacrebleu.CHRF()
        return chrf.sentence_score(other, list(references)).score - chrf.sentence_score(first, list(references)).score

    def _value(self, translations: Sequence[str], references: Sequence[Sequence[str]]) -> float:
        if self.symbols:
            return float(word_error_rate(translations, references)["word_error_rate"])
        return float(self._bleu(references).corpus_score(list(translations), reference_streams(references)).score)

    def _bleu(self, references: Sequence[Sequence[str]]) -> Any:
        every = itertools.chain.from_iterable(references)
        return bleu_metric(self.bleu_tokenizer or suitable_bleu_tokenizer(every))

    def _of_sentences(self) -> dict[str, dict[str, Score]]:
        metrics = {"BLEU": self._bleu(self.references), "chrF": sacrebleu.CHRF(), "TER": sacrebleu.TER()}
        filled = {name: without_blanks(texts, self.references) for name, texts in self.translations.items()}
        streams = reference_streams(next(iter(filled.values()))[1])
        systems: Any = [(name, texts) for name, (texts, _) in filled.items()]
        logging.getLogger("sacrebleu").setLevel(logging.WARNING)  # it tells each step
        results: Any = PairedTest(systems, metrics, streams, test_type="bs", n_samples=self.samples)()[1]
        results.pop("System")
        return {
            metric: {
                name: Score(found.score, float(found.ci), _p_value(found, of_metric[0]))
                for name, found in zip(self.translations, of_metric, strict=True)
            }
            for metric, of_metric in zip(metrics, results.values(), strict=True)
        }

    def _word_errors(self) -> dict[str, dict[str, Score]]:
        """The same for the share of lines that equal none of their references."""
        wrong = np.array(
            [
                [not _is_right(text, texts) for text, texts in zip(found, self.references, strict=True)]
                for found in self.translations.values()
            ],
            float,
        )
        number = len(self.sources)
        draw = np.random.default_rng(_SEED)
        drawn = np.array([wrong[:, draw.integers(number, size=number)].mean(axis=1) for _ in range(self.samples)])
        low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
        values = wrong.mean(axis=1)
        found = {}
        for place, name in enumerate(self.translations):
            differences = drawn[:, place] - drawn[:, 0]
            as_large = np.abs(differences - differences.mean()) >= abs(values[place] - values[0])
            p_value = None if place == 0 else float((as_large.sum() + 1) / (self.samples + 1))
            found[name] = Score(float(values[place]), float(high[place] - low[place]) / 2, p_value)
        return {_WER: found}


def _p_value(found: Any, first: Any) -> float | None:
    """That of one of sacreBLEU's results. It takes equal scores for a difference that chance never reaches."""
    is_equal = found is not first and found.score == first.score
    return 1.0 if is_equal else found.p_value


def _is_right(translation: str, references: Sequence[str]) -> bool:
    """Whether its symbols are those of one of the references, as in `kformer.evaluation.word_error_rate`."""
    return translation.split() in [reference.split() for reference in references]
