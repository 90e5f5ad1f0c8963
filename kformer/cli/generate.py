"""`kformer generate`."""

import inspect
import math
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from kformer.cli.answering import answer_lines
from kformer.cli.app import with_options
from kformer.cli.lines import InputFields, InputFile, LineOptions, OutputFile
from kformer.cli.on_server import ServerUrl, TokenFile
from kformer.cli.options import (
    BeamSize,
    LanguageModelPreset,
    MaxSourceLength,
    ModelArgument,
    SearchOptions,
    Trust,
)
from kformer.config.decoding import LARGEST_LENGTH_PENALTY
from kformer.text.options import OPTIONS, RequestOption


def _parameter(option: RequestOption) -> inspect.Parameter:
    """The command's option. `_check_options` refuses what its bounds cannot say."""
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


@with_options(_parameter(option) for option in OPTIONS.values() if option.name != "length_penalty")
def generate(
    model: ModelArgument = None,
    preset: LanguageModelPreset = None,
    server: ServerUrl = None,
    token_file: TokenFile = None,
    input: InputFile = None,
    output: OutputFile = None,
    beam_size: BeamSize = None,
    length_penalty: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=LARGEST_LENGTH_PENALTY,
            help=OPTIONS["length_penalty"].help,
            rich_help_panel="Search",
        ),
    ] = None,
    max_source_length: MaxSourceLength = None,
    trust: Trust = False,
    *,
    reading: InputFields,
    **options: float,
) -> None:
    """Go on with each line, by the search of the model or at random. An empty line begins a new text."""
    _check_options(options)
    given = LineOptions(model, preset, server, token_file, input, output, trust, reading)
    search = SearchOptions(None, beam_size, length_penalty, max_source_length)
    answer_lines(given, "language-model", "generating", search, options=options if _are_given(options) else {})


def _check_options(options: dict[str, float]) -> None:
    """Refuses options that do not go together, or that no model takes."""
    for name, value in options.items():
        if not OPTIONS[name].allows(value):
            raise ValueError(f"{_words([name])} {OPTIONS[name].rule}. Received: {value}.")
    if 0 < options["max_length"] <= options["min_length"]:
        raise ValueError(
            "--min-length must be less than --max-length, which counts the end, too. Received: "
            f"{options['min_length']} and {options['max_length']}. Change one of them."
        )
    drawing = [name for name in options if OPTIONS[name].draws]
    if not options["temperature"] and _are_given(options, drawing):
        raise ValueError(
            f"{_words(drawing)} are for tokens that are drawn at random. Give --temperature, too, such as "
            "--temperature 1, or leave them out."
        )


def _are_given(options: dict[str, float], names: Sequence[str] = ()) -> bool:
    """Whether one of the options, or of those with these names, has another value than its default."""
    return any(options[name] != OPTIONS[name].default for name in names or options)


def _words(names: Sequence[str]) -> str:
    """The options as a user writes them: "--top-k, --top-p and --seed"."""
    *first, last = [f"--{name.replace('_', '-')}" for name in names]
    return f"{', '.join(first)} and {last}" if first else last
