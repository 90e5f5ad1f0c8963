"""`kformer classify`."""

from typing import Annotated

import typer

from kformer.cli.answering import answer_lines
from kformer.cli.lines import InputFields, InputFile, LineOptions, OutputFile
from kformer.cli.on_server import ServerUrl, TokenFile
from kformer.cli.options import ClassifierPreset, ModelArgument, Trust
from kformer.inference.lines import answer_with_score, plain_answer


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
    *,
    reading: InputFields,
) -> None:
    """Find the label of each line. A tab divides a line of two texts, for a model that learned from such lines."""
    given = LineOptions(model, preset, server, token_file, input, output, trust, reading)
    answer_lines(given, "classify", "reading", form=answer_with_score if scores else plain_answer)
