"""Workers that are processes: killed, late, and those that never begin."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from job_fakes import KILLS, REFUSED, SLEEPS, Capitals, read

from kformer.jobs import JobSettings, run_job
from kformer.jobs.processes import ProcessWorkers, WorkerLostError


def job(tmp_path, lines, workers, **settings):
    """Runs a job over lines; gives what it wrote, and its report."""
    file = tmp_path / "lines.txt"
    file.write_bytes(b"".join(line + b"\n" for line in lines))
    report = run_job(tmp_path / "job", JobSettings((file,), {}, **settings), read, workers)
    written = b"".join(part.read_bytes() for part in sorted((tmp_path / "job").glob("part-*")))
    return written.splitlines(), report


def test_several_processes_share_the_lines(tmp_path):
    log = tmp_path / "log"
    lines = [b"line %d" % number for number in range(1000)]
    found, _ = job(tmp_path, lines, ProcessWorkers(Capitals(log=str(log), seconds=0.3), 3, 60.0), lines_per_part=100)
    assert found == [line.upper() for line in lines]
    assert len({*log.read_text().split()}) == 3


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (REFUSED, "it is a bad word"),
        (KILLS, "its process ended (SIGKILL)"),
        (SLEEPS, "no answer within 0.5 s"),
    ],
    ids=["refused", "kills", "sleeps"],
)
def test_a_line_that_stops_its_process_does_not_hold_up_the_others(bad, told, tmp_path):
    lines = [b"line %d" % number for number in range(70)]
    lines[33] = bad
    found, report = job(tmp_path, lines, ProcessWorkers(Capitals(), 2, seconds=0.5))
    assert found == [b"" if line == bad else line.upper() for line in lines]
    assert (report.faults, report.first_fault) == (1, f"line 34 of {tmp_path}/lines.txt: {told}")


@pytest.mark.slow
@pytest.mark.in_ci
def test_processes_that_are_killed_at_random_lose_and_double_nothing(tmp_path):
    log = tmp_path / "log"
    lines = [b"line %d" % number for number in range(3000)]
    ended = threading.Event()

    def kill():
        # The oldest one and not too often: a line with which four processes end counts as one that ends them.
        killed = set()
        while not ended.wait(0.3) and len(killed) < 8:
            living = [int(number) for number in log.read_text().split()] if log.exists() else []
            for process in [process for process in living if process not in killed][:1]:
                killed.add(process)
                with contextlib.suppress(ProcessLookupError):  # the job has just ended
                    os.kill(process, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        workers = ProcessWorkers(Capitals(log=str(log), seconds=0.05), 3, 60.0)
        found, report = job(tmp_path, lines, workers, lines_per_part=300)
    finally:
        ended.set()
        killer.join()
    assert found == [line.upper() for line in lines]
    assert report.faults == 0
    assert len(log.read_text().split()) > 5  # 3 processes, and those that took the places of the killed


STOPPED = """
import contextlib, dataclasses, pathlib, time
from job_fakes import capitals, read
from kformer.jobs import JobSettings, run_job
from kformer.jobs.processes import ProcessWorkers

@dataclasses.dataclass(frozen=True)
class Slow:
    @contextlib.contextmanager
    def opened(self):
        pathlib.Path("log").touch()
        yield self.answer

    def answer(self, texts, seed):
        for _ in range(15):  # what is left of it when it is stopped is done afterwards
            time.sleep(0.1)
        return capitals(texts)

if __name__ == "__main__":
    settings = JobSettings((pathlib.Path("lines.txt"),), {})
    workers = ProcessWorkers(Slow(), 1, seconds=3.0)
    print(run_job(pathlib.Path("job"), settings, read, workers).faults)
"""


def test_a_job_that_was_stopped_and_goes_on_gives_up_no_line(tmp_path):
    """Ctrl-Z stops the workers, too: their time does not run on."""
    (tmp_path / "lines.txt").write_text("one\n")
    (tmp_path / "program.py").write_text(STOPPED)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(pathlib.Path(__file__).parent), *sys.path])}
    command = [sys.executable, "program.py"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as job:
        while not (tmp_path / "log").exists():
            time.sleep(0.05)
        time.sleep(0.5)
        os.killpg(job.pid, signal.SIGSTOP)
        time.sleep(4.0)
        os.killpg(job.pid, signal.SIGCONT)
        assert job.communicate()[0] == "0\n"
    assert (tmp_path / "job" / "part-000000000.txt").read_text() == "ONE\n"


def test_ctrl_c_is_for_the_leading_process_alone(tmp_path):
    """A terminal sends it to the workers, too. They go on, without a traceback of their own."""
    log = tmp_path / "log"

    def interrupt_workers():
        while not log.exists():
            time.sleep(0.05)
        for process in {*log.read_text().split()}:
            os.kill(int(process), signal.SIGINT)

    interrupting = threading.Thread(target=interrupt_workers)
    interrupting.start()
    lines = [b"line %d" % number for number in range(300)]
    found, _ = job(tmp_path, lines, ProcessWorkers(Capitals(log=str(log), seconds=0.3), 1, 60.0))
    interrupting.join()
    assert found == [line.upper() for line in lines]
    assert len(log.read_text().split()) == 1  # process: the first one was not replaced


def test_a_model_that_cannot_be_loaded_is_told(tmp_path):
    with pytest.raises(ValueError, match="no weights here"):
        job(tmp_path, [b"one"], ProcessWorkers(Capitals(fault="no weights here"), 2, 60.0))


def test_processes_that_die_before_they_begin_end_the_job(tmp_path):
    told = (
        r"3 worker processes ended before the model was loaded; the last one: its process ended \(SIGKILL\). Is there"
    )
    with pytest.raises(WorkerLostError, match=told):
        job(tmp_path, [b"one"], ProcessWorkers(Capitals(fault="kills"), 2, 60.0))


def test_a_process_that_has_made_a_saved_model_is_replaced_once(tmp_path):
    """A model of CTranslate2 imports TensorFlow in every process."""
    log = tmp_path / "log"
    workers = ProcessWorkers(Capitals(log=str(log), seconds=0.05, imports_tensorflow=True), 2, 60.0)
    lines = [b"line %d" % number for number in range(1000)]
    found, _ = job(tmp_path, lines, workers)
    assert found == [line.upper() for line in lines]
    assert len(log.read_text().split()) == 3


@pytest.mark.parametrize("text", ["x", "sleeps"])
def test_workers_end_with_the_process_that_leads_them(text, tmp_path):
    log = tmp_path / "log"
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            f"""
            import pathlib
            from job_fakes import Capitals, read
            from kformer.jobs import JobSettings, run_job
            from kformer.jobs.processes import ProcessWorkers

            if __name__ == "__main__":
                file = pathlib.Path({str(tmp_path / "lines.txt")!r})
                file.write_text("{text}\\n" * 100_000)
                workers = ProcessWorkers(Capitals(log={str(log)!r}, seconds=0.1), 2, 60.0)
                run_job(pathlib.Path({str(tmp_path / "job")!r}), JobSettings((file,), {{}}), read, workers)
            """
        )
    )
    paths = os.pathsep.join([str(pathlib.Path(__file__).parent), *sys.path])
    leading = subprocess.Popen([sys.executable, program], env={**os.environ, "PYTHONPATH": paths})
    _wait_until(lambda: log.exists() and len(log.read_text().split()) == 2)
    time.sleep(0.3)  # they are within a batch
    leading.kill()
    leading.wait()
    workers = [int(number) for number in log.read_text().split()]
    _wait_until(lambda: not any(_is_alive(process) for process in workers))


def _is_alive(process):
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _wait_until(condition, seconds=30):
    last = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < last
        time.sleep(0.05)
