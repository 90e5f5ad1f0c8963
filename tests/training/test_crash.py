"""Runs that are stopped go on as if nothing had happened: real processes, real signals, a corpus of many shards.

The environment variables KFORMER_STOPS, KFORMER_PAIRS and KFORMER_FLIPS set how often each thing is tried.
"""

import csv
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest
import small_shards
import toy
from processes import SMALL_SHARDS

pytestmark = [pytest.mark.tensorflow_only, pytest.mark.slow]

STOPS = int(os.environ.get("KFORMER_STOPS", 3))  # for each signal
TRAINING = {
    **toy.TRAINING.to_dict(),
    **{"max_steps": 60 * STOPS, "validation_steps": 60, "tokens_per_batch": 128, "max_length": 32},
    **{"checkpoint_minutes": 0.0005, "gradient_accumulation_steps": 3, "patience": 1000},
    **{"ema_decay": 0.9, "keep_weights": 3, "scored_sources": 40, "monitor": "bleu"},
}
TRANSFORMER = {**toy.TRANSFORMER.to_dict(), "dropout_rate": 0.1}


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """A cache that no other test writes to."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KFORMER_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("crash")
    corpus = toy.corpus(small_shards.LONGEST)
    for part in ("train", "valid"):
        lines = (f"{source}\t{target}\n" for source, target in getattr(corpus, part))
        (folder / f"{part}.tsv").write_text("".join(lines))
    config = {"training": TRAINING, "transformer": TRANSFORMER}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def start(
    files: pathlib.Path, run: pathlib.Path, *options: str, config: pathlib.Path | None = None, **process
) -> subprocess.Popen:
    command = [sys.executable, *SMALL_SHARDS, "train", "--train", files / "train.tsv", "--valid", files / "valid.tsv"]
    command += ["--config", config or files / "config.json", "--output", run, *options]
    return subprocess.Popen(
        [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **process
    )


def finish(process: subprocess.Popen) -> str:
    output = process.communicate(timeout=600)[0].decode()
    assert process.returncode == 0, output
    return output


def arrays(checkpoint: pathlib.Path) -> dict[str, np.ndarray]:
    with np.load(checkpoint) as file:
        return {name: file[name] for name in file.files if name != "state.json"}


def rows(log: pathlib.Path) -> list[dict[str, str]]:
    """The course of a run without the times that it took."""
    with log.open(newline="") as file:
        return [
            {name: value for name, value in row.items() if name not in ("minutes", "tokens_per_second")}
            for row in csv.DictReader(file)
        ]


def weights(path: pathlib.Path) -> dict[str, np.ndarray]:
    found = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, item: found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None)
    return found


def assert_same(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> None:
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


def stop_once(files: pathlib.Path, run: pathlib.Path, number: int, after: float, while_writing: bool) -> bool:
    """Starts or resumes a run and sends it a signal some seconds after its first checkpoint.

    With `while_writing` the signal waits for the next checkpoint to be begun. Returns whether it came before its end.
    """
    checkpoint = run / "checkpoint.npz"
    before = written_at(checkpoint)
    process = start(files, run, "--auto-resume")
    while process.poll() is None and written_at(checkpoint) in (None, before):
        time.sleep(0.002)
    time.sleep(after)
    while while_writing and process.poll() is None and not unfinished(run):
        pass
    process.send_signal(number)
    output = process.communicate()[0].decode()
    assert process.returncode == (75 if number == signal.SIGINT else -number), output
    assert ("interrupted" in output) == (number == signal.SIGINT), output
    return unfinished(run)


def written_at(path: pathlib.Path) -> int | None:
    """When the file got its content; None where it is not there, as for a moment while it is replaced."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return None


def unfinished(run: pathlib.Path) -> bool:
    """Whether a checkpoint is being written, or a process was killed while it wrote one."""
    return any(run.glob(".kformer-checkpoint.npz-*/new/*"))


@pytest.fixture(scope="module")
def whole(files, cache, tmp_path_factory):
    """A run that nothing stops."""
    run = tmp_path_factory.mktemp("whole") / "run"
    assert "9,130 pairs kept" in finish(start(files, run))
    assert len(rows(run / "log.csv")) == STOPS
    [description] = cache.glob("corpora/ids-*/shards.json")
    assert len(json.loads(description.read_text())["shards"]) == 5
    return run


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.in_ci)]
)
def test_runs_stopped_at_random_moments_end_bit_for_bit_as_one_that_was_not(number, whole, files, tmp_path):
    run, moments = tmp_path / "stopped", random.Random(int(number))
    # Validations take some of the moments. Every other signal comes while a checkpoint is written.
    writing = [stop_once(files, run, number, moments.uniform(0, 0.5), turn % 2 == 1) for turn in range(STOPS)]
    assert any(writing) == (number == signal.SIGKILL)  # at the other signals the checkpoint is written to its end
    finish(start(files, run, "--resume"))
    assert_same_end(run, whole)


def assert_same_end(run: pathlib.Path, whole: pathlib.Path) -> None:
    """The same weights, optimizer, random state, patience, kept weights and course."""
    for name in ("checkpoint.npz", "previous-checkpoint.npz"):
        assert_same(arrays(run / name), arrays(whole / name))
    assert state(run) == state(whole)
    kept, expected = (sorted((folder / "weights").glob("*.h5")) for folder in (run, whole))
    assert [file.name for file in kept] == [file.name for file in expected]
    for file, theirs in zip([*kept, run / "best.weights.h5"], [*expected, whole / "best.weights.h5"], strict=True):
        assert_same(weights(file), weights(theirs))
    assert rows(run / "log.csv") == rows(whole / "log.csv")
    assert not list(run.glob(".kformer-*"))


def state(run: pathlib.Path) -> dict:
    """The numbers of the last checkpoint: updates, batches, best figure, validations since; not the time it took."""
    with np.load(run / "checkpoint.npz") as file:
        return {**json.loads(file["state.json"].tobytes()), "seconds": None}


PAIRS = int(os.environ.get("KFORMER_PAIRS", 2))
SHORT = ("--max-steps", "40")


@pytest.fixture(scope="module")
def short(files, tmp_path_factory):
    """A run of 40 updates."""
    run = tmp_path_factory.mktemp("short") / "run"
    finish(start(files, run, *SHORT))
    return run


def test_of_two_processes_that_start_together_exactly_one_trains(short, files, tmp_path):
    """New runs and resumed ones, at random distances of up to the time that a run takes to begin."""
    moments, refused = random.Random(1), 0
    for turn in range(PAIRS):
        run = tmp_path / f"run-{turn}"
        if turn % 2:  # resumed
            stop_once(files, run, signal.SIGKILL, 0.0, while_writing=False)
        processes = [start(files, run, "--auto-resume", *SHORT)]
        time.sleep(moments.uniform(0, 6))
        processes.append(start(files, run, "--auto-resume", *SHORT))
        outputs = [process.communicate(timeout=600)[0].decode() for process in processes]
        assert sorted(process.returncode for process in processes) == [0, 75], outputs
        loser = [process.returncode for process in processes].index(75)
        owner = rf"kformer: Another process works in .*: process {processes[1 - loser].pid} on \S+ since 20\d\d-"
        assert re.search(owner, outputs[loser].replace("\n", " ")), outputs[loser]
        refused += 1
        assert_same_end(run, short)
    assert refused == PAIRS


def test_a_full_disk_is_told_and_spoils_nothing(short, files, tmp_path):
    """A limit on the size of files stands for the disk: writing a checkpoint fails half-way."""
    run = shutil.copytree(short, tmp_path / "run")
    before = (run / "checkpoint.npz").read_bytes()

    def small_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, resource.RLIM_INFINITY))

    process = start(files, run, "--resume", "--max-steps", "400", preexec_fn=small_disk)
    output = process.communicate(timeout=600)[0].decode()
    assert process.returncode == 74
    assert "File too large" in output
    assert "before are undamaged: remove the cause (make room on a full disk)" in output.replace("\n", " ")
    assert (run / "checkpoint.npz").read_bytes() == before
    assert not list(run.glob(".kformer-*"))
    finish(start(files, run, "--resume", "--max-steps", "80"))


def test_a_run_killed_before_its_first_checkpoint_begins_again(files, tmp_path):
    run = tmp_path / "run"
    process = start(files, run, "--max-steps", "40")
    while process.poll() is None and not (run / "transformer.json").exists():
        time.sleep(0.002)
    process.kill()
    process.communicate()
    assert not (run / "checkpoint.npz").exists()
    assert "no checkpoint yet: the run begins again" in finish(start(files, run, "--resume", "--max-steps", "40"))


def test_a_run_that_diverges_names_the_step_and_keeps_the_last_good_checkpoint(files, tmp_path):
    training = {**TRAINING, "learning_rate_scale": 1e30, "warmup_steps": 1, "validation_steps": 4}
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"training": training, "transformer": TRANSFORMER}))
    process = start(files, tmp_path / "run", config=config)
    output = process.communicate(timeout=600)[0].decode()
    assert process.returncode == 3
    assert re.search(r"kformer: .*(not finite after update \d|The loss is \w+ after batch \d)", output), output
    assert "Traceback" not in output
    for checkpoint in (tmp_path / "run").glob("*checkpoint.npz"):
        assert all(np.isfinite(array).all() for name, array in arrays(checkpoint).items() if name.startswith("model"))
