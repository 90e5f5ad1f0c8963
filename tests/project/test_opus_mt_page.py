"""The commands of docs/from-opus-mt.md run as they stand."""

import json
import pathlib
import re
import shlex

import pytest
from page_commands import blocks_of, run_block, served, wait_for_version
from typer.testing import CliRunner

from benchmarks.bridges import opus_mt_folder
from kformer.cli.main import app

pytestmark = pytest.mark.tensorflow_only
PAGE = "from-opus-mt.md"


@pytest.mark.slow
@pytest.mark.in_ci
def test_import_and_translation(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    making, importing, *_ = blocks_of(PAGE)
    *program, folder = shlex.split(making)
    assert program == ["python", "-m", opus_mt_folder.__name__]
    opus_mt_folder.make(pathlib.Path(folder))
    importing, translating = importing.splitlines()
    assert CliRunner().invoke(app, shlex.split(importing)[1:]).exit_code == 0
    text, command = re.fullmatch(r'echo "(.*)" \| kformer (.*)', translating).groups()
    answer = CliRunner().invoke(app, command.split(), input=f"{text}\n")
    assert (answer.exit_code, answer.stdout.count("\n")) == (0, 1)
    assert answer.stdout.strip()


@pytest.mark.slow
def test_all_commands(tmp_path):
    *first, serving, asking, tuning, exporting = blocks_of(PAGE)
    for block in first:
        run_block(block, tmp_path)
    with served(shlex.split(serving), tmp_path) as port:
        asking = asking.replace("localhost:8501", f"localhost:{port}")
        (answer,) = json.loads(run_block(asking, tmp_path))["predictions"]
        assert answer["translation"]
        told = run_block(tuning, tmp_path)
        assert "bleu" in json.loads(told.splitlines()[-1])
        run_block(exporting, tmp_path)
        wait_for_version(port, "en-es", "2")
        (tuned,) = json.loads(run_block(asking, tmp_path))["predictions"]
        assert tuned != answer
