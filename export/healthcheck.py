"""Whether `kformer serve` on this machine answers requests: exit status 0 if it does, 1 if not. Needs Python alone.

    python export/healthcheck.py [PORT]

PORT is that of REST, 8501 by default. The server may have a token, which health does not need, and TLS. The certificate
is not looked at: it names the server as clients see it, not this machine.
"""

import http.client
import ssl
import sys

SECONDS = 4  # less than the time that a container's health check has


def is_ready(port: int) -> bool:
    """Asks over HTTP, and over HTTPS where the server does not speak HTTP."""
    encrypted = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    encrypted.check_hostname, encrypted.verify_mode = False, ssl.CERT_NONE
    for connection in (
        http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS / 2),
        http.client.HTTPSConnection("127.0.0.1", port, timeout=SECONDS / 2, context=encrypted),
    ):
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            continue
        finally:
            connection.close()
    return False


if __name__ == "__main__":
    sys.exit(0 if is_ready(int(sys.argv[1]) if len(sys.argv) > 1 else 8501) else 1)
