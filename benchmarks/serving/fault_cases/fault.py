"""A fault: what is done to a server while clients send requests, what they saw, and whether that was expected."""

import collections
import concurrent.futures
import contextlib
import dataclasses
import time
from collections.abc import Iterator, Mapping

from benchmarks.common.clients import Clients, RestClient
from benchmarks.common.server import Served, Usage, wait_until

SECONDS_TO_CALM = 10.0
# The server may not see that a client has gone which resets calls without end. It closes such a connection at its age:
# 60 seconds, of which gRPC makes up to a tenth more, and 10 for calls that go on.
SECONDS_OF_A_CONNECTION = 80.0
GROWTH = 150.0  # megabytes that may stay for threads' arenas and TensorFlow's buffers; a leak would exceed them


@dataclasses.dataclass
class Fault:
    """A fault and its results.

    Args:
        what: What is done to the server.
        server: The server.
        clients: The clients that send requests meanwhile.
        before: Memory and open files of the server before the fault.

    Attributes:
        recovery: Seconds until everything was as before.
        after: Memory and open files of the server afterwards.
        unmet: The expectations that were not met.
        notes: Other observations.
    """

    what: str
    server: Served
    clients: Clients
    before: Usage
    recovery: float | None = None
    after: Usage | None = None
    unmet: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)

    def expect(self, condition: bool, otherwise: str) -> None:
        """Notes `otherwise` if the condition is not true."""
        if not condition:
            self.unmet.append(otherwise)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def count(self, kind: str) -> collections.Counter[str]:
        """How many requests were `refused`, or `failed`, or had a `wrong` answer, by code, error or answer."""
        return collections.Counter(filter(None, (getattr(entry, kind) for entry in self.clients.requests)))

    def right(self) -> int:
        return sum(entry.is_right for entry in self.clients.requests)

    def longest(self) -> float:
        """The most seconds that a client waited for a right answer."""
        return max((entry.ended - entry.began for entry in self.clients.requests if entry.is_right), default=0.0)

    def row(self) -> list[str]:
        """The cells of the table."""
        wrong, refused, failed = (self.count(kind) for kind in ("wrong", "refused", "failed"))
        after = self.after
        return [
            self.what,
            str(len(self.clients.requests) - failed.total()),
            str(self.right()),
            str(wrong.total()),
            _told(refused),
            _told(failed),
            "" if self.recovery is None else f"{self.recovery:.1f}",
            f"{self.longest():.1f}",
            f"{self.before.megabytes:.0f} > {'gone' if after is None else f'{after.megabytes:.0f}'}",
            f"{self.before.descriptors} > {'gone' if after is None else after.descriptors}",
            "; ".join([*self.notes, *(f"NOT MET: {reason}" for reason in self.unmet)]),
        ]


HEADINGS = (
    *("fault", "answered", "right", "wrong", "refused", "failed", "recovery s", "longest s"),
    *("memory MB", "files", "notes"),
)


def start(server: Served, answers: Mapping[str, str]) -> None:
    """Starts a server and uses it in the ordinary way: each of its threads computes batches of all sizes.

    Each thread of TensorFlow keeps oneDNN's preparations for every size of a batch that it has seen, up to a number.
    """
    server.start()
    clients = [RestClient(server) for _ in range(8)]
    texts = list(answers)
    with Clients(server, answers), concurrent.futures.ThreadPoolExecutor(len(clients)) as pool:
        for size in [*range(1, 33)] * 5:
            list(pool.map(lambda client, size=size: client.translate(texts[:size]), clients))
    server.in_use = server.usage()


@contextlib.contextmanager
def observed(
    what: str,
    server: Served,
    answers: Mapping[str, str],
    harmless: bool = True,
    refusals: tuple[str, ...] = (),
) -> Iterator[Fault]:
    """Clients ask before, during and after the block.

    Args:
        what: What the block does to the server.
        server: The server.
        answers: The right answer to each text.
        harmless: Whether no request may fail, and the server must live on.
        refusals: The codes with which a request may be refused.
    """
    before = server.usage()
    with Clients(server, answers) as clients:
        fault = Fault(what, server, clients, before)
        time.sleep(0.5)
        yield fault
        time.sleep(0.5)
    wrong, refused, failed = (fault.count(kind) for kind in ("wrong", "refused", "failed"))
    fault.expect(fault.right() > 0, "no right answer")
    fault.expect(not wrong, f"wrong answers: {_told(wrong)}")
    others = {code: number for code, number in refused.items() if code not in refusals}
    fault.expect(not others, f"refused: {_told(others)}")
    if harmless:
        fault.expect(not failed, f"failed: {_told(failed)}")
        # The clients' connections are closed, but the server may not have noticed this yet. A version that is no longer
        # served may not have freed its memory yet. Memory also changes with the versions that come and go; a leak would
        # add up over the faults.
        most = server.in_use.megabytes + GROWTH
        files = before.descriptors
        wait_until(lambda: _has_at_most(server.usage(), files, most), SECONDS_TO_CALM)
        if server.usage().descriptors > files:
            began = time.monotonic()
            wait_until(lambda: server.usage().descriptors <= files, SECONDS_OF_A_CONNECTION)
            fault.note(f"files closed after {SECONDS_TO_CALM + time.monotonic() - began:.0f} s")
        fault.after = server.usage()
        grown = fault.after.descriptors - before.descriptors
        fault.expect(grown <= 0, f"{grown} files stay open")
        more = fault.after.megabytes - server.in_use.megabytes
        fault.expect(more <= GROWTH, f"{more:.0f} MB more than in ordinary use")


def _has_at_most(usage: Usage, files: int, megabytes: float) -> bool:
    return usage.descriptors <= files and usage.megabytes <= megabytes


def _told(counted: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(counted.items())) or "0"
