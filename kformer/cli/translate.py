"""`kformer translate`."""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, BinaryIO

import typer

from kformer.cli.bearer_token import TOKEN_VARIABLE, read_token
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
from kformer.serving import Client
from kformer.serving.client_batches import REQUESTS_AT_ONCE, translate_batch
from kformer.translation.batches import BATCH_SIZE, TranslateBatch


def translate(
    model: ModelArgument = None,
    preset: PresetName = None,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="A model on a server, instead of MODEL: http://HOST:8501/v1/models/NAME or grpc://HOST:8500/NAME; "
            "https and grpcs with TLS.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help=f"A file with the server's bearer token; by default ${TOKEN_VARIABLE}.")
    ] = None,
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

    Only the search of a recipe is used.
    """
    if input is not None and not input.is_file():
        raise FileNotFoundError(
            f"{input} is not a regular file. Name a text file, or leave out --input to read a pipe."
        )
    if output is not None:
        check_file_path(output)
    if server is not None:
        _check_server(server, (model, preset), (recipe, beam_size, length_penalty))
        with _connected(server, token_file) as client:
            function = translate_batch(client, n_best)
            _translate(function, input, output, n_best, _number_of_lines(input), client.batch_size, REQUESTS_AT_ONCE)
        return
    if token_file is not None:
        raise ValueError("--token-file is for a server. Give it together with --server URL, or leave it out.")
    path = choose_model(model, preset)
    found = find_model(path)
    decoding = choose_decoding(found, load_recipe(recipe) if recipe else None, beam_size, length_penalty)
    check_search(found, decoding, n_best)

    from kformer.inference.load import load_model, threads_for

    number = _number_of_lines(input)
    with status(f"loading {path}"):
        function = load_model(path, decoding, n_best, threads_for(number))
    _translate(function, input, output, n_best, number)


def _check_server(server: str, models: Sequence[object], search: Sequence[object]) -> None:
    """Refuses options that do not go with a server."""
    if any(model is not None for model in models):
        raise ValueError("Name one model: --server URL names the server's. Leave out MODEL and --preset.")
    if any(option is not None for option in search):
        raise ValueError(
            f"{server} searches as its model was exported. Leave out --recipe, --beam-size and --length-penalty, or "
            "name the run folder."
        )


@contextlib.contextmanager
def _connected(server: str, token_file: Path | None) -> Iterator[Client]:
    token = read_token(token_file)
    with status(f"connecting to {server}"):  # gRPC needs TensorFlow, which takes seconds to import
        client = Client(server, token)
    with client:
        yield client


def _number_of_lines(input: Path | None) -> int:
    """The number of lines of a file; of a pipe, the number that is read before the first translation begins."""
    if input is None:
        return 1 if sys.stdin.isatty() else LINES_AT_ONCE
    with input.open("rb") as lines:
        return count_lines(lines)


def _translate(
    function: TranslateBatch,
    input: Path | None,
    output: Path | None,
    n_best: int,
    number: int,
    batch_size: int = BATCH_SIZE,
    at_once: int | None = None,
) -> None:
    """Translates from `input` to `output`; `number` is of `_number_of_lines`, for the others see `translate_lines`."""
    with contextlib.ExitStack() as stack:
        target = stack.enter_context(_opened(output))
        if input is None:
            translate_lines(function, sys.stdin.buffer, target, n_best, number, batch_size=batch_size, at_once=at_once)
            return
        source = stack.enter_context(input.open("rb"))
        advance = stack.enter_context(progress_bar("translating", number))
        translate_lines(function, source, target, n_best, FILE_LINES_AT_ONCE, advance, batch_size, at_once)


@contextlib.contextmanager
def _opened(output: Path | None) -> Iterator[BinaryIO]:
    """Standard output, or a file that appears under its name when it is whole."""
    if output is None:
        yield sys.stdout.buffer
        return
    with replacing(output) as partial, partial.open("wb") as target:
        yield target
