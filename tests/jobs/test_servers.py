"""Workers that are servers: one that is lost, one that comes back, and none at all."""

import contextlib
import dataclasses
import time

import pytest
from job_fakes import capitals, read

from kformer.client import ServerError
from kformer.jobs import JobSettings, run_job, servers
from kformer.jobs.servers import ServerWorkers
from kformer.text.batches import RefusedTextError

LINES = [b"line %d" % number for number in range(500)]


@dataclasses.dataclass
class Server:
    """A server that answers in capitals, while it does.

    Attributes:
        fault: Its answer to a batch; None: the texts in capitals.
        asked: The number of batches.
    """

    fault: Exception | None = None
    asked: int = 0
    answered: int = 0

    @contextlib.contextmanager
    def opened(self):
        if isinstance(self.fault, ServerError) and self.fault.code == 503:
            raise self.fault
        yield self.answer

    def answer(self, texts, seed):
        self.asked += 1
        time.sleep(0.002)
        if self.fault is not None:
            raise self.fault
        self.answered += 1
        return capitals(texts, seed)


def job(tmp_path, servers, lines=LINES, **options):
    file = tmp_path / "lines.txt"
    file.write_bytes(b"".join(line + b"\n" for line in lines))
    settings = JobSettings((file,), {}, lines_per_part=50)
    report = run_job(tmp_path / "job", settings, read, ServerWorkers(servers, **options))
    written = b"".join(part.read_bytes() for part in sorted((tmp_path / "job").glob("part-*")))
    return written.splitlines(), report


def test_several_servers_share_the_lines(tmp_path):
    servers = [Server(), Server(), Server()]
    found, _ = job(tmp_path, servers)
    assert found == [line.upper() for line in LINES]
    assert all(server.answered for server in servers)
    assert sum(server.answered for server in servers) == 10


@pytest.mark.parametrize("fault", [ServerError("gone", 503), ServerError("late", 504), ServerError("broken", 500)])
def test_a_server_that_is_lost_loses_and_doubles_nothing(fault, tmp_path):
    @dataclasses.dataclass
    class Lost(Server):
        def answer(self, texts, seed):
            if self.answered == 2:
                self.fault = fault
            return super().answer(texts, seed)

    lost = Lost()
    found, report = job(tmp_path, [lost, Server()], requests_at_once=1)
    assert found == [line.upper() for line in LINES]
    assert report.faults == 0
    assert lost.answered == 2


def test_a_server_that_comes_back_is_asked_again(tmp_path):
    @dataclasses.dataclass
    class Back(Server):
        def answer(self, texts, seed):
            self.fault = ServerError("restarting", 503) if self.asked == 1 else None
            return super().answer(texts, seed)

        @contextlib.contextmanager
        def opened(self):
            self.fault = None
            yield self.answer

    server = Back()
    found, _ = job(tmp_path, [server], requests_at_once=1)
    assert found == [line.upper() for line in LINES]
    assert server.asked == server.answered + 1 == 11


def test_a_job_without_servers_ends_and_goes_on_later(tmp_path):
    with pytest.raises(
        ConnectionError, match=r"No server has answered for 1 seconds. The last fault: gone. Run the sa"
    ):
        job(tmp_path, [Server(ServerError("gone", 503))], patience=1.0)
    found, _ = job(tmp_path, [Server()])
    assert found == [line.upper() for line in LINES]


def test_a_text_that_a_server_refuses_is_no_fault_of_the_server(tmp_path):
    class Strict(Server):
        def answer(self, texts, seed):
            if b"bad" in texts:
                raise RefusedTextError("it is a bad word", b"bad")
            return super().answer(texts, seed)

    lines = [*LINES[:20], b"bad", *LINES[20:40]]
    found, report = job(tmp_path, [Strict()], lines)
    assert found == [b"" if line == b"bad" else line.upper() for line in lines]
    assert report.first_fault == f"line 21 of {tmp_path}/lines.txt: it is a bad word"


def test_a_server_that_refuses_everything_spoils_nothing(tmp_path):
    """Another server has the last word, also where the one that refuses is the quickest."""

    class Refusing(Server):
        def answer(self, texts, seed):
            self.asked += 1
            raise RefusedTextError("Malformed request", texts[0])

    class Slow(Server):
        def answer(self, texts, seed):
            time.sleep(0.01)
            return super().answer(texts, seed)

    refusing = Refusing()
    found, report = job(tmp_path, [refusing, Slow()])
    assert found == [line.upper() for line in LINES]
    assert report.faults == 0
    assert refusing.asked


def test_a_text_goes_to_two_of_three_servers_that_refuse_it(tmp_path):
    class Strict(Server):
        def answer(self, texts, seed):
            self.asked += b"bad" in texts
            if b"bad" in texts:
                raise RefusedTextError("it is a bad word", b"bad")
            return capitals(texts, seed)

    servers = [Strict(), Strict(), Strict()]
    found, report = job(tmp_path, servers, [b"good", b"bad"])
    assert (found, report.faults) == ([b"GOOD", b""], 1)
    assert sum(server.asked for server in servers) == 4  # with its neighbour, and alone


def test_a_busy_server_rests_before_it_is_asked_again(tmp_path):
    """Half a second, then twice as long each time, while the other one answers ten batches in a second."""

    class Slow(Server):
        def answer(self, texts, seed):
            time.sleep(0.1)
            return super().answer(texts, seed)

    busy = Server(fault=ServerError("busy", 429))
    found, report = job(tmp_path, [busy, Slow()], requests_at_once=1)
    assert found == [line.upper() for line in LINES]
    assert report.faults == 0
    assert 1 <= busy.asked <= 4


def test_a_line_that_breaks_every_connection_has_no_answer(tmp_path):
    class Fragile(Server):
        def answer(self, texts, seed):
            if b"bad" in texts:
                raise ServerError("does not answer: connection reset", 503, is_answer=False)
            return super().answer(texts, seed)

    lines = [*LINES[:5], b"bad", *LINES[5:10]]
    found, report = job(tmp_path, [Fragile(), Fragile()], lines, requests_at_once=1)
    assert found == [b"" if line == b"bad" else line.upper() for line in lines]
    assert (report.faults, report.first_fault) == (
        1,
        f"line 6 of {tmp_path}/lines.txt: does not answer: connection reset",
    )


@pytest.mark.parametrize("number", [1, 2])
def test_lines_that_are_lost_with_a_deadly_one_are_answered(number, tmp_path):
    """A server that dies loses all that it was asked at once."""

    class Mortal(Server):
        deaths = 0

        def answer(self, texts, seed):
            lived_until = self.deaths
            time.sleep(0.01 if b"bad" in texts else 0.04)
            self.deaths += b"bad" in texts
            if self.deaths > lived_until:
                raise ServerError("does not answer: connection reset", 503, is_answer=False)
            return super().answer(texts, seed)

    lines = [*LINES[:100], b"bad", *LINES[100:200]]
    found, report = job(tmp_path, [Mortal() for _ in range(number)], lines)
    assert found == [b"" if line == b"bad" else line.upper() for line in lines]
    assert report.faults == 1


def test_a_deadly_line_is_given_up_while_the_other_server_is_busy(tmp_path, monkeypatch):
    monkeypatch.setattr(servers, "LONGEST_HELD", 0.5)
    monkeypatch.setattr(servers, "LONGEST_REST", 0.5)

    class Fragile(Server):
        def answer(self, texts, seed):
            if b"bad" in texts:
                self.asked += 1
                raise ServerError("does not answer: connection reset", 503, is_answer=False)
            return super().answer(texts, seed)

    fragile, busy = Fragile(), Server(fault=ServerError("busy", 429))
    found, report = job(tmp_path, [fragile, busy], [b"good", b"bad"], requests_at_once=1)
    assert (found, report.faults) == ([b"GOOD", b""], 1)
    assert fragile.asked <= 10


def test_a_server_that_hangs_ends_the_job_and_loses_no_line(tmp_path):
    """It answers one batch. Then nothing comes back, whatever it is asked."""

    @dataclasses.dataclass
    class Hanging(Server):
        @contextlib.contextmanager
        def opened(self):
            if self.answered:
                raise ServerError("does not answer: timed out", 504, is_answer=False)
            yield self.answer

        def answer(self, texts, seed):
            if self.answered:
                raise ServerError("does not answer: timed out", 504, is_answer=False)
            return super().answer(texts, seed)

    with pytest.raises(ConnectionError, match="No server has answered for 1 seconds.*timed out"):
        job(tmp_path, [Hanging()], patience=1.0)
    assert b"\n\n" not in b"".join(part.read_bytes() for part in (tmp_path / "job").glob("part-*"))


def test_a_mistake_in_a_client_is_not_hidden(tmp_path):
    class Wrong(Server):
        def answer(self, texts, seed):
            raise TypeError("a mistake")

    with pytest.raises(TypeError, match="a mistake"):
        job(tmp_path, [Wrong()])
