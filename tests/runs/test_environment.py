"""What a run notes of the versions it is trained with."""

import io
import json
import platform
import shutil

import keras
import numpy as np
import pytest
import rich.console
import tensorflow as tf
import toy

import kformer
from kformer.runs.environment import describe_environment, environment_changes
from kformer.runs.folder import RunFolder
from kformer.training.train import train

pytestmark = pytest.mark.tensorflow_only


def test_versions_backend_and_platform_are_in_the_run_folder(numbers_run):
    noted = RunFolder(numbers_run).environment()
    assert noted["kformer"] == kformer.__version__
    assert noted["keras"] == keras.__version__
    assert noted["tensorflow"] == tf.__version__
    assert noted["numpy"] == np.__version__
    assert noted["python"] == platform.python_version()
    assert noted["backend"] == "tensorflow"
    assert {"sentencepiece", "tensorflow_text", "platform"} < set(noted)


def test_changes_are_named_with_both_versions():
    now = describe_environment()
    assert environment_changes(now) == []
    assert environment_changes({**now, "keras": "3.0.0"}) == [f"keras 3.0.0 (now {keras.__version__})"]
    assert environment_changes({**now, "jax": "0.4"}) == ["jax 0.4 (now not used)"]


def test_a_run_that_goes_on_under_other_versions_says_so(numbers_run, tmp_path):
    console = rich.console.Console(file=io.StringIO(), width=500)
    run = RunFolder(shutil.copytree(numbers_run, tmp_path / "run"))
    train(toy.corpus(), run.path, resume=True, console=console)
    assert "The run began with" not in console.file.getvalue()
    run.environment_file.write_text(json.dumps({**run.environment(), "numpy": "1.0"}))
    run.note_files()
    train(toy.corpus(), run.path, resume=True, console=console)
    assert f"The run began with numpy 1.0 (now {np.__version__}): its results may differ" in console.file.getvalue()
