"""The error that tells what a server answered."""

import contextlib
from collections.abc import Iterator

TOO_LARGE = 413  # HTTP's status of a request with more bytes than the server takes


class ServerError(OSError):
    """A server refuses a request, or does not answer.

    Args:
        message: Names the server, and holds the server's words.
        code: HTTP's status. For gRPC it is the status that belongs to gRPC's code, such as 404 for NOT_FOUND. This may
            be less exact: for a text that is too large, 400 over gRPC and 413 over REST. It is 503 for a server that
            cannot be reached, and 504 for one that takes too long.
        is_answer: Whether the server has said so itself, and not the connection ended.

    Examples:
        >>> try:  # nothing answers at port 1
        ...     Client("http://localhost:1/v1/models/translator", tries=1).translate("A sentence.")
        ... except ServerError as error:
        ...     print(error.code)
        503
    """

    def __init__(self, message: str, code: int, is_answer: bool = True) -> None:
        super().__init__(message)
        self.code = code
        self.is_answer = is_answer


@contextlib.contextmanager
def odd_answers_told(url: str) -> Iterator[None]:
    """Where the block cannot read what a server has answered, the error names the server.

    Raises:
        ServerError: The block raises an error of values that are missing, or have another type, size or number.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise ServerError(
            f"{url} does not answer like TensorFlow Serving ({error!r}). Does another program use this address?",
            code=200,
        ) from error
