"""`kformer tag`."""

from typing import Annotated

import typer

from kformer.cli.answering import answer_lines
from kformer.cli.lines import InputFields, InputFile, LineOptions, OutputFile
from kformer.cli.on_server import ServerUrl, TokenFile
from kformer.cli.options import ModelArgument, TaggerPreset, Trust
from kformer.inference.lines import answer_with_score, plain_answer


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
    *,
    reading: InputFields,
) -> None:
    """Find a tag for each word of each line. Blanks divide words, and tags, too."""
    given = LineOptions(model, preset, server, token_file, input, output, trust, reading)
    answer_lines(given, "tag", "reading", form=answer_with_score if scores else plain_answer)
