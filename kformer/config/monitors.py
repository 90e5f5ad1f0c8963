"""The metrics of a validation, in one table.

`TrainingConfig.monitor` is one of their names: training uses this metric to find the best weights and to stop early.
The progress line shows all metrics that a validation computes. A new metric needs a line here and code to compute it.
"""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal


@dataclasses.dataclass(frozen=True)
class Monitor:
    """A validation metric by which the best weights can be found.

    Attributes:
        metric: Its name as a Keras metric, or among the scores of `kformer.evaluation.evaluate.score`.
        label: Its name on the progress line and in messages.
        decimals: Digits after the point where it is shown.
        mode: "min" if lower is better, "max" if higher is.
        translations: The kind of translations that the metric scores: "sentences" of a language, or "symbols", each of
            which is right or wrong as a whole. None: the metric needs no translations.
        uninformative: The value that does not tell which weights are better. BLEU is 0.0 as long as no word is right or
            no translation has four words, however much is learned. None: there is no such value.
        slow: Whether it takes long, so that a validation computes it only where it decides the best weights.
    """

    metric: str
    label: str
    decimals: int
    mode: Literal["min", "max"]
    translations: Literal["sentences", "symbols"] | None = None
    uninformative: float | None = None
    slow: bool = False

    @property
    def log_key(self) -> str:
        """The key of the metric in the logs that Keras passes to callbacks after a validation."""
        return f"val_{self.metric}"

    def suits(self, symbols: bool) -> bool:
        """Whether the metric can be computed for a corpus of symbols (if `symbols`) or of sentences (otherwise)."""
        return self.translations in (None, "symbols" if symbols else "sentences")


# By the names that `TrainingConfig.monitor` takes, in the order of the progress line.
MONITORS: Mapping[str, Monitor] = MappingProxyType(
    {
        "loss": Monitor("token_loss", "loss", 3, "min"),  # label-smoothed, in nats a token
        "perplexity": Monitor("perplexity", "perplexity", 2, "min"),
        "accuracy": Monitor("accuracy", "accuracy", 3, "max"),  # share of the tokens, from 0 to 1
        "bleu": Monitor("bleu", "BLEU", 1, "max", "sentences", uninformative=0.0),  # from 0 to 100
        "chrf": Monitor("chrf", "chrF", 1, "max", "sentences", uninformative=0.0),  # from 0 to 100
        "ter": Monitor("ter", "TER", 1, "min", "sentences", slow=True),  # from 0 up; 100: as many edits as words
        "word_error_rate": Monitor("word_error_rate", "word error rate", 3, "min", "symbols"),
        "phoneme_error_rate": Monitor("phoneme_error_rate", "phoneme error rate", 3, "min", "symbols"),
    }
)

# The names of sacreBLEU's tokenizers: they tell how BLEU splits texts into words.
BLEU_TOKENIZERS = ("13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "flores101", "flores200", "none")
