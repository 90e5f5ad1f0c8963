"""Translates standard input line by line through TensorFlow Serving's REST interface. It needs only Python.

python client_rest.py < lines.txt
python client_rest.py --url http://localhost:8501/v1/models/translator < lines.txt

A server that is starting, restarting or busy is asked again, after 1, 2, 4, ... seconds. The exit status is 1 if it
does not answer, or refuses a request; standard error then has the server's message.
"""

import argparse
import http.client
import itertools
import json
import sys
import time
import urllib.error
import urllib.request

LINES_A_REQUEST = 32  # batching.config allows no more, and the server gives up on a request after 30 seconds
BUSY = (429, 503, 504)  # a later try may succeed; the other codes say that the request is wrong


class ServerError(Exception):
    """The server does not answer, or refuses a request."""


def translate(url: str, texts: list[str], tries: int) -> list[str]:
    """The translations of `texts`, in order; a busy server is asked `tries` times."""
    for number in itertools.count():
        try:
            return _ask(url, texts)
        except urllib.error.HTTPError as error:
            problem = f"{url} answers {error.code}: {_message(error)}"
            if error.code not in BUSY:
                raise ServerError(problem) from None
        except (OSError, http.client.HTTPException) as error:
            problem = f"{url} does not answer: {getattr(error, 'reason', error)}"
        if number + 1 >= tries:
            raise ServerError(problem)
        time.sleep(2**number)


def _ask(url: str, texts: list[str]) -> list[str]:
    request = urllib.request.Request(
        f"{url}:predict",
        data=json.dumps({"instances": texts}).encode("utf-8"),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        found = [prediction["translation"] for prediction in json.load(answer)["predictions"]]
    return [" ".join(text.splitlines()) for text in found]  # one line for each, even if the model gives several


def _message(error: urllib.error.HTTPError) -> str:
    """What the server says: TensorFlow Serving writes {"error": ...}."""
    body = error.read().decode("utf-8", "replace")
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return body.strip() or error.reason


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://localhost:8501/v1/models/translator")
    parser.add_argument(
        "--tries", type=int, default=6, help="how often a request is sent at most, while the server is busy or starting"
    )
    arguments = parser.parse_args()
    lines = (line.rstrip("\n") for line in sys.stdin)
    try:
        while batch := list(itertools.islice(lines, LINES_A_REQUEST)):
            print(*translate(arguments.url, batch, arguments.tries), sep="\n", flush=True)
    except ServerError as error:
        sys.exit(f"client_rest.py: {error}")


if __name__ == "__main__":
    main()
