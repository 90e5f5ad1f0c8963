"""The mean of a run's last weights."""

import io
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import rich.console
import toy
from typer.testing import CliRunner

from kformer.cli.main import app
from kformer.files.checksums import DamagedFileError
from kformer.models import build_transformer
from kformer.runs.folder import RunFolder
from kformer.tasks.translator import Translator
from kformer.training.averaging import average_weights
from kformer.training.train import train

pytestmark = pytest.mark.tensorflow_only


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Four validations, of which the weights of three are kept."""
    training = toy.TRAINING.replace(max_steps=8, validation_steps=2, keep_weights=3)
    folder, console = tmp_path_factory.mktemp("average") / "run", rich.console.Console(file=io.StringIO())
    with toy.untraced():
        return train(toy.corpus(), folder, toy.TRANSFORMER, training, console=console).run


def test_a_run_keeps_its_last_weights(run):
    names = [path.name for path in run.kept_weights()]
    assert names == [f"step-00000000{step}.weights.h5" for step in (4, 6, 8)]
    assert sorted(os.listdir(run.weights_folder)) == ["SHA256SUMS", *names]
    command = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    said = subprocess.run(command, cwd=run.weights_folder, capture_output=True, text=True, check=False)
    assert said.stdout.splitlines() == [f"{name}: OK" for name in names]


def test_every_weight_is_the_mean(run, tmp_path):
    made = average_weights(run.path, tmp_path / "new" / "mean", last=2)
    model = build_transformer(run.transformer_config(), dtype="float32")
    expected = []
    for path in run.kept_weights()[-2:]:
        model.load_weights(path)
        expected.append(model.get_weights())
    found = Translator.from_run(made.path).model.get_weights()
    for ours, first, second in zip(found, *expected, strict=True):
        np.testing.assert_allclose(ours, (first + second) / 2, atol=1e-7)
    assert os.listdir(tmp_path / "new") == ["mean"]
    assert made.training_config() == run.training_config()
    assert made.decoding_config() == run.decoding_config()
    assert made.samples() == run.samples() != []
    assert made.environment() == run.environment() != {}
    assert made.corpus() == {**run.corpus(), "mean_of": 2}


def test_all_that_were_kept_by_default(run, tmp_path):
    made = [average_weights(run.path, tmp_path / str(last), last) for last in (None, 3)]
    first, second = (Translator.from_run(folder.path).model.get_weights() for folder in made)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_more_than_were_kept_is_refused(run, tmp_path):
    with pytest.raises(ValueError, match=r"has kept the weights of 3 validations. Received: last=4. .* keep_weights"):
        average_weights(run.path, tmp_path / "mean", last=4)
    for last in (0, -1):
        wrong = rf"at least 1. Received: last={last}. Leave it out for all that .* has kept: 3\."
        with pytest.raises(ValueError, match=wrong):
            average_weights(run.path, tmp_path / "mean", last=last)
    with pytest.raises(FileExistsError, match="exists already"):
        average_weights(run.path, tmp_path, last=2)
    with pytest.raises(
        FileNotFoundError, match="none does not exist. Name the folder that `kformer train --output` wrote"
    ):
        average_weights(tmp_path / "none", tmp_path / "mean")
    assert not list(tmp_path.iterdir())


def test_a_mean_is_no_run_to_go_on_with(run, tmp_path):
    made = average_weights(run.path, tmp_path / "mean")
    weights = made.best_weights_file.read_bytes()
    with pytest.raises(ValueError, match="is a mean of weights, so there is nothing to resume. Begin a new run with"):
        train(toy.corpus(), made.path, resume=True)
    assert made.best_weights_file.read_bytes() == weights


@pytest.mark.slow
@pytest.mark.in_ci
def test_the_command_makes_a_run_that_translates(run, tmp_path):
    command = [sys.executable, "-m", "kformer", "average", str(run.path), str(tmp_path / "mean"), "--last", "3"]
    answer = subprocess.run(command, capture_output=True, check=True)
    assert answer.stdout.decode().strip() == str(tmp_path / "mean")
    assert isinstance(Translator.from_run(RunFolder(tmp_path / "mean").path)("one two"), str)


def flip_a_bit(path):
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)


def test_damaged_weights_get_into_no_mean(run, tmp_path):
    copy = RunFolder(shutil.copytree(run.path, tmp_path / "run"))
    flip_a_bit(copy.kept_weights()[1])
    with pytest.raises(DamagedFileError, match="step-000000006.weights.h5 does not match its checksum"):
        average_weights(copy.path, tmp_path / "mean")
    assert not (tmp_path / "mean").exists()
    average_weights(copy.path, tmp_path / "mean", last=1)


def test_the_last_weights_are_there_where_the_best_are_lost(run, tmp_path):
    copy = RunFolder(shutil.copytree(run.path, tmp_path / "run"))
    copy.best_weights_file.unlink()
    with pytest.raises(FileNotFoundError, match="has no best.weights.h5: somebody removed it. .*NEW --last 1"):
        copy.check()
    assert average_weights(copy.path, tmp_path / "mean", last=1).check()
    answer = CliRunner().invoke(app, ["average", str(copy.path), str(tmp_path / "by-command"), "--last", "1"])
    assert answer.exit_code == 0, answer.exception
    assert RunFolder(tmp_path / "by-command").check()


def test_a_run_that_drops_its_oldest_weights_meanwhile(run, tmp_path, monkeypatch):
    copy, listed = RunFolder(shutil.copytree(run.path, tmp_path / "run")), RunFolder.last_weights

    def dropped_after_the_list(folder, last=None):
        found = listed(folder, last)
        if len(found) == 3:
            found[0].unlink()
        return found

    monkeypatch.setattr(RunFolder, "last_weights", dropped_after_the_list)
    assert average_weights(copy.path, tmp_path / "mean").corpus()["mean_of"] == 2
