"""`kformer score`."""

import dataclasses

from kformer.cli.answering import Request, answer_lines
from kformer.cli.bearer_token import read_token
from kformer.cli.lines import InputFields, InputFiles, JobOptions, LineOptions, OutputFile, OutputOptions, PairFields
from kformer.cli.on_server import ServerUrl, TokenFile, check_server_options, server_urls
from kformer.cli.options import ModelArgument, Path, PresetName, SearchOptions, Tag, Trust, choose_model
from kformer.cli.progress import status
from kformer.client import Client, ServerError
from kformer.client.batches import scored_task
from kformer.config import task_kind
from kformer.inference.find import find_model, task_name
from kformer.jobs.asking import AskedScores

_TASKS = ("translate", "language-model")


def score(
    model: ModelArgument = None,
    preset: PresetName = None,
    server: ServerUrl = None,
    token_file: TokenFile = None,
    input: InputFiles = None,
    output: OutputFile = None,
    tag: Tag = None,
    trust: Trust = False,
    *,
    reading: InputFields,
    writing: OutputOptions,
    job: JobOptions,
) -> None:
    """Write how probable each line is to a model: the natural logarithm of its probability.

    To a translator, a line is a source and its translation with a tab between them, and the probability is that of the
    translation given the source. To a language model, a line is a text. --format tsv adds the number of tokens: divide
    by it to compare texts of different lengths.
    """
    if writing.on_error not in (None, "empty"):
        raise ValueError(f"A line without a score gets an empty one. Received: --on-error {writing.on_error}.")
    given = LineOptions(model, preset, server, token_file, input or [], output, trust, reading, writing, job)
    check_server_options(given, SearchOptions())
    writing.check()
    task = _task(model, preset) if server is None else _served_task(server, token_file)
    has_sources = task == "translate"
    if has_sources:
        given = dataclasses.replace(given, reading=PairFields(**dataclasses.asdict(reading)))
    form = writing.form_of_scores(has_sources, reading.keep is not None)
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


def _served_task(server: str, token_file: Path | None) -> str:
    """The task of the model on the first server that answers; a job may do without the others."""
    errors = []
    for url in server_urls(server):
        try:
            with status(f"connecting to {url}"), Client(url, read_token(token_file), tries=1) as client:
                return scored_task(client)
        except ServerError as error:
            errors.append(error)
    raise errors[0]
