"""What `kformer classify` and `kformer tag` share."""

from kformer.cli.lines import answer_lines, check_files, number_of_lines, with_scores
from kformer.cli.on_server import check_server_options, connected
from kformer.cli.options import Path, choose_model
from kformer.cli.progress import status
from kformer.client.batches import REQUESTS_AT_ONCE, answer_batch
from kformer.inference.find import check_task, find_model, reads_symbols
from kformer.inference.lines import UnknownLines
from kformer.text.batches import TranslateBatch


def answer_by_labels(
    task: str,
    model: Path | None,
    preset: str | None,
    server: str | None,
    token_file: Path | None,
    input: Path | None,
    output: Path | None,
    scores: bool,
    trust: bool,
) -> None:
    """Writes the labels of each line; arguments as in the commands, `task` is "classify" or "tag"."""

    def answer(
        function: TranslateBatch,
        batch_size: int | None = None,
        at_once: int | None = None,
        unknown: UnknownLines | None = None,
    ) -> None:
        function = with_scores(function) if scores else function
        answer_lines(function, input, output, 1, number, batch_size, at_once, doing="reading", unknown=unknown)

    check_files(input, output)
    check_server_options(server, token_file, (model, preset), trust=trust)
    number = number_of_lines(input)
    if server is not None:
        with connected(server, token_file) as client:
            answer(answer_batch(client, task=task), client.batch_size, REQUESTS_AT_ONCE)
        return
    path = choose_model(model, preset)
    found = find_model(path)
    check_task(found, task)
    unknown = UnknownLines(reads_symbols(found))

    from kformer.inference.load import load_model, threads_for

    with status(f"loading {path}"):
        function = load_model(
            path, threads_per_operation=threads_for(number), task=task, on_unknown=unknown.note, trust=trust
        )
    answer(function, unknown=unknown)
