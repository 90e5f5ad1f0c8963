"""Faults of clients over gRPC: calls that are begun and not ended, resets, bursts, answers that nobody takes."""

import collections
import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from benchmarks.common import http2
from benchmarks.common.clients import PATIENCE, GrpcClient
from benchmarks.common.server import Served, wait_until
from benchmarks.serving.fault_cases.fault import Fault, observed

# Answers after which a client may try again. CANCELLED, by which a client means that it has cancelled itself, is none.
TRIED_AGAIN = {"OK", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"}


def half_calls(server: Served, answers: Mapping[str, str], number: int, connections: int) -> Fault:
    """Calls of which only the headers come."""
    return _flood(server, answers, "half calls", number, connections, http2.call)


def resets(server: Served, answers: Mapping[str, str], number: int, connections: int) -> Fault:
    """Calls that are begun and cancelled at once."""
    return _flood(server, answers, "resets", number, connections, lambda call: http2.call(call) + http2.reset(call))


def _flood(
    server: Served,
    answers: Mapping[str, str],
    kind: str,
    number: int,
    connections: int,
    one: Callable[[int], bytes],
) -> Fault:
    what = f"11 {number:,} {kind} over {connections} gRPC connections"
    busy = ("RESOURCE_EXHAUSTED",)
    with observed(what, server, answers, refusals=busy) as fault, _reading(server, connections) as opened:
        began = time.monotonic()
        for call in range(number // connections):
            for connection in opened:
                with contextlib.suppress(OSError):  # the server may end a connection
                    connection.sendall(one(2 * call + 1))
        fault.note(f"sent in {time.monotonic() - began:.1f} s")
        _wait_for_an_answer(fault, began)
        fault.note(f"{server.usage().megabytes:.0f} MB meanwhile")
    return fault


def burst(server: Served, answers: Mapping[str, str], number: int) -> Fault:
    """A client that makes this many right calls at once, over one connection."""
    text, right = next(iter(answers.items()))
    with observed(f"12 {number:,} calls at once over one gRPC connection", server, answers) as fault:
        client = GrpcClient(server, [("grpc.use_local_subchannel_pool", 1)])
        calls = [client.begin([text]) for _ in range(number)]
        codes = collections.Counter(
            "OK" if (error := call.exception()) is None else error.code().name for call in calls
        )
        wrong = [call for call in calls if call.exception() is None and client.read(call.result()) != [right]]
        client.close()
        fault.note(", ".join(f"{count:,} {code}" for code, count in sorted(codes.items())))
        fault.expect(not wrong, f"{len(wrong)} wrong answers")
        fault.expect({*codes} <= TRIED_AGAIN, "codes with which clients do not try again")
    return fault


def no_window(server: Served, answers: Mapping[str, str], number: int, connections: int) -> Fault:
    """Calls for the status whose answers the client never takes, as it allows no byte to be sent."""
    what = f"13 {number:,} answers over {connections} gRPC connections without a window"
    busy, taken = ("RESOURCE_EXHAUSTED",), http2.NO_WINDOW
    with observed(what, server, answers, refusals=busy) as fault, _reading(server, connections, taken) as opened:
        began = time.monotonic()
        for call, connection in zip(range(number), itertools.cycle(opened), strict=False):
            with contextlib.suppress(OSError):
                connection.sendall(http2.status_call(server.name, 2 * (call // connections) + 1))
        _wait_for_an_answer(fault, began)
        fault.note(f"{server.usage().megabytes:.0f} MB meanwhile")
    return fault


def too_many(server: Served, answers: Mapping[str, str], number: int, limit: int) -> Fault:
    """More connections than the server takes. Those of the other clients are among the oldest, and stay."""
    with observed(f"14 {number:,} idle gRPC connections, {limit} allowed", server, answers) as fault:
        with contextlib.ExitStack() as stack:
            opened = []
            for _ in range(number):
                connection = stack.enter_context(server.connect(to_grpc=True))
                with contextlib.suppress(OSError):
                    connection.sendall(http2.PREFACE + http2.SETTINGS)
                opened.append(connection)
            time.sleep(1)
            usage = server.usage()
            fault.note(f"{usage.megabytes:.0f} MB and {usage.descriptors} files while they are open")
            grown = usage.descriptors - fault.before.descriptors
            fault.expect(grown <= limit + 20, f"{grown} more files")
        moment = time.monotonic()
        wait_until(lambda: server.usage().descriptors < fault.before.descriptors + 20, 20)
        fault.recovery = time.monotonic() - moment
    return fault


@contextlib.contextmanager
def _reading(server: Served, number: int, settings: bytes = http2.SETTINGS) -> Iterator[list[socket.socket]]:
    """Connections that have begun, and whose answers are thrown away: otherwise the server would wait for them."""
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(server.connect(to_grpc=True)) for _ in range(number)]
        for connection in opened:
            connection.sendall(http2.PREFACE + settings)
            threading.Thread(target=_read, args=[connection], daemon=True).start()
        yield opened


def _read(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while connection.recv(65536):
            pass


def _wait_for_an_answer(fault: Fault, moment: float) -> None:
    """Notes when another client gets an answer to what it asks from now on."""
    sent = time.monotonic()
    wait_until(lambda: fault.clients.right_after(sent) is not None, PATIENCE)
    first = fault.clients.right_after(sent)
    fault.recovery = None if first is None else first - moment
    fault.expect(first is not None, f"no answer within {PATIENCE:.0f} s")
