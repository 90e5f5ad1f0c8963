"""`kformer translate`."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Annotated, BinaryIO

import typer

from kformer.cli.options import (
    BeamSize,
    LengthPenalty,
    ModelArgument,
    Path,
    PresetName,
    RecipeName,
    choose_decoding,
    choose_model,
)
from kformer.cli.progress import progress_bar, status
from kformer.files import check_file_path, replacing
from kformer.inference.find import check_search, find_model
from kformer.inference.lines import FILE_LINES_AT_ONCE, LINES_AT_ONCE, count_lines, translate_lines
from kformer.recipes import load_recipe


def translate(
    model: ModelArgument = None,
    preset: PresetName = None,
    input: Annotated[Path | None, typer.Option(help="UTF-8 lines; by default those of standard input.")] = None,
    output: Annotated[Path | None, typer.Option(help="The file to write; by default standard output.")] = None,
    recipe: RecipeName = None,
    beam_size: BeamSize = None,
    length_penalty: LengthPenalty = None,
    n_best: Annotated[
        int, typer.Option(min=1, help="Number of hypotheses per line, each as `number ||| translation ||| score`.")
    ] = 1,
) -> None:
    """Translate line by line: as many lines out as in, in the same order.

    A recipe gives its search; its corpus is not used.
    """
    if input is not None and not input.is_file():
        raise FileNotFoundError(f"{input} is no regular file. Name a text file, or leave out --input to read a pipe.")
    if output is not None:
        check_file_path(output)
    path = choose_model(model, preset)
    found = find_model(path)
    decoding = choose_decoding(found, load_recipe(recipe) if recipe else None, beam_size, length_penalty)
    check_search(found, decoding, n_best)

    from kformer.inference.load import load_model, threads_for

    if input is None:
        typing = sys.stdin.isatty()
        with status(f"loading {path}"):
            function = load_model(path, decoding, n_best, threads_for(1 if typing else LINES_AT_ONCE))
        with _opened(output) as target:
            translate_lines(function, sys.stdin.buffer, target, n_best, 1 if typing else LINES_AT_ONCE)
        return
    with input.open("rb") as lines:
        total = count_lines(lines)
    with status(f"loading {path}"):
        function = load_model(path, decoding, n_best, threads_for(total))
    with input.open("rb") as source, _opened(output) as target, progress_bar("translating", total) as advance:
        translate_lines(function, source, target, n_best, FILE_LINES_AT_ONCE, advance)


@contextlib.contextmanager
def _opened(output: Path | None) -> Iterator[BinaryIO]:
    """Standard output, or a file that appears under its name when it is whole."""
    if output is None:
        yield sys.stdout.buffer
        return
    with replacing(output) as partial, partial.open("wb") as target:
        yield target
