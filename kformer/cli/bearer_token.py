"""The token of a server. It is read from a file or a variable, because other users can see a command line."""

import os

from kformer.cli.options import Path

TOKEN_VARIABLE = "KFORMER_TOKEN"


RELOAD_TOKEN_VARIABLE = "KFORMER_RELOAD_TOKEN"


def read_token(file: Path | None, variable: str = TOKEN_VARIABLE) -> str | None:
    """The token in the file or, without a file, in a variable; None if there is no token.

    Raises:
        OSError: The file cannot be read.
        ValueError: The token is empty, or is not printable ASCII without blanks.
    """
    if file is None:
        given, place = os.environ.get(variable), f"The variable {variable}"
    elif file.is_file():
        given, place = file.read_text(encoding="utf-8-sig", errors="replace"), str(file)
    else:
        raise FileNotFoundError(f"{file} is no file. Name the file that holds the token.")
    if given is None:
        return None
    token = given.strip()
    if not token:  # perhaps of a secret that was not found: nobody would know that everybody may ask
        remedy = "Write the token into it" + (", or unset the variable if no token is wanted." if file is None else ".")
        raise ValueError(f"{place} is empty. {remedy}")
    wrong = next((character for character in token if not "!" <= character <= "~"), None)
    if wrong is not None:  # nothing else is shown of a secret
        raise ValueError(
            f"{place} must hold one token: printable ASCII characters without blanks, in one line. Received: "
            f"{wrong!a} within it. Write the token again, in UTF-8."
        )
    return token
