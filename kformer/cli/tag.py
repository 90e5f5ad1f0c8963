"""`kformer tag`."""

from typing import Annotated

import typer

from kformer.cli.labels import answer_by_labels
from kformer.cli.lines import InputFile, OutputFile
from kformer.cli.on_server import ServerUrl, TokenFile
from kformer.cli.options import ModelArgument, TaggerPreset, Trust


def tag(
    model: ModelArgument = None,
    preset: TaggerPreset = None,
    server: ServerUrl = None,
    token_file: TokenFile = None,
    input: InputFile = None,
    output: OutputFile = None,
    scores: Annotated[
        bool,
        typer.Option(
            "--scores",
            help="Write a tab and the log probability of all tags after the tags.",
            rich_help_panel="Input and output",
        ),
    ] = False,
    trust: Trust = False,
) -> None:
    """Find a tag for each word of each line. Blanks divide words, and tags, too."""
    answer_by_labels("tag", model, preset, server, token_file, input, output, scores, trust)
