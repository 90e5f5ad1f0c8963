"""Whether small requests to `kformer serve` are answered beside large ones, and how long those that are accepted wait.

    pip install -e '.[serving]'
    python -m benchmarks.serving.fairness                                  # an int8 export of the preset cmudict
    python -m benchmarks.serving.fairness --model exported/translator --seconds 20
    python -m benchmarks.serving.fairness --other ../before/.venv/bin/python    # beside another checkout, in turns

Eight clients send one word each time, over REST: alone, beside 4 clients with 32 texts of 240 bytes, and beside 300
clients with 32 words. The three take turns, because the speed of a machine changes. A client that gets 429 waits as
long as Retry-After says. All come from one address.
"""

import argparse
import asyncio
import json
import pathlib
import re
import statistics
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Sequence

from benchmarks.serving.load import exported, serving, words

ROUNDS = 3
SMALL = 8
TEXTS, BYTES = 32, 240


class Client:
    """Asks over one connection until the time is over.

    Args:
        url: Of the model.
        texts: Of each request.
        until: On the clock of `time.monotonic`.
    """

    def __init__(self, url: str, texts: Sequence[str], until: float) -> None:
        parts = urllib.parse.urlsplit(url)
        body = json.dumps({"instances": list(texts)}).encode()
        head = f"POST {parts.path}:predict HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._host, self._port = parts.hostname, parts.port
        self._request = head.encode() + body
        self._until = until
        self.seconds: list[float] = []  # of answers
        self.refused = 0

    async def ask(self) -> None:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        while time.monotonic() < self._until:
            began = time.monotonic()
            writer.write(self._request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split()[0])
            await reader.readexactly(length)
            if head.split()[1] == b"200":
                self.seconds.append(time.monotonic() - began)
            else:
                self.refused += 1
                told = re.search(rb"\nretry-after: *(\d+)", head.lower())  # not after an answer that came too late
                await asyncio.sleep(int(told[1]) if told else 1)
        writer.close()


async def measured(
    url: str, seconds: float, small: Sequence[str], large: Sequence[Sequence[str]]
) -> list[list[Client]]:
    """The small clients and the large ones, after so many seconds."""
    until = time.monotonic() + seconds
    clients = [[Client(url, [word], until) for word in small], [Client(url, texts, until) for texts in large]]
    await asyncio.gather(*(client.ask() for group in clients for client in group))
    return clients


def row(name: str, clients: Sequence[Client], seconds: float) -> float:
    """Prints the figures of some clients; answers a second."""
    found = sorted(second for client in clients for second in client.seconds)
    refused = sum(client.refused for client in clients)
    p50, longest = (statistics.median(found), found[-1]) if found else (0.0, 0.0)
    print(f"| {name} | {len(found) / seconds:.1f} | {p50:.2f} | {longest:.2f} | {refused} |", flush=True)
    return len(found) / seconds


def measure(model: pathlib.Path, lines: Sequence[str], seconds: float, pythons: dict[str, str]) -> None:
    long = " ".join(lines)
    texts = [long[start : start + BYTES] for start in range(0, TEXTS * BYTES, BYTES)]
    many = [[lines[(client + text) % len(lines)] for text in range(TEXTS)] for client in range(300)]
    cases: dict[str, list[list[str]]] = {"alone": [], "beside 4 large": [texts] * 4, "beside 300 of 32 words": many}
    print("| clients | answers a second | p50 (s) | longest (s) | refused |\n| --- | --- | --- | --- | --- |")
    for name, python in pythons.items():
        with serving(model, python=python) as url:
            asyncio.run(measured(url, seconds / 2, lines[:SMALL], cases["beside 4 large"]))  # so that it is warm
            found: dict[str, tuple[list[Client], list[Client]]] = {case: ([], []) for case in cases}
            for _ in range(ROUNDS):
                for case, large in cases.items():
                    for clients, more in zip(
                        found[case], asyncio.run(measured(url, seconds, lines[:SMALL], large)), strict=True
                    ):
                        clients.extend(more)
            rates = {}
            for case, (small, others) in found.items():
                rates[case] = row(f"{name}: {SMALL} with a word, {case}", small, ROUNDS * seconds)
                if others:
                    row(f"{name}: the others", others, ROUNDS * seconds)
            for case in list(cases)[1:]:
                print(f"{name}, {case}: {rates[case] / rates['alone']:.2f} of the rate alone.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, help="base folder of an export; by default the preset cmudict's")
    parser.add_argument("--seconds", type=float, default=30, help="for each case in each round")
    parser.add_argument("--other", help="the Python of another checkout")
    arguments = parser.parse_args()
    pythons = {"this": sys.executable, **({"other": arguments.other} if arguments.other else {})}
    with tempfile.TemporaryDirectory() as folder:
        model = arguments.model or exported("cmudict", pathlib.Path(folder))
        measure(model, words(300), arguments.seconds, pythons)


if __name__ == "__main__":
    main()
