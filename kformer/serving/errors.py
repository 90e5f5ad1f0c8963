"""The error of a request: one class, which REST and gRPC each report in their own way."""

from kformer.runtime.status_codes import Code

SERVER_FAILED = "The server failed. Its log says why."
_LONGEST = 500  # characters of a message: gRPC sends it as a header, and clients refuse headers beyond 8 KB


class ServingError(Exception):
    """A request that cannot be answered.

    Args:
        code: The kind of error.
        message: For the client. It holds at most a few characters of the user's text. A long message is cut off.
        http_status: Where HTTP has a more exact status than the code's, such as 413.
        retry_seconds: When the client should ask again, where that helps.
    """

    def __init__(self, code: Code, message: str, http_status: int | None = None, retry_seconds: int = 1) -> None:
        super().__init__(message if len(message) <= _LONGEST else f"{message[:_LONGEST]} ...")
        self.code = code
        self.http_status = http_status or code.http_status
        self.retry_seconds = retry_seconds


def too_large(message: str) -> ServingError:
    """The error of a request that is larger than a limit: sending it again does not help."""
    return ServingError(Code.INVALID_ARGUMENT, message, http_status=413)
