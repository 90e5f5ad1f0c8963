"""`kformer classify`."""

from typing import Annotated

import typer

from kformer.cli.labels import answer_by_labels
from kformer.cli.lines import InputFile, OutputFile
from kformer.cli.on_server import ServerUrl, TokenFile
from kformer.cli.options import ClassifierPreset, ModelArgument, Trust


def classify(
    model: ModelArgument = None,
    preset: ClassifierPreset = None,
    server: ServerUrl = None,
    token_file: TokenFile = None,
    input: InputFile = None,
    output: OutputFile = None,
    scores: Annotated[
        bool,
        typer.Option(
            "--scores",
            help="Write a tab and the label's probability after each label.",
            rich_help_panel="Input and output",
        ),
    ] = False,
    trust: Trust = False,
) -> None:
    """Find the label of each line. A tab divides a line of two texts, for a model that learned from such lines."""
    answer_by_labels("classify", model, preset, server, token_file, input, output, scores, trust)
