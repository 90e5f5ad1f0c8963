"""The token of a server: it is read from a file or a variable, since others can see a command line."""

import os

from kformer.cli.options import Path

TOKEN_VARIABLE = "KFORMER_TOKEN"


def read_token(file: Path | None) -> str | None:
    """The token in the file or, without one, in `$KFORMER_TOKEN`; None where there is none.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is empty, or no text.
    """
    if file is None:
        return os.environ.get(TOKEN_VARIABLE, "").strip() or None
    token = file.read_text(encoding="utf-8").strip()
    if not token:
        raise ValueError(f"{file} is empty. Write the token into it.")
    return token
