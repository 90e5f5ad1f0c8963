"""What the commands share that answer lines: their model, on this machine or on a server."""

import contextlib
import dataclasses
from collections.abc import Iterator

from kformer.cli.asked_model import Request, choose, limits_of, model_of, watchers_of
from kformer.cli.job import answer_job
from kformer.cli.line_options import JobOptions, LineOptions
from kformer.cli.lines import LineModel, check_files, number_of_lines, write_answers
from kformer.cli.on_server import connected, server_urls
from kformer.cli.options import SearchOptions
from kformer.cli.progress import status
from kformer.client.batches import REQUESTS_AT_ONCE
from kformer.inference.line_counts import CutLines
from kformer.inference.model import threads_for
from kformer.text.batches import BATCH_SIZE


def answer_lines(given: LineOptions, request: Request) -> None:
    """Writes the answer to each line, by the model that the options name."""
    given.reading.check()
    given.writing.check()
    if not given.inputs and given.reading != type(given.reading)():
        raise ValueError("--fields, --keep and --inline-tags say what is read of a file. Give --input, too.")
    check_server_options(given, request.search)
    if given.is_job:
        answer_job(given, request)
        return
    if given.job != JobOptions():
        raise ValueError(
            "--lines-per-part, --processes and --batch-seconds are for a job. Name its folder by --output FOLDER/, or "
            "leave them out."
        )
    input = given.inputs[0] if given.inputs else None
    if len(given.inputs) > 1:
        raise ValueError("The answers to several files go into a folder. Name it: --output FOLDER/.")
    output = None if given.output is None else given.output.path
    check_files(input, output)
    number = number_of_lines(input, given.reading)
    with _chosen_model(given, request, number) as model:
        doing, on_error, limits = request.doing, given.writing.on_error, limits_of(given, request)
        write_answers(model, input, output, number, doing, given.reading, request.form, on_error, limits)


def check_server_options(given: LineOptions, search: SearchOptions) -> None:
    """Refuses options that do not go together.

    Raises:
        ValueError: There is a server, and another model, a search or trust; or a token and no server.
    """
    if given.server is None:
        if given.token_file is not None:
            raise ValueError("--token-file is for a server. Give it together with --server URL, or leave it out.")
        return
    if given.model is not None or given.preset is not None:
        raise ValueError("Name one model: --server URL names the server's. Leave out MODEL and --preset.")
    if given.trust:
        raise ValueError("--trust is for a SavedModel on this machine: a server decides what it loads. Leave it out.")
    if names := [f"--{name.replace('_', '-')}" for name in search.given()]:
        raise ValueError(
            f"{given.server} searches as its model was exported. Leave out {', '.join(names)}, or name the run folder."
        )


@contextlib.contextmanager
def _chosen_model(given: LineOptions, request: Request, number: int) -> Iterator[LineModel]:
    """The model on the server or on this machine; `number` is that of the lines."""
    asking = request.asking
    one_by_one = 1 if asking.draws else None  # in their order, because each has its own seed
    tag = "" if asking.tag is None else f"{asking.tag} "
    if given.server is not None:
        if len(server_urls(given.server)) > 1:
            raise ValueError("Several servers answer a job. Name its folder by --output FOLDER/, or one server.")
        cut = CutLines()
        with connected(given.server, given.token_file) as client:
            ask = asking.of_server(client, cut.note)
            yield LineModel(ask, client.batch_size, one_by_one or REQUESTS_AT_ONCE, (cut,))
        return
    chosen = choose(given, request)
    unknown, cut, short = watchers_of(chosen)
    model = dataclasses.replace(
        model_of(given, request, chosen.path, chosen.decoding, None if one_by_one else threads_for(number)),
        on_unknown=lambda text: unknown.note(text.removeprefix(tag.encode())),
        on_cut=cut.note if asking.needs_ends else None,
    )
    with status(f"loading {chosen.path}"):
        model.load()
    yield LineModel(asking.of_model(model), BATCH_SIZE, one_by_one, (unknown, cut, short))
