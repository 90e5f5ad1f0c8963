"""Runs of `kformer train` as real processes: one, or several that train together on JAX."""

import csv
import json
import os
import pathlib
import socket
import subprocess
import sys
from collections.abc import Sequence

import small_shards
import toy

# Few and small batches: every shape is compiled in every process.
TRAINING = toy.TRAINING.replace(
    tokens_per_batch=192, max_length=16, max_steps=8, validation_steps=4, checkpoint_minutes=1000.0, patience=1000
)
TRANSFORMER = toy.TRANSFORMER.replace(dropout_rate=0.1)


# What begins a process: kformer, or kformer with shards so small that the toy corpus has many.
KFORMER = ("-m", "kformer")
SMALL_SHARDS = (str(pathlib.Path(small_shards.__file__)),)


def write_files(folder: pathlib.Path, longest: int = 4, **training) -> pathlib.Path:
    """The toy corpus of sentences up to so many words and a configuration, as files; gives the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    corpus = toy.corpus(longest)
    for part in ("train", "valid"):
        lines = (f"{source}\t{target}\n" for source, target in getattr(corpus, part))
        (folder / f"{part}.tsv").write_text("".join(lines))
    config = {"training": TRAINING.replace(**training).to_dict(), "transformer": TRANSFORMER.to_dict()}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def start(
    files: pathlib.Path,
    run: pathlib.Path,
    *options: object,
    backend: str = "jax",
    devices: int = 1,
    program: Sequence[str] = KFORMER,
) -> subprocess.Popen:
    """A process that trains; with JAX on as many simulated devices as asked for."""
    command = [sys.executable, *program, "train", "--train", files / "train.tsv", "--valid", files / "valid.tsv"]
    command += ["--config", files / "config.json", "--output", run, *options]
    environment = {
        **os.environ,
        "KERAS_BACKEND": backend,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
    }
    return subprocess.Popen(
        [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
    )


_reserved: list[socket.socket] = []


def free_address() -> str:
    """An address of this machine, kept for the process that is told of it: the port is nobody else's meanwhile.

    Both sockets say that they share the port, as gRPC's do by default. This one does not listen, so all connections
    go to the other.
    """
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reserved.bind(("127.0.0.1", 0))
    _reserved.append(reserved)
    return f"127.0.0.1:{reserved.getsockname()[1]}"


def start_group(
    files: pathlib.Path, run: pathlib.Path, count: int, *options: object, program: Sequence[str] = KFORMER
) -> list[subprocess.Popen]:
    """Processes that train together. Number 0 writes to `run`; the others have a folder each that must stay empty."""
    group = ["--num-processes", count, "--coordinator", free_address(), *options]
    folders = [run, *(run.with_name(f"{run.name}-of-{number}") for number in range(1, count))]
    return [
        start(files, folder, "--process-id", number, *group, program=program) for number, folder in enumerate(folders)
    ]


def finish(*processes: subprocess.Popen, code: int | None = 0, timeout: float = 600) -> list[str]:
    """What the processes printed, when all have ended, with the exit status `code` unless it is None; none is left."""
    try:
        outputs = [process.communicate(timeout=timeout)[0].decode() for process in processes]
    finally:
        for process in processes:
            process.kill()
    if code is not None:
        assert [process.returncode for process in processes] == [code] * len(processes), "\n\n".join(outputs)
    return outputs


def course(run: pathlib.Path) -> list[dict[str, float]]:
    """The rows of a run's log, without the times that it took."""
    with (run / "log.csv").open(newline="") as file:
        return [
            {name: float(value) for name, value in row.items() if name not in ("minutes", "tokens_per_second")}
            for row in csv.DictReader(file)
        ]
