"""The options of a request as options of a command, made from the table in `kformer.text.options`."""

import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import typer

from kformer.cli.options import SearchOptions
from kformer.text.options import OPTIONS, RequestOption


def request_options(names: Iterable[str]) -> list[inspect.Parameter]:
    """The options of a command, for `with_options`. `given_options` refuses what their bounds cannot say."""
    return [_parameter(OPTIONS[name]) for name in names]


def _parameter(option: RequestOption) -> inspect.Parameter:
    lowest = option.lowest + 1e-6 if option.above else option.lowest  # Typer's bounds belong to the range
    largest = None if option.highest == math.inf else option.highest
    bounds: dict[str, Any] = {"min": lowest, "max": largest}
    if option.dtype == "int64":
        bounds = {}  # its ends have 19 digits, which would fill the help
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=typer.Option(
            option.default, help=option.help, rich_help_panel="Sampling" if option.draws else "Search", **bounds
        ),
        annotation=float if option.dtype == "float32" else int,
    )


def given_options(options: Mapping[str, float]) -> dict[str, float]:
    """What a model is given: all options, or nothing if they have the values of its own search.

    Raises:
        ValueError: Options do not go together, or no model takes them.
    """
    for name, value in options.items():
        if not OPTIONS[name].allows(value):
            raise ValueError(f"{_words([name])} {OPTIONS[name].rule}. Received: {value}.")
    if 0 < options.get("max_length", 0) <= options.get("min_length", 0):
        raise ValueError(
            "--min-length must be less than --max-length, which counts the end, too. Received: "
            f"{options['min_length']} and {options['max_length']}. Change one of them."
        )
    drawing = [name for name in options if OPTIONS[name].draws]
    if not options["temperature"] and _differ(options, drawing):
        raise ValueError(
            f"{_words(drawing)} are for tokens that are drawn at random. Give --temperature, too, such as "
            "--temperature 1, or leave them out."
        )
    return dict(options) if _differ(options, list(options)) else {}


def check_no_search(options: Mapping[str, float], search: SearchOptions, n_best: int = 1) -> None:
    """Refuses options of a search beside those by which tokens are drawn.

    Args:
        options: From `given_options`.
        search: The options of the search.
        n_best: How many answers each line has.

    Raises:
        ValueError: There are both.
    """
    given = [*search.given(), *(["n_best"] if n_best > 1 else [])]
    searching = [name for name in given if name in ("beam_size", "length_penalty", "n_best")]
    if options.get("temperature") and searching:
        raise ValueError(
            "With --temperature there is no search: tokens are drawn, and each line has one answer. Leave out "
            f"{_words(searching)}."
        )


def _differ(options: Mapping[str, float], names: Sequence[str]) -> bool:
    """Whether one of the options with these names has another value than its default."""
    return any(options[name] != OPTIONS[name].default for name in names)


def _words(names: Sequence[str]) -> str:
    """The options as a user writes them: "--top-k, --top-p and --seed"."""
    *first, last = [f"--{name.replace('_', '-')}" for name in names]
    return f"{', '.join(first)} and {last}" if first else last
