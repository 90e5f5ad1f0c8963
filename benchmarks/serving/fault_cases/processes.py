"""Faults of the process and the machine: it is killed, it is stopped, its disk is full, its port is taken."""

import pathlib
import signal
import subprocess
import threading
import time
from collections.abc import Mapping

from benchmarks.common.clients import Request, RestClient, timed
from benchmarks.common.server import Served, wait_until
from benchmarks.serving.fault_cases.fault import Fault, observed

SECONDS_OF_A_BATCH = 5.0  # TensorFlow cannot be stopped in a batch: the last one is computed to its end


def killed(server: Served, answers: Mapping[str, str]) -> Fault:
    """SIGKILL, then a new start on the same ports."""
    what, loading = "1 SIGKILL under load, started again", ("503", "UNAVAILABLE")
    with observed(what, server, answers, harmless=False, refusals=loading) as fault:
        moment = time.monotonic()
        server.end(signal.SIGKILL)
        server.start()
        wait_until(lambda: fault.clients.right_after(moment) is not None, 30)
        first = fault.clients.right_after(moment)
        fault.expect(first is not None, "no right answer after the new start")
        fault.recovery = None if first is None else first - moment
    late = [entry.failed for entry in fault.clients.requests if first is None or (entry.failed and entry.began > first)]
    fault.expect(not late, f"failed after the first right answer: {late}")
    fault.after = server.usage()
    return fault


def stopped(server: Served, answers: Mapping[str, str], drain_seconds: float) -> Fault:
    """SIGTERM while many requests are being answered or wait."""
    with observed("4 SIGTERM under load", server, answers, harmless=False) as fault:
        asked = [_Asking(server, answers, 32) for _ in range(8)]
        time.sleep(0.3)
        moment = time.monotonic()
        status = server.end()
        fault.recovery = time.monotonic() - moment
        requests = [asking.result() for asking in asked]
    _expect_drained(fault, status, moment, [*fault.clients.requests, *requests], drain_seconds)
    fault.note(f"{sum(request.is_right for request in requests)} of 8 requests of 32 texts right")
    return fault


def stopped_at_length(server: Served, answers: Mapping[str, str], timeout: float) -> Fault:
    """SIGTERM while one request takes long, and another one takes longer than the timeout."""
    what = "4 SIGTERM during a long request and one of the largest size"
    with observed(what, server, answers, harmless=False, refusals=("504", "DEADLINE_EXCEEDED")) as fault:
        long = _Asking(server, answers, 32, lines=40)
        time.sleep(0.3)
        largest = _Asking(server, answers, 32, lines=100)  # nearly as many bytes as a request may have
        time.sleep(0.3)
        moment = time.monotonic()
        status = server.end()
        fault.recovery = time.monotonic() - moment
        requests = [long.result(), largest.result()]
    seconds = timeout + SECONDS_OF_A_BATCH
    _expect_drained(fault, status, moment, [*fault.clients.requests, requests[0]], seconds)
    fault.expect(requests[0].is_right, f"the long request: {requests[0].failed or requests[0].refused or 'wrong'}")
    fault.expect(requests[1].refused == "504", f"the largest: {requests[1].failed or requests[1].refused}, not 504")
    fault.note(f"the long one was answered after {requests[0].ended - requests[0].began:.1f} s")
    return fault


def disk_full(server: Served, answers: Mapping[str, str]) -> Fault:
    """A server that writes its log, of every request, to a device that is full."""
    with observed("5 disk full while it logs every request", server, answers) as fault:
        with server.connect() as connection:
            connection.sendall(b"nonsense\r\n\r\n")
            fault.expect(connection.recv(12) == b"HTTP/1.1 400", "nonsense is not refused")
        time.sleep(2)
    status = server.end()
    fault.expect(status == 0, f"status {status} after a SIGTERM")
    return fault


def port_taken(server: Served, answers: Mapping[str, str]) -> Fault:
    """A second server on the ports of the first."""
    with observed("11 a second server on the same ports", server, answers) as fault:
        began = time.monotonic()
        second = subprocess.run(server.command, capture_output=True, text=True, timeout=60)
        fault.note(f"the second ended after {time.monotonic() - began:.1f} s with status {second.returncode}")
        fault.expect(second.returncode == 1, "its status is not 1")
        told = f"cannot listen on 127.0.0.1, port {server.rest_port}"
        fault.expect(told in second.stderr, f"its message does not say: {told}")
    return fault


def folder_away(server: Served, answers: Mapping[str, str]) -> Fault:
    """The folder of versions cannot be read for a while."""
    away = server.folder.with_name("away")
    with observed("11 the folder is renamed away and back", server, answers) as fault:
        server.folder.rename(away)
        time.sleep(3)
        away.rename(server.folder)
        time.sleep(1.5)
        states = [state for state, _ in server.versions().values()]
        fault.expect(states.count("AVAILABLE") == 1, f"states {states}")
    return fault


class _Asking:
    """A request that is on its way, in a thread.

    Args:
        server: The server.
        answers: Lines with their right answers, of which the texts are made.
        texts: The number of texts.
        lines: The number of lines of each text.
    """

    def __init__(self, server: Served, answers: Mapping[str, str], texts: int, lines: int = 1) -> None:
        known = list(answers.items())
        chosen = [[known[(text * 7 + line) % len(known)] for line in range(lines)] for text in range(texts)]
        sources, right = (["\n".join(pair[side] for pair in pairs) for pairs in chosen] for side in (0, 1))
        self._request: list[Request] = []
        client = RestClient(server)
        self._thread = threading.Thread(
            target=lambda: self._request.append(timed(lambda: client.translate(sources), right))
        )
        self._thread.start()

    def result(self) -> Request:
        self._thread.join()
        return self._request[0]


def _expect_drained(fault: Fault, status: int, moment: float, requests: list[Request], seconds: float) -> None:
    """Expects that all requests sent before the signal were answered, and that the server ended in time."""
    lost = [request.failed for request in requests if request.failed and request.began < moment]
    fault.expect(not lost, f"sent before the signal and not answered: {lost}")
    fault.expect(status == 0, f"status {status}")
    fault.expect(fault.recovery is not None and fault.recovery <= seconds, f"it took longer than {seconds:g} s")


def full_device() -> pathlib.Path:
    """A file to which no byte can be written."""
    return pathlib.Path("/dev/full")
