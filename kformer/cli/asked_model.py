"""What the commands that answer lines want of a model, and the model on this machine that their options name."""

import dataclasses
from typing import NamedTuple

from kformer.cli.line_options import LineOptions
from kformer.cli.options import Path, SearchOptions, check_tag, choose_decoding, choose_model
from kformer.config import DecodingConfig
from kformer.inference import Model
from kformer.inference.find import check_task, find_model, reads_symbols, search_of
from kformer.inference.line_counts import CutLines, ShortTranslations, UnknownLines
from kformer.inference.line_forms import LineForm
from kformer.inference.line_limits import LineLimits
from kformer.jobs.asking import Asking
from kformer.runs.folder import RunFolder

_OWN_SEARCH = SearchOptions()


class Request(NamedTuple):
    """What a command wants of a model.

    Attributes:
        asking: What the model is asked for each line.
        doing: What the progress bar says.
        form: What is written for each line.
        search: The options by which a run folder searches.
    """

    asking: Asking
    doing: str
    form: LineForm
    search: SearchOptions = _OWN_SEARCH


class Chosen(NamedTuple):
    """A model on this machine, which has been checked.

    Attributes:
        path: As it was given.
        found: What is there.
        decoding: The search; None: the model's own.
    """

    path: Path
    found: RunFolder | Path
    decoding: DecodingConfig | None

    @property
    def short_ratio(self) -> float:
        """See `ShortTranslations`."""
        return search_of(self.found, self.decoding).get("short_ratio") or 0.0


def limits_of(given: LineOptions, request: Request) -> LineLimits:
    """Which lines the model is asked for."""
    return dataclasses.replace(given.writing.limits, columns=request.asking.columns)


def choose(given: LineOptions, request: Request) -> Chosen:
    """The model on this machine that the options name, if it can do what is wanted."""
    path = choose_model(given.model, given.preset)
    found = find_model(path)
    check_task(found, request.asking.task)
    if request.asking.tag is not None:
        check_tag(found, request.asking.tag)
    return Chosen(path, found, choose_decoding(found, request.search))


def model_of(
    given: LineOptions, request: Request, path: Path, decoding: DecodingConfig | None, threads_per_operation: int | None
) -> Model:
    """The model that the options ask for, not loaded yet; the last three arguments as of `Model`."""
    options = request.asking.model_options
    return Model(path, decoding, threads_per_operation=threads_per_operation, trust=given.trust, **options)


def watchers_of(chosen: Chosen) -> tuple[UnknownLines, CutLines, ShortTranslations]:
    """Count the lines of which a person should know."""
    return UnknownLines(reads_symbols(chosen.found)), CutLines(), ShortTranslations(chosen.short_ratio)
