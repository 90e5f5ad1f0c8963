"""Does a job have every line once, in order, whatever is killed?

    python -m benchmarks.jobs.kills --preset cmudict --lines 200000 --kills 30
    python -m benchmarks.jobs.kills --preset cmudict --lines 200000 --kills 6 --servers 3

A job runs undisturbed, and once more while processes of it are killed at random moments: the one that leads, which is
then started again, or one that answers. With --servers, the second job asks so many `kformer serve` of this machine,
and servers are killed, each of which is started again ten seconds later. Printed are the kills, the seconds of both
jobs, and how many lines of the second job differ from the first one's. Fewer or more lines are an error.
"""

import argparse
import contextlib
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time

import kformer
from benchmarks.jobs.speed import CORPORA
from kformer.data import load_corpus

KFORMER = [sys.executable, "-m", "kformer"]
REST_SECONDS = 10  # of a server that was killed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=CORPORA, default="cmudict")
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--servers", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        translator = kformer.Translator.from_preset(arguments.preset)
        kformer.export_saved_model(translator, folder / "export", precision="int8")
        sources = [source for source, _ in load_corpus(CORPORA[arguments.preset]).train]
        lines = [sources[number % len(sources)] for number in range(arguments.lines)]
        (folder / "lines.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        began = time.monotonic()
        subprocess.run(command(folder, [str(folder / "export")], "whole"), check=True)
        undisturbed = time.monotonic() - began
        print(f"{arguments.lines:,} lines; undisturbed {undisturbed:.0f} s", flush=True)
        began = time.monotonic()
        if arguments.servers:
            told = with_dying_servers(folder, arguments.servers, arguments.kills, undisturbed)
        else:
            told = with_killed_processes(folder, arguments.kills, undisturbed)
        seconds = time.monotonic() - began
        found, expected = answers(folder / "job"), answers(folder / "whole")
        if not len(found) == len(expected) == arguments.lines:
            raise SystemExit(f"{len(found):,} lines, and {len(expected):,} undisturbed.")
        different = sum(one != other for one, other in zip(found, expected, strict=True))
        print(f"{told}; {seconds:.0f} s; {different:,} of {arguments.lines:,} lines differ")


def command(folder: pathlib.Path, model: list[str], output: str) -> list[str]:
    """The job that answers the lines; in parts so small that a kill between two of them counts."""
    files = ["--input", str(folder / "lines.txt"), "--output", f"{folder / output}/", "--lines-per-part", "2000"]
    return [*KFORMER, "translate", *model, *files]


def answers(folder: pathlib.Path) -> list[str]:
    """All lines of a job."""
    return [line for part in sorted(folder.glob("part-*")) for line in part.read_text("utf-8").splitlines()]


def with_killed_processes(folder: pathlib.Path, kills: int, undisturbed: float) -> str:
    """Runs the job while its processes are killed."""
    moments, leaders, others = random.Random(7), 0, 0
    job = command(folder, [str(folder / "export")], "job")
    leader = subprocess.Popen(job)
    while leaders + others < kills:
        time.sleep(moments.uniform(0.5, 2 * undisturbed / kills))
        if leader.poll() == 0:
            break
        children = pathlib.Path(f"/proc/{leader.pid}/task/{leader.pid}/children").read_text().split()
        killed = moments.choice([leader.pid, *map(int, children)])
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(killed, signal.SIGKILL)
        if killed == leader.pid:
            leaders += 1
            leader.wait()
            leader = subprocess.Popen(job)
        else:
            others += 1
    if leader.wait():
        raise SystemExit(f"The job ended with the status {leader.returncode}.")
    return f"the leading process killed {leaders} times, processes that answer {others} times"


def with_dying_servers(folder: pathlib.Path, servers: int, kills: int, undisturbed: float) -> str:
    """Runs the job on servers that are killed and started again."""
    moments, ports = random.Random(7), free_ports(servers)
    running = {port: started(folder, port) for port in ports}
    urls = ",".join(f"http://127.0.0.1:{port}/v1/models/export" for port in ports)
    job = subprocess.Popen(command(folder, ["--server", urls], "job"))
    done = 0
    while done < kills and job.poll() is None:
        time.sleep(moments.uniform(0.5, 2 * undisturbed / kills))
        port = moments.choice(ports)
        running[port].kill()
        running[port].wait()
        done += 1
        time.sleep(REST_SECONDS)
        running[port] = started(folder, port)
    status = job.wait()
    for server in running.values():
        server.kill()
    if status:
        raise SystemExit(f"The job ended with the status {status}.")
    return f"servers killed and started again {done} times, of {servers}"


def free_ports(number: int) -> list[int]:
    """Ports on which nobody listens."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def started(folder: pathlib.Path, port: int) -> "subprocess.Popen[bytes]":
    """A server, once it answers."""
    options = ["--rest-port", str(port), "--grpc-port", "0", "--max-queue-seconds", "60", "--log-level", "error"]
    server = subprocess.Popen([*KFORMER, "serve", str(folder / "export"), *options], stdout=subprocess.PIPE)
    if server.stdout is None or not server.stdout.readline():
        raise SystemExit("A server does not start.")
    return server


if __name__ == "__main__":
    main()
