"""Commands whose model is on a server."""

import contextlib
from collections.abc import Iterator
from typing import Annotated

import typer

from kformer.cli.bearer_token import TOKEN_VARIABLE, read_token
from kformer.cli.lines import LineOptions
from kformer.cli.options import Path, SearchOptions
from kformer.cli.progress import status
from kformer.client import Client

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


def server_urls(server: str) -> list[str]:
    """The URLs of an option `--server`.

    Examples:
        >>> server_urls("grpc://a:8500/m, grpc://b:8500/m")
        ['grpc://a:8500/m', 'grpc://b:8500/m']
    """
    return [url.strip() for url in server.split(",")]


@contextlib.contextmanager
def connected(server: str, token_file: Path | None) -> Iterator[Client]:
    """A client of the server, which is closed at the end."""
    token = read_token(token_file)
    with status(f"connecting to {server}"):  # gRPC needs TensorFlow, which takes seconds to import
        client = Client(server, token)
    with client:
        yield client
