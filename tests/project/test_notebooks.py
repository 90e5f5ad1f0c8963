"""The notebooks run as they are, on tiny budgets, without a warning; every picture in them shows something."""

import base64
import contextlib
import io
import json
import os
import pathlib
import signal
import sys

import jupytext
import matplotlib.image
import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.tensorflow_only
NOTEBOOKS = pathlib.Path(__file__).parents[2] / "notebooks"
SCRIPTS = sorted(NOTEBOOKS.glob("*.py"))
BUDGETS = {"KFORMER_NOTEBOOK_MINUTES": "0.2", "KFORMER_NOTEBOOK_SENTENCES": "4", "KFORMER_NOTEBOOK_LENGTHS": "32,64"}
# How many pictures and pages each notebook shows.
SHOWN = {
    "attention_from_scratch": (10, 1),
    "decoding": (4, 0),
    "export_and_serve": (1, 0),
    "quickstart": (2, 0),
    "train_a_translator": (1, 0),
}
# They train, export and serve. The others show what the tests of layers and searches show, too.
IN_CI = {"export_and_serve", "quickstart", "train_a_translator"}


def outputs(notebook, kind):
    """All outputs of a MIME type, decoded as Jupyter keeps them."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [output.data[kind] for cell in cells for output in cell.outputs if kind in output.get("data", {})]


def test_there_is_a_row_for_every_notebook():
    assert [path.stem for path in SCRIPTS] == sorted(SHOWN)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_notebook_and_its_script_are_a_pair(script):
    notebook = nbformat.read(script.with_suffix(".ipynb"), as_version=4)
    paired = jupytext.read(script)
    assert [(cell.cell_type, cell.source) for cell in notebook.cells] == [
        (cell.cell_type, cell.source) for cell in paired.cells
    ], "after a change of the script, run: make notebooks"
    assert not any(cell.get("outputs") for cell in notebook.cells), "outputs are not committed"
    assert not any("\nclass " in f"\n{cell.source}" for cell in notebook.cells), "notebooks define no class"
    installs = [cell.source.splitlines()[-1] for cell in notebook.cells if "install" in cell.metadata.get("tags", ())]
    assert len(installs) == 1
    assert installs[0].startswith("%pip install --quiet ")


@pytest.fixture
def _no_tensorboard_left(tmp_path, monkeypatch):
    """Ends the TensorBoard that a notebook starts, which would outlive it."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # where TensorBoard notes its processes
    yield
    for note in (tmp_path / ".tensorboard-info").glob("pid-*.info"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(json.loads(note.read_text())["pid"], signal.SIGTERM)


@pytest.mark.slow
@pytest.mark.notebook
@pytest.mark.usefixtures("_no_tensorboard_left")
@pytest.mark.parametrize(
    "script",
    [pytest.param(path, marks=pytest.mark.in_ci if path.stem in IN_CI else ()) for path in SCRIPTS],
    ids=lambda path: path.stem,
)
def test_a_notebook_runs_and_shows_its_pictures(script, tmp_path, monkeypatch):
    for name, value in {**BUDGETS, "KFORMER_NOTEBOOK_OUTPUT": str(tmp_path / "output")}.items():
        monkeypatch.setenv(name, value)
    # What a person sees is tested, and a kernel of another environment would run another kformer.
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL")
    monkeypatch.setenv("PATH", f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    notebook = jupytext.read(script)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook.cells = [cell for cell in notebook.cells if "install" not in cell.metadata.get("tags", ())]
    place = {"metadata": {"path": str(tmp_path)}}
    # A kernel takes long to start where other tests run with a higher priority.
    NotebookClient(notebook, timeout=600, startup_timeout=600, resources=place).execute()
    streams = [
        output for cell in notebook.cells for output in cell.get("outputs", ()) if output.output_type == "stream"
    ]
    assert [output.text for output in streams if output.name == "stderr"] == []
    assert [output.text for output in streams if "ERROR" in output.text] == []  # such as: no program tensorboard
    pictures = [matplotlib.image.imread(io.BytesIO(base64.b64decode(data))) for data in outputs(notebook, "image/png")]
    pages = [page for page in outputs(notebook, "text/html") if page.startswith("<iframe")]
    assert (len(pictures), len(pages)) == SHOWN[script.stem]
    for picture in pictures:
        shades = np.unique(picture[..., :3].reshape(-1, 3), axis=0)
        assert min(picture.shape[:2]) > 200
        assert len(shades) > 20, "an empty figure"
