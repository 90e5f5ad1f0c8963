"""`kformer translate`."""

from typing import Annotated

import typer

from kformer.cli.answering import answer_lines
from kformer.cli.lines import InputFields, InputFile, LineOptions, OutputFile
from kformer.cli.on_server import ServerUrl, TokenFile
from kformer.cli.options import (
    BeamSize,
    LengthPenalty,
    MaxSourceLength,
    ModelArgument,
    SearchOptions,
    SearchRecipe,
    Tag,
    TranslatorPreset,
    Trust,
)


def translate(
    model: ModelArgument = None,
    preset: TranslatorPreset = None,
    server: ServerUrl = None,
    token_file: TokenFile = None,
    input: InputFile = None,
    output: OutputFile = None,
    recipe: SearchRecipe = None,
    beam_size: BeamSize = None,
    length_penalty: LengthPenalty = None,
    max_source_length: MaxSourceLength = None,
    n_best: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of hypotheses per line, each as `number ||| translation ||| score`.",
            rich_help_panel="Search",
        ),
    ] = 1,
    tag: Tag = None,
    trust: Trust = False,
    *,
    reading: InputFields,
) -> None:
    """Translate line by line: as many lines out as in, in the same order.

    A recipe says here only how to search: nothing else of it is used.
    """
    given = LineOptions(model, preset, server, token_file, input, output, trust, reading)
    search = SearchOptions(recipe, beam_size, length_penalty, max_source_length)
    answer_lines(given, "translate", "translating", search, n_best, tag=tag)
