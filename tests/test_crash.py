"""Runs that are killed go on as if nothing had happened: real processes, real signals."""

import csv
import json
import pathlib
import random
import re
import resource
import signal
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest
import toy

pytestmark = [pytest.mark.tensorflow_only, pytest.mark.slow]

KILLS = 20
TRAINING = {
    **toy.TRAINING.to_dict(),
    **{"max_steps": 2400, "validation_steps": 400, "tokens_per_batch": 128, "max_length": 32},
    **{"checkpoint_minutes": 0.0005, "gradient_accumulation_steps": 3, "patience": 1000},
}
TRANSFORMER = {**toy.TRANSFORMER.to_dict(), "dropout_rate": 0.1}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("crash")
    corpus = toy.corpus()
    for part in ("train", "valid"):
        lines = (f"{source}\t{target}\n" for source, target in getattr(corpus, part))
        (folder / f"{part}.tsv").write_text("".join(lines))
    config = {"training": TRAINING, "transformer": TRANSFORMER}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def start(files: pathlib.Path, run: pathlib.Path, *options: str, **process) -> subprocess.Popen:
    command = [sys.executable, "-m", "kformer", "train", "--train", files / "train.tsv", "--valid", files / "valid.tsv"]
    command += ["--config", files / "config.json", "--output", run, *options]
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


def kill_once(files: pathlib.Path, run: pathlib.Path, after: float, while_writing: bool) -> bool:
    """Starts or resumes a run and kills it some seconds after its first checkpoint.

    With `while_writing` the signal waits for the next checkpoint to be begun. Returns whether it came before its end.
    """
    checkpoint = run / "checkpoint.npz"
    before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else None
    process = start(files, run, *(["--resume"] if run.exists() else []))
    while process.poll() is None and (not checkpoint.exists() or checkpoint.stat().st_mtime_ns == before):
        time.sleep(0.002)
    time.sleep(after)
    partial = run / "partial-checkpoint.npz"
    while while_writing and process.poll() is None and not partial.exists():
        pass
    process.send_signal(signal.SIGKILL)
    output = process.communicate()[0].decode()
    assert process.returncode == -signal.SIGKILL, output
    return partial.exists()


def test_runs_killed_at_random_moments_end_bit_for_bit_as_one_that_was_not(files, tmp_path):
    finish(start(files, tmp_path / "whole"))
    moments = random.Random(1)
    writing = [
        kill_once(files, tmp_path / "killed", moments.uniform(0, 0.5), number % 2 == 1) for number in range(KILLS)
    ]
    assert any(writing)  # some were killed while they wrote a checkpoint
    finish(start(files, tmp_path / "killed", "--resume"))
    for name in ("checkpoint.npz", "previous-checkpoint.npz"):
        assert (tmp_path / "killed" / name).exists()
    assert_same(arrays(tmp_path / "killed" / "checkpoint.npz"), arrays(tmp_path / "whole" / "checkpoint.npz"))
    assert_same(weights(tmp_path / "killed" / "best.weights.h5"), weights(tmp_path / "whole" / "best.weights.h5"))
    assert rows(tmp_path / "killed" / "log.csv") == rows(tmp_path / "whole" / "log.csv")
    assert len(rows(tmp_path / "whole" / "log.csv")) == 6


def test_a_full_disk_is_told_and_spoils_nothing(files, tmp_path):
    """A limit on the size of files stands for the disk: writing a checkpoint fails half-way."""
    run = tmp_path / "run"
    finish(start(files, run, "--max-steps", "40"))
    before = (run / "checkpoint.npz").read_bytes()

    def small_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, resource.RLIM_INFINITY))

    process = start(files, run, "--resume", "--max-steps", "400", preexec_fn=small_disk)
    output = process.communicate(timeout=600)[0].decode()
    assert process.returncode == 1
    assert "File too large" in output
    assert "before are undamaged: remove the cause (make room on a full disk)" in output.replace("\n", " ")
    assert (run / "checkpoint.npz").read_bytes() == before
    assert not list(run.glob("partial-*"))
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
    (files / "diverges.json").write_text(json.dumps({"training": training, "transformer": TRANSFORMER}))
    process = start(files, tmp_path / "run", "--config", str(files / "diverges.json"))
    output = process.communicate(timeout=600)[0].decode()
    assert process.returncode == 1
    assert re.search(r"kformer: .*(not finite after update \d|The loss is \w+ after batch \d)", output), output
    assert "Traceback" not in output
    for checkpoint in (tmp_path / "run").glob("*checkpoint.npz"):
        assert all(np.isfinite(array).all() for name, array in arrays(checkpoint).items() if name.startswith("model"))
