"""The error that tells what a server answered."""


class ServerError(OSError):
    """A server refuses a request, or does not answer.

    Args:
        message: Says which server, and holds its own words.
        code: HTTP's status. For gRPC it is the one that belongs to gRPC's code, such as 404 for NOT_FOUND; where REST
            has a more exact one (413 for what is too large), it is the general one (400). A server that cannot be
            reached has 503, one that takes too long 504.

    Example:
        >>> try:  # nothing answers at port 1
        ...     Client("http://localhost:1/v1/models/translator", tries=1).translate("A sentence.")
        ... except ServerError as error:
        ...     print(error.code)
        503
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code
