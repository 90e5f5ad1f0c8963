"""The figures of a validation, in one table.

The configuration takes a name of it as `monitor`, training finds the best weights and early stop by that figure, and
the progress line shows all that a validation has. A further figure is one line here, and what computes it.
"""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal


@dataclasses.dataclass(frozen=True)
class Monitor:
    """A figure of a validation that can tell the best weights.

    Attributes:
        metric: Its name as a Keras metric, or among the scores of `kformer.evaluation.evaluate.score`.
        label: Its name on the progress line and in messages.
        decimals: Digits after the point where it is shown.
        mode: "min" if lower is better, "max" if higher is.
        translations: What the translations are that it scores: "sentences" of a language, or "symbols", which count as
            right or wrong as a whole. None: it needs no translations.
    """

    metric: str
    label: str
    decimals: int
    mode: Literal["min", "max"]
    translations: Literal["sentences", "symbols"] | None = None

    @property
    def log_key(self) -> str:
        """The key of the figure in the logs that Keras hands to callbacks after a validation."""
        return f"val_{self.metric}"

    def suits(self, symbols: bool) -> bool:
        """Whether a corpus has this figure: one of symbols if `symbols`, otherwise one of sentences."""
        return self.translations in (None, "symbols" if symbols else "sentences")


# By the names that `TrainingConfig.monitor` takes, in the order of the progress line.
MONITORS: Mapping[str, Monitor] = MappingProxyType(
    {
        "loss": Monitor("token_loss", "loss", 3, "min"),  # label-smoothed, in nats a token
        "perplexity": Monitor("perplexity", "perplexity", 2, "min"),
        "accuracy": Monitor("accuracy", "accuracy", 3, "max"),  # share of the tokens, from 0 to 1
        "bleu": Monitor("bleu", "BLEU", 1, "max", "sentences"),  # from 0 to 100
        "chrf": Monitor("chrf", "chrF", 1, "max", "sentences"),  # from 0 to 100
        "word_error_rate": Monitor("word_error_rate", "word error rate", 3, "min", "symbols"),
        "phoneme_error_rate": Monitor("phoneme_error_rate", "phoneme error rate", 3, "min", "symbols"),
    }
)
