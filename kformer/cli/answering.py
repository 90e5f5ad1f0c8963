"""What the commands share that answer lines: their model, on this machine or on a server."""

import contextlib
from collections.abc import Iterator, Mapping

from kformer.cli.lines import (
    InputFields,
    LineModel,
    LineOptions,
    check_files,
    number_of_lines,
    with_tag,
    write_answers,
)
from kformer.cli.on_server import check_server_options, connected
from kformer.cli.options import SearchOptions, check_tag, choose_decoding, choose_model
from kformer.cli.progress import status
from kformer.client.batches import REQUESTS_AT_ONCE, answer_batch, check_server_tag
from kformer.config import task_kind
from kformer.inference import Model
from kformer.inference.find import check_task, find_model, reads_symbols, search_of
from kformer.inference.lines import CutLines, LineForm, ShortTranslations, UnknownLines, plain_answer
from kformer.inference.model import threads_for
from kformer.text.batches import BATCH_SIZE

_OWN_SEARCH = SearchOptions()


def answer_lines(
    given: LineOptions,
    task: str,
    doing: str,
    search: SearchOptions = _OWN_SEARCH,
    n_best: int = 1,
    options: Mapping[str, float | int] | None = None,
    tag: str | None = None,
    form: LineForm = plain_answer,
) -> None:
    """Writes the answer to each line, by the model that the options name.

    Args:
        given: The options that all these commands have.
        task: What the model must have learned.
        doing: What the progress bar says.
        search: The options by which a run folder searches.
        n_best, options: See `kformer.inference.Model`.
        tag: Stands before each line for a translator.
        form: What is written for each line.
    """
    check_files(given.input, given.output)
    if given.input is None and given.reading != InputFields():
        raise ValueError("--fields and --inline-tags say what is read of a file. Give them together with --input.")
    check_server_options(given, search)
    number = number_of_lines(given.input, given.reading)
    with _chosen_model(given, task, search, n_best, options or {}, number, tag) as model:
        if tag is not None:
            model = model._replace(answer=with_tag(model.answer, tag))
        write_answers(model, given.input, given.output, number, doing, given.reading, form)


@contextlib.contextmanager
def _chosen_model(
    given: LineOptions,
    task: str,
    search: SearchOptions,
    n_best: int,
    options: Mapping[str, float | int],
    number: int,
    tag: str | None,
) -> Iterator[LineModel]:
    """The model on the server or on this machine; arguments as above, and the number of lines."""
    one_by_one = 1 if options.get("temperature") else None  # batches in their order, because each has its own seed
    if given.server is not None:
        with connected(given.server, given.token_file) as client:
            answer = answer_batch(client, n_best, task, options)
            if tag is not None:
                check_server_tag(client, tag)
            yield LineModel(answer, client.batch_size, one_by_one or REQUESTS_AT_ONCE)
        return
    path = choose_model(given.model, given.preset)
    found = find_model(path)
    check_task(found, task)
    if tag is not None:
        check_tag(found, tag)
    decoding = choose_decoding(found, search)
    short = ShortTranslations(search_of(found, decoding).get("short_ratio") or 0.0)
    unknown, cut = UnknownLines(reads_symbols(found)), CutLines()
    model = Model(
        path,
        decoding,
        n_best=n_best,
        threads_per_operation=None if one_by_one else threads_for(number),
        task=task,
        on_unknown=lambda text: unknown.note(text if tag is None else text.removeprefix(f"{tag} ".encode())),
        on_cut=cut.note if task_kind(task).has_labels else None,
        trust=given.trust,
        options=options,
    )
    with status(f"loading {path}"):
        model.load()
    yield LineModel(model, BATCH_SIZE, one_by_one, (unknown, cut, short))
