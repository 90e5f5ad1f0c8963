"""Commands whose model is on a server."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from kformer.cli.bearer_token import TOKEN_VARIABLE, read_token
from kformer.cli.options import Path
from kformer.cli.progress import status
from kformer.client import Client, ServerError
from kformer.client.retries import BUSY

ServerUrl = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="A model on a server, instead of MODEL: http://HOST:8501/v1/models/NAME or grpc://HOST:8500/NAME; "
        "https and grpcs with TLS. A job takes several, split by commas.",
        rich_help_panel="Model",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(help=f"A file with the server's bearer token; by default ${TOKEN_VARIABLE}.", rich_help_panel="Model"),
]


def server_urls(server: str) -> list[str]:
    """The URLs of an option `--server`.

    Examples:
        >>> server_urls("grpc://a:8500/m, grpc://b:8500/m")
        ['grpc://a:8500/m', 'grpc://b:8500/m']
    """
    return [url.strip() for url in server.split(",")]


def no_answer(errors: Sequence[ServerError]) -> Exception:
    """What ends a job of which no server answers: one that asks for another try, if each of them may answer later."""
    if any(error.code not in BUSY for error in errors):
        return errors[0]
    return ConnectionError(f"{errors[0]}. Run the same command when it answers.")


@contextlib.contextmanager
def connected(server: str, token_file: Path | None) -> Iterator[Client]:
    """A client of the server, which is closed at the end."""
    token = read_token(token_file)
    with status(f"connecting to {server}"):  # gRPC needs TensorFlow, which takes seconds to import
        client = Client(server, token)
    with client:
        yield client
