"""`kformer generate`."""

import dataclasses
from typing import Annotated

import typer

from kformer.cli.answering import answer_lines
from kformer.cli.asked_model import Request
from kformer.cli.command_form import with_options
from kformer.cli.line_options import LineOptions
from kformer.cli.options import BeamSize, LanguageModelPreset, MaxSourceLength, SearchOptions
from kformer.cli.request_options import check_no_search, given_options, request_options
from kformer.config.decoding import LARGEST_LENGTH_PENALTY
from kformer.jobs.asking import AskedAnswers
from kformer.text.options import OPTIONS


@dataclasses.dataclass(frozen=True)
class GenerateOptions(LineOptions):
    """Its options."""

    preset: LanguageModelPreset = None


@with_options(request_options(name for name in OPTIONS if name != "length_penalty"))
def generate(
    given: GenerateOptions,
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
    **options: float,
) -> None:
    """Go on with each line, by the search of the model or at random. An empty line begins a new text."""
    chosen = given_options(options)
    search = SearchOptions(None, beam_size, length_penalty, max_source_length)
    check_no_search(chosen, search)
    form = given.writing.form("language-model", keep=given.reading.keep is not None)
    asking = AskedAnswers("language-model", options=chosen)
    answer_lines(given, Request(asking, "generating", form, search))
