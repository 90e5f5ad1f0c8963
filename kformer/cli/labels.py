"""What `kformer classify` and `kformer tag` share."""

from kformer.cli.lines import answer_lines, check_files, number_of_lines, with_scores
from kformer.cli.options import Path, choose_model
from kformer.cli.progress import status
from kformer.inference.find import check_task, find_model


def answer_by_labels(
    task: str, model: Path | None, preset: str | None, input: Path | None, output: Path | None, scores: bool
) -> None:
    """Writes the labels of each line; arguments as in the commands, `task` is "classify" or "tag"."""
    check_files(input, output)
    path = choose_model(model, preset)
    check_task(find_model(path), task)

    from kformer.inference.load import load_model, threads_for

    number = number_of_lines(input)
    with status(f"loading {path}"):
        function = load_model(path, threads_per_operation=threads_for(number), task=task)
    answer_lines(with_scores(function) if scores else function, input, output, 1, number, doing="reading")
