"""The options that come with a request, in one table.

From the table follow the inputs and defaults of the signatures, the checks in their graphs, the options of `kformer
generate` and the sampling of `kformer translate`, and what clients send. A new option needs a row here, its part in the
search (`kformer.text.searcher`), and a place in the arguments of `Translator.translate_with_options` and
`LanguageModel.sample`.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from kformer.config import DecodingConfig
from kformer.config.decoding import LARGEST_LENGTH_PENALTY
from kformer.wording import did_you_mean

_LARGEST = 2**31 - 1  # an int32


@dataclasses.dataclass(frozen=True)
class RequestOption:
    """A number that holds for all texts of a request.

    Attributes:
        name: Of the input of a signature; with hyphens, of the option of a command.
        dtype: Of the input.
        default: Its value where a request does not give it. None: that of the model's own search, the field of
            `DecodingConfig` with this name.
        lowest: The lowest value.
        highest: The highest value. Infinity itself is not allowed.
        above: Whether values must be above the lowest one.
        rule: Which values are allowed, as the end of a sentence that begins with the name.
        help: Of the command's option.
        draws: Whether it says how tokens are drawn at random, so that a search has no use for it.

    Examples:
        >>> [OPTIONS["top_p"].allows(value) for value in (0.0, 0.5, 1.0, float("nan"))]
        [False, True, True, False]
    """

    name: str
    dtype: str
    default: float | int | None
    lowest: float | int
    highest: float | int
    rule: str
    help: str
    above: bool = False
    draws: bool = False

    def default_for(self, decoding: DecodingConfig) -> float | int:
        """The value that gives the same answers as a request without this option."""
        return getattr(decoding, self.name) if self.default is None else self.default

    def allows(self, value: Any) -> Any:
        """True where `value`, a number or a tensor, is within the range; NaN is not.

        Of a number that is not 0, what is left in the option's dtype counts: 1e39 and 1e-46 are no float32.
        """
        if self.dtype == "float32" and isinstance(value, int | float) and value:
            with np.errstate(over="ignore"):
                value = float(np.float32(value))
            if not value:
                return False
        from_lowest = value > self.lowest if self.above else value >= self.lowest
        return from_lowest & (value < self.highest if self.highest == math.inf else value <= self.highest)


_ROWS = (
    RequestOption(
        "length_penalty",
        "float32",
        default=None,
        lowest=0.0,
        highest=LARGEST_LENGTH_PENALTY,
        rule="must be a number from 0 to 10",
        help="Exponent of the length penalty, which counts the prompt's tokens, too; larger gives longer texts. By "
        "default the model's own.",
    ),
    RequestOption(
        "max_length",
        "int32",
        default=0,
        lowest=0,
        highest=_LARGEST,
        rule="must be at least 0; 0 means no limit",
        help="Largest number of new tokens; 0: the model's own limit.",
    ),
    RequestOption(
        "min_length",
        "int32",
        default=0,
        lowest=0,
        highest=_LARGEST,
        rule="must be at least 0; 0 means that of the model",
        help="Least number of new tokens before the end, less than the largest; 0: the model's own minimum.",
    ),
    RequestOption(
        "temperature",
        "float32",
        default=0.0,
        lowest=0.0,
        highest=math.inf,
        rule="must be a finite number of at least 0; 0 means a search instead of sampling",
        help="Above 0, draw tokens at random: 1 as the model says, less is more likely.",
    ),
    RequestOption(
        "top_k",
        "int32",
        default=0,
        lowest=0,
        highest=_LARGEST,
        rule="must be at least 0; 0 keeps every token",
        help="Draw only from the k most probable tokens; 0: from all.",
        draws=True,
    ),
    RequestOption(
        "top_p",
        "float32",
        default=1.0,
        lowest=0.0,
        highest=1.0,
        above=True,
        rule="must be above 0 and at most 1",
        help="Draw only from the tokens that together have this probability.",
        draws=True,
    ),
    RequestOption(
        "seed",
        "int64",
        default=0,
        lowest=-(2**63),
        highest=2**63 - 1,
        rule="must be from -2**63 to 2**63 - 1",
        help="The same seed draws the same texts for the same lines of a file.",
        draws=True,
    ),
)
# By name, in the order of a signature's inputs.
OPTIONS: dict[str, RequestOption] = {option.name: option for option in _ROWS}


def check_values(values: Mapping[str, float | int]) -> None:
    """Refuses values of options that no model takes.

    Raises:
        ValueError: There is no option of a name, or its value is out of range, or no whole number where one is needed.
    """
    if unknown := sorted(set(values) - set(OPTIONS)):
        raise ValueError(
            f"There is no option {', '.join(unknown)}. The options are: {', '.join(OPTIONS)}."
            f"{did_you_mean(unknown, OPTIONS)}"
        )
    for name, value in values.items():
        if OPTIONS[name].dtype != "float32" and value % 1:
            raise ValueError(f"{name} must be a whole number. Received: {name}={value!r}.")
        if not OPTIONS[name].allows(value):
            raise ValueError(f"{name} {OPTIONS[name].rule}. Received: {name}={value!r}.")


def with_defaults(values: Mapping[str, float | int], search: Mapping[str, Any]) -> dict[str, float | int]:
    """All options. Those that `values` lacks are as in the model's own search, the fields of a `DecodingConfig`."""
    own = {name: search[name] if option.default is None else option.default for name, option in OPTIONS.items()}
    return {**own, **values}


def option_arrays(values: Mapping[str, float | int]) -> dict[str, np.ndarray]:
    """The values of some options, with the types that a signature takes."""
    return {name: np.array(value, OPTIONS[name].dtype) for name, value in values.items()}
