"""The status codes of servers, in gRPC and in HTTP."""

import enum


class Code(enum.Enum):
    """The canonical status codes of gRPC that a server may give, each with HTTP's status."""

    INVALID_ARGUMENT = (3, 400)
    DEADLINE_EXCEEDED = (4, 504)
    NOT_FOUND = (5, 404)
    PERMISSION_DENIED = (7, 403)
    RESOURCE_EXHAUSTED = (8, 429)
    FAILED_PRECONDITION = (9, 400)
    ABORTED = (10, 409)
    OUT_OF_RANGE = (11, 400)
    UNIMPLEMENTED = (12, 501)
    INTERNAL = (13, 500)
    UNAVAILABLE = (14, 503)
    UNAUTHENTICATED = (16, 401)

    def __init__(self, number: int, http_status: int) -> None:
        self.number = number
        self.http_status = http_status

    @classmethod
    def of_number(cls, number: int) -> "Code":
        """The code with this number; INTERNAL for one that is not listed here."""
        return next((code for code in cls if code.number == number), cls.INTERNAL)
