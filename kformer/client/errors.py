"""The error that tells what a server answered."""


class ServerError(OSError):
    """A server refuses a request, or does not answer.

    Args:
        message: Names the server, and holds the server's words.
        code: HTTP's status. For gRPC it is the status that belongs to gRPC's code, such as 404 for NOT_FOUND. This may
            be less exact: for a text that is too large, 400 over gRPC and 413 over REST. It is 503 for a server that
            cannot be reached, and 504 for one that takes too long.

    Examples:
        >>> try:  # nothing answers at port 1
        ...     Client("http://localhost:1/v1/models/translator", tries=1).translate("A sentence.")
        ... except ServerError as error:
        ...     print(error.code)
        503
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code
