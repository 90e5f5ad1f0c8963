"""Faults of clients: half requests, slow readers, idle connections, clients that go away, too many at once."""

import contextlib
import itertools
import select
import socket
import threading
import time
from collections.abc import Mapping, Sequence

from benchmarks.common import http2
from benchmarks.common.clients import GrpcClient, Refused, RestClient
from benchmarks.common.server import Served, wait_until
from benchmarks.serving.fault_cases.fault import Fault, observed

# A request with so many texts is large, and waits for the large requests of others: the small ones do not.
WAITING_TEXTS = 10


def half_requests(server: Served, answers: Mapping[str, str], number: int, timeout: float) -> list[Fault]:
    """Connections that begin a request and never end it. Each kind is tried separately."""
    whole = server.request([next(iter(answers))])
    head, _, body = whole.partition(b"\r\n\r\n")
    call = http2.predict_call(server.name)
    kinds = {
        "half the headers": (False, head[:-5]),
        "headers alone": (False, head + b"\r\n\r\n"),
        "half a body": (False, whole[: -len(body) // 2]),
        "half a gRPC preface": (True, http2.PREFACE[:10]),
        "half a gRPC message": (True, call[:-5]),
    }
    return [_half(server, answers, number, timeout, kind, *kinds[kind]) for kind in kinds]


def _half(
    server: Served, answers: Mapping[str, str], number: int, timeout: float, kind: str, to_grpc: bool, sent: bytes
) -> Fault:
    with observed(f"6 {number} connections with {kind}", server, answers) as fault, contextlib.ExitStack() as stack:
        began = time.monotonic()
        connections = [stack.enter_context(server.connect(to_grpc)) for _ in range(number)]
        for connection in connections:
            connection.sendall(sent)
        ends = _ends(connections, began + timeout + 5)
        given_up = len(ends)
        fault.recovery = max(ends, default=began) - began
        fault.expect(given_up == number, f"{number - given_up} are not given up after {timeout + 5:.0f} s")
    return fault


def slow_readers(server: Served, answers: Mapping[str, str], number: int) -> Fault:
    """Clients that ask for many hypotheses of many texts and read one byte a second."""
    known = list(answers)
    texts = ["\n".join(known[line % len(known)] for line in range(start, start + 3)) for start in range(32)]
    what = f"7 {number} slow readers of n_best"
    with observed(what, server, answers) as fault, contextlib.ExitStack() as stack:
        connections = []
        for _ in range(number):
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", server.rest_port))
            connection.sendall(server.request(texts, "n_best"))
            connections.append(connection)
        answered = [select.select([connection], [], [], 60)[0] for connection in connections]
        fault.expect(all(answered), "no answer begins within a minute")
        for _ in range(5):
            for connection in connections:
                connection.recv(1)
            time.sleep(1)
        fault.note(f"{server.usage().megabytes:.0f} MB while they read")
    return fault


def idle(server: Served, answers: Mapping[str, str], number: int, to_grpc: bool) -> Fault:
    """Connections that never ask."""
    kind = "gRPC" if to_grpc else "REST"
    with observed(f"8 {number} idle {kind} connections", server, answers) as fault:
        with contextlib.ExitStack() as stack:
            for _ in range(number):
                connection = stack.enter_context(server.connect(to_grpc))
                if to_grpc:
                    connection.sendall(http2.PREFACE + http2.SETTINGS)
            time.sleep(2)
            usage = server.usage()
            fault.note(f"{usage.megabytes:.0f} MB and {usage.descriptors} files while they are open")
        moment = time.monotonic()
        wait_until(lambda: server.usage().descriptors < fault.before.descriptors + 20, 20)
        fault.recovery = time.monotonic() - moment
    return fault


def gone(server: Served, answers: Mapping[str, str], number: int) -> Fault:
    """Clients that go away while their request waits, because large requests of others keep the server busy."""
    texts = list(answers)[:WAITING_TEXTS]
    with observed(f"9 {number} clients that go away while they wait", server, answers) as fault:
        before, right_before = server.computed(), fault.right()
        busy = [_Flood(server, list(answers), lines=40) for _ in range(4)]
        time.sleep(0.3)
        call = GrpcClient(server)
        for kind in range(number):
            if kind % 3 == 2:
                future = call.begin(texts)
                time.sleep(0.002)
                future.cancel()
                continue
            with server.connect() as connection:
                connection.sendall(server.request(texts))
                time.sleep(0.004 * (kind % 3))
        call.close()
        still = sum(flood.is_alive() for flood in busy)
        answered = [code for flood in busy for code, *_ in flood.result()].count("200")
        time.sleep(0.5)
        # This also counts texts of large requests that were computed but not answered.
        others = (fault.right() - right_before) + 32 * answered
        computed = (server.computed() - before - others) / len(texts)
        fault.note(f"at most {computed:.0f} of {number} computed; {still} large requests were still there at the end")
        fault.expect(computed < number / 4, "requests whose clients are gone are computed")
    return fault


def queue_full(server: Served, answers: Mapping[str, str], number: int, timeout: float) -> Fault:
    """So many clients with the largest number of texts that the queue is full."""
    what = f"10 queue full: {number} clients with 32 texts each"
    codes = ("429", "504", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED")
    with observed(what, server, answers, refusals=codes) as fault:
        floods = [_Flood(server, list(answers), until=time.monotonic() + 5) for _ in range(number)]
        found = list(itertools.chain.from_iterable(flood.result() for flood in floods))
        moment = time.monotonic()
        wait_until(lambda: fault.clients.right_after(moment) is not None, 60)
        first = fault.clients.right_after(moment)
        fault.recovery = None if first is None else first - moment
        busy = [entry for entry in found if entry[0] == "429"]
        fault.expect(bool(busy), "no request was refused")
        fault.expect(all("Send the request again later" in error and retry for _, _, error, retry in busy), "no advice")
        slowest = max((seconds for _, seconds, _, _ in busy), default=0.0)
        longest = max(seconds for _, seconds, _, _ in found)
        fault.note(f"{len(busy)} of {len(found)} large requests got 429, after {slowest:.2f} s at most")
        fault.note(f"the longest took {longest:.1f} s")
        fault.expect(longest < timeout + 2, "an answer came later than allowed")
        fault.expect({code for code, _, _, _ in found} <= {"200", "429", "504"}, "other answers")
    return fault


class _Flood:
    """A client that sends requests of 32 texts in a thread.

    Args:
        server: The server.
        texts: The lines of which the texts are made.
        lines: The number of lines of each text.
        until: When it stops, after at least one request.
    """

    def __init__(self, server: Served, texts: Sequence[str], lines: int = 1, until: float = 0.0) -> None:
        self._found: list[tuple[str, float, str, str]] = []
        self._server = server
        self._texts = ["\n".join(texts[(start + line) % len(texts)] for line in range(lines)) for start in range(32)]
        self._thread = threading.Thread(target=self._ask, args=[until])
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> list[tuple[str, float, str, str]]:
        """Code, seconds, message and Retry-After of each request."""
        self._thread.join()
        return self._found

    def _ask(self, until: float) -> None:
        client = RestClient(self._server)
        while not self._found or time.monotonic() < until:
            began, code = time.monotonic(), "200"
            try:
                client.translate(self._texts)
            except Refused as refused:
                code = refused.code
            except OSError as error:
                self._found.append((type(error).__name__, time.monotonic() - began, "", ""))
                continue
            seconds = time.monotonic() - began
            self._found.append((code, seconds, client.error, client.headers.get("retry-after", "")))
            time.sleep(0.1 if code == "429" else 0)
        client.close()


def _ends(connections: Sequence[socket.socket], until: float) -> list[float]:
    """The moments when the server ended connections, without those that it did not end in time.

    The server closes the connection. With HTTP/2, it may instead end the call and keep the connection for other calls.
    """
    received, ends = dict.fromkeys(connections, b""), []
    while received and time.monotonic() < until:
        for connection in select.select([*received], [], [], 0.2)[0]:
            with contextlib.suppress(ConnectionError):
                if data := connection.recv(65536):
                    received[connection] += data
                    if not http2.ends_a_call(received[connection]):
                        continue
            del received[connection]
            ends.append(time.monotonic())
    return ends
