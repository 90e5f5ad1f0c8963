"""When a request is sent again, and after how long.

Translating changes nothing on the server, so a request may be sent again even if the server has worked on it.
"""

from urllib3 import BaseHTTPResponse
from urllib3.exceptions import InvalidHeader
from urllib3.util import Retry

BUSY = (429, 503, 504)  # A later try may succeed. Other statuses mean that the request or the server has a fault.
LONGEST_WAIT = 60.0  # seconds, even if a server asks for more


class _Retries(Retry):
    """urllib3's, but a request that is too large (413) is not sent again, and no wait is longer than `LONGEST_WAIT`.

    The usual wait is added to a server's `Retry-After`. Otherwise all clients of a busy server would come back
    together, again and again.
    """

    RETRY_AFTER_STATUS_CODES = frozenset(BUSY)

    def sleep(self, response: BaseHTTPResponse | None = None) -> None:
        if response is not None and self.respect_retry_after_header:
            self.sleep_for_retry(response)
        super().sleep()

    def get_retry_after(self, response: BaseHTTPResponse) -> float | None:
        try:
            seconds = super().get_retry_after(response)
        except InvalidHeader:  # neither a number of seconds nor a date
            return None
        return None if seconds is None else min(seconds, LONGEST_WAIT)


def retries(tries: int, backoff_factor: float) -> Retry:
    """What is tried again: connections that fail or end before the answer, answers that take too long, and `BUSY`.

    The second try follows at once, since a connection that was kept open may have been closed meanwhile. The waits
    before the further ones are 2, 4, 8, ... times `backoff_factor` seconds, and up to `backoff_factor` seconds more,
    so that clients that failed together do not come back together. A server's `Retry-After` is added to these waits.
    """
    return _Retries(
        total=tries - 1,
        other=0,  # such as a certificate that is not trusted
        status_forcelist=BUSY,
        allowed_methods=None,  # all: POST, too
        backoff_factor=backoff_factor,
        backoff_jitter=backoff_factor,
        backoff_max=LONGEST_WAIT,
        raise_on_status=False,  # the last answer has the server's words
    )
