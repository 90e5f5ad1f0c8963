"""`kformer score`."""

import dataclasses

from kformer.cli.answering import answer_lines, check_server_options
from kformer.cli.asked_model import Request
from kformer.cli.bearer_token import read_token
from kformer.cli.line_options import LineOptions, PairFields
from kformer.cli.on_server import no_answer, server_urls
from kformer.cli.options import Path, SearchOptions, Tag, choose_model
from kformer.cli.progress import status
from kformer.client import Client, ServerError
from kformer.client.batches import scored_task
from kformer.config import task_kind
from kformer.inference.find import find_model, task_name
from kformer.jobs.asking import AskedScores

_TASKS = ("translate", "language-model")


def score(given: LineOptions, tag: Tag = None) -> None:
    """Write how probable each line is to a model: the natural logarithm of its probability.

    To a translator, a line is a source and its translation with a tab between them, and the probability is that of the
    translation given the source. To a language model, a line is a text. --format tsv adds the number of tokens: divide
    by it to compare texts of different lengths.
    """
    if given.writing.on_error not in (None, "empty"):
        raise ValueError(f"A line without a score gets an empty one. Received: --on-error {given.writing.on_error}.")
    check_server_options(given, SearchOptions())
    given.writing.check()
    if given.server is None:
        task = _task(given.model, given.preset)
    else:
        task = _served_task(given.server, given.token_file, given.is_job)
    has_sources = task == "translate"
    if has_sources:
        given = dataclasses.replace(given, reading=PairFields(**dataclasses.asdict(given.reading)))
    form = given.writing.form_of_scores(has_sources, given.reading.keep is not None)
    answer_lines(given, Request(AskedScores(task, tag), "scoring", form))


def _task(model: Path | None, preset: str | None) -> str:
    found = find_model(choose_model(model, preset))
    task = task_name(found)
    if task not in _TASKS:
        raise ValueError(
            f"{model or preset} has learned the task {task}, whose answers have their scores beside them: kformer "
            f"{task_kind(task).command or 'translate'} --format tsv. Expected: a translator or a language model."
        )
    return task


def _served_task(server: str, token_file: Path | None, is_job: bool) -> str:
    """The task of the model on the first server that answers; a job may do without the others."""
    errors = []
    for url in server_urls(server):
        try:
            with status(f"connecting to {url}"), Client(url, read_token(token_file), tries=1) as client:
                return scored_task(client)
        except ServerError as error:
            errors.append(error)
    raise no_answer(errors) if is_job else errors[0]
