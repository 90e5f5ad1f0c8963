"""Does a job have every line once, in order, whatever is killed?

    python -m benchmarks.jobs.kills --preset cmudict --lines 200000 --kills 30
    python -m benchmarks.jobs.kills --preset cmudict --lines 200000 --kills 6 --servers 3

A job runs twice. The second time, processes of it are killed at random moments: a worker, or the leading process, which
is then started again. With --servers 3, three `kformer serve` of this machine answer the second job. They are killed
one at a time, and started again after ten seconds. The script prints the number of kills, the seconds of both jobs, and
how many lines differ. A difference is an error, but not with servers: they make other batches, whose numbers may be
rounded differently.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import kformer
from benchmarks.common.server import Served
from benchmarks.jobs.speed import CORPORA
from kformer.data import load_corpus

REST_SECONDS = 10  # of a server that was killed
LINES_PER_PART = 2000  # so few that kills fall between parts and within them
SERVER_OPTIONS = ["--max-queue-seconds", "60", "--log-level", "error"]


class Job:
    """The job that answers the lines, as a process.

    Args:
        folder: Has the lines, and gets the folder of the answers.
        model: The words of the command that name the model.
        output: Name of the folder of the answers.
    """

    def __init__(self, folder: pathlib.Path, model: list[str], output: str) -> None:
        self.folder = folder / output
        files = ["--input", str(folder / "lines.txt"), "--output", f"{self.folder}/"]
        options = ["--lines-per-part", str(LINES_PER_PART)]
        self._command = [sys.executable, "-m", "kformer", "translate", *model, *files, *options]

    def __enter__(self) -> "Job":
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()

    def start(self) -> None:
        """Starts the process, also once more after its end."""
        self.process = subprocess.Popen(self._command)

    def ends_within(self, seconds: float) -> bool:
        """Whether the process ends within so many seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.process.returncode is not None

    def workers(self) -> list[int]:
        """The living worker processes."""
        with contextlib.suppress(FileNotFoundError):  # the job has just ended
            children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
            return [int(child) for child in children if b"--multiprocessing-fork" in _command_line(child)]
        return []

    def answers(self) -> list[bytes]:
        """All lines, once the job has ended.

        Raises:
            SystemExit: The job failed, or its parts are not each there once.
        """
        if self.process.wait():
            raise SystemExit(f"The job ended with the status {self.process.returncode}.")
        manifest = (self.folder / "manifest.jsonl").read_text(encoding="utf-8").splitlines()
        numbers = sorted(json.loads(line)["number"] for line in manifest)
        if numbers != [*range(len(numbers))]:
            raise SystemExit(f"The manifest has the parts {numbers}.")
        return [line for part in sorted(self.folder.glob("part-*")) for line in part.read_bytes().splitlines()]


def _command_line(process: str) -> bytes:
    """Nothing if the process has ended."""
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{process}/cmdline").read_bytes()
    return b""


def prepare(folder: pathlib.Path, preset: str, number: int) -> None:
    """Writes the export and the lines."""
    kformer.export_saved_model(kformer.Translator.from_preset(preset), folder / "export", precision="int8")
    sources = [source for source, _ in load_corpus(CORPORA[preset]).train]
    lines = (sources[place % len(sources)] for place in range(number))
    (folder / "lines.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def kill_processes(job: Job, kills: int, pause: float) -> str:
    """Kills processes of a job at random moments, with a pause between them of so many seconds in the mean."""
    draw, leaders, workers = random.Random(7), 0, 0
    while leaders + workers < kills and not job.ends_within(draw.uniform(0, 2 * pause)):
        killed = draw.choice([job.process.pid, *job.workers()])
        if killed == job.process.pid:
            job.process.kill()
            if job.process.wait() == -signal.SIGKILL:  # and had not just ended
                leaders += 1
                job.start()
        else:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(killed, signal.SIGKILL)
                workers += 1
    return f"{leaders} kills of the leading process, {workers} of workers"


def kill_servers(job: Job, servers: list[Served], kills: int, pause: float) -> str:
    """Kills servers under a job, and starts each again; otherwise as `kill_processes`."""
    draw, done = random.Random(7), 0
    while done < kills and not job.ends_within(draw.uniform(0, 2 * pause)):
        server = draw.choice(servers)
        server.close()
        done += 1
        time.sleep(REST_SECONDS)
        server.start()
    return f"{done} kills of {len(servers)} servers"


@contextlib.contextmanager
def started(folder: pathlib.Path, number: int) -> Iterator[list[Served]]:
    """So many servers of the export, which are killed at the end."""
    with contextlib.ExitStack() as stack:
        servers = []
        for place in range(number):
            server = Served(folder / "export", "export", SERVER_OPTIONS, folder / f"server-{place}.log")
            servers.append(server.start())
            stack.callback(server.close)
        yield servers


def compare(folder: pathlib.Path, lines: int, kills: int, number_of_servers: int) -> None:
    """Runs both jobs and prints what they show.

    Raises:
        SystemExit: A line is missing or there twice; or, without servers, differs.
    """
    began = time.monotonic()
    with Job(folder, [str(folder / "export")], "whole") as whole:
        expected = whole.answers()
    undisturbed = time.monotonic() - began
    print(f"{lines:,} lines; undisturbed {undisturbed:.0f} s", flush=True)
    with started(folder, number_of_servers) as servers:
        urls = ",".join(f"http://127.0.0.1:{server.rest_port}/v1/models/export" for server in servers)
        began, pause = time.monotonic(), undisturbed / kills
        with Job(folder, ["--server", urls] if servers else [str(folder / "export")], "job") as job:
            told = kill_servers(job, servers, kills, pause) if servers else kill_processes(job, kills, pause)
            found = job.answers()
        seconds = time.monotonic() - began
    if not len(found) == len(expected) == lines:
        raise SystemExit(f"{len(found):,} lines, and {len(expected):,} undisturbed.")
    different = sum(one != other for one, other in zip(found, expected, strict=True))
    print(f"{told}, of {kills} wanted; {seconds:.0f} s; {different:,} of {lines:,} lines differ")
    if different and not servers:
        raise SystemExit("The job with kills has other answers.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=CORPORA, default="cmudict")
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--servers", type=int, default=0, help="0: the job answers by processes of its own")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        prepare(folder, arguments.preset, arguments.lines)
        compare(folder, arguments.lines, arguments.kills, arguments.servers)


if __name__ == "__main__":
    main()
