"""Commands whose model is on a server."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import typer

from kformer.cli.bearer_token import TOKEN_VARIABLE, read_token
from kformer.cli.options import Path
from kformer.cli.progress import status
from kformer.client import Client

ServerUrl = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="A model on a server, instead of MODEL: http://HOST:8501/v1/models/NAME or grpc://HOST:8500/NAME; "
        "https and grpcs with TLS.",
        rich_help_panel="Model",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(help=f"A file with the server's bearer token; by default ${TOKEN_VARIABLE}.", rich_help_panel="Model"),
]


def check_server_options(
    server: str | None,
    token_file: Path | None,
    models: Sequence[object],
    search: Mapping[str, object] | None = None,
    trust: bool = False,
) -> None:
    """Refuses options that do not go together.

    Args:
        server, token_file: The options of these names.
        models: The values of options that name a model.
        search: The values, by their names, of the options with which a run folder searches.
        trust: Whether `--trust` is given.

    Raises:
        ValueError: There is a server, and another model, a search or trust; or a token and no server.
    """
    if server is None:
        if token_file is not None:
            raise ValueError("--token-file is for a server. Give it together with --server URL, or leave it out.")
        return
    if any(model is not None for model in models):
        raise ValueError("Name one model: --server URL names the server's. Leave out MODEL and --preset.")
    if trust:
        raise ValueError("--trust is for a SavedModel on this machine: a server decides what it loads. Leave it out.")
    if any(option is not None for option in (search or {}).values()):
        raise ValueError(
            f"{server} searches as its model was exported. Leave out {', '.join(search or {})}, or name the run folder."
        )


@contextlib.contextmanager
def connected(server: str, token_file: Path | None) -> Iterator[Client]:
    """A client of the server, which is closed at the end."""
    token = read_token(token_file)
    with status(f"connecting to {server}"):  # gRPC needs TensorFlow, which takes seconds to import
        client = Client(server, token)
    with client:
        yield client
