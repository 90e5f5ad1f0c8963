"""`kformer translate`."""

import dataclasses
from typing import Annotated

import typer

from kformer.cli.answering import answer_lines
from kformer.cli.asked_model import Request
from kformer.cli.command_form import with_options
from kformer.cli.line_options import LineOptions
from kformer.cli.options import SearchOptions, Tag, TranslatorPreset
from kformer.cli.request_options import check_no_search, given_options, request_options
from kformer.jobs.asking import AskedAnswers
from kformer.text.options import OPTIONS

_PANEL = "Input and output"


@dataclasses.dataclass(frozen=True)
class TranslateOptions(LineOptions):
    """Its options."""

    preset: TranslatorPreset = None


@with_options(request_options(["temperature", *(name for name, option in OPTIONS.items() if option.draws)]))
def translate(
    given: TranslateOptions,
    search: SearchOptions,
    n_best: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of hypotheses per line, each as `number ||| translation ||| score`.",
            rich_help_panel="Search",
        ),
    ] = 1,
    pairs: Annotated[
        bool,
        typer.Option(
            "--pairs",
            help="Write the line behind its translation, with a tab between them: pairs to train the other direction "
            "on. A tab within them becomes a blank.",
            rich_help_panel=_PANEL,
        ),
    ] = False,
    alignments: Annotated[
        bool,
        typer.Option(
            "--alignments",
            help="Write which word of the line belongs to which word of the translation, as pairs such as 0-0 1-2. "
            "With --format tsv or jsonl.",
            rich_help_panel=_PANEL,
        ),
    ] = False,
    tag: Tag = None,
    **options: float,
) -> None:
    """Translate line by line: as many lines out as in, in the same order.

    A recipe says here only how to search: nothing else of it is used. With --temperature, translations are drawn.
    """
    drawn = given_options(options)
    check_no_search(drawn, search, n_best)
    if pairs and n_best > 1:
        raise ValueError("--pairs writes one translation of each line. Leave out --n-best.")
    if alignments and (drawn or n_best > 1):
        raise ValueError(
            "--alignments are for one translation, found by a search. Leave out --temperature and --n-best."
        )
    form = given.writing.form("translate", n_best, alignments, pairs, given.reading.keep is not None)
    asking = AskedAnswers("translate", n_best, drawn, alignments, tag)
    answer_lines(given, Request(asking, "translating", form, search))
