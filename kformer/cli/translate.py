"""`kformer translate`."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from kformer.cli.bearer_token import TOKEN_VARIABLE, read_token
from kformer.cli.lines import InputFile, OutputFile, answer_lines, check_files, number_of_lines
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
from kformer.cli.progress import status
from kformer.inference.find import check_search, find_model
from kformer.recipes import load_recipe
from kformer.serving import Client
from kformer.serving.client_batches import REQUESTS_AT_ONCE, translate_batch


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
    input: InputFile = None,
    output: OutputFile = None,
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
    check_files(input, output)
    if server is not None:
        _check_server(server, (model, preset), (recipe, beam_size, length_penalty))
        with _connected(server, token_file) as client:
            function = translate_batch(client, n_best)
            answer_lines(function, input, output, n_best, number_of_lines(input), client.batch_size, REQUESTS_AT_ONCE)
        return
    if token_file is not None:
        raise ValueError("--token-file is for a server. Give it together with --server URL, or leave it out.")
    path = choose_model(model, preset)
    found = find_model(path)
    decoding = choose_decoding(found, load_recipe(recipe) if recipe else None, beam_size, length_penalty)
    check_search(found, decoding, n_best)

    from kformer.inference.load import load_model, threads_for

    number = number_of_lines(input)
    with status(f"loading {path}"):
        function = load_model(path, decoding, n_best, threads_for(number))
    answer_lines(function, input, output, n_best, number)


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
