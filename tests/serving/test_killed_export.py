"""`kformer export` as a real process, killed while it writes into a folder that a server watches."""

import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

from kformer.export.saved_model import export_saved_model

pytestmark = pytest.mark.tensorflow_only


def seen_by_a_server(base: pathlib.Path) -> set[str]:
    """The entries that TensorFlow Serving takes for versions: those whose names are 64-bit integers.

    See IndexChildrenByVersion in tensorflow_serving/sources/storage_path/file_system_storage_path_source.cc.
    """
    return {entry.name for entry in base.iterdir() if re.fullmatch(r"\s*[+-]?[0-9]+\s*", entry.name)}


@pytest.mark.slow
def test_a_server_sees_nothing_of_an_export_that_is_killed_and_the_next_one_removes_it(
    numbers_run, numbers_translator, tmp_path
):
    base = tmp_path / "translator"
    command = [sys.executable, "-m", "kformer", "export", numbers_run, base]
    with subprocess.Popen([*map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and not any(base.glob(".kformer-export-*/new/variables/*")):
            assert not base.exists() or seen_by_a_server(base) == set()
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    (left,) = base.iterdir()
    assert left.name.startswith(".kformer-export-")
    assert any(left.glob("new/variables/*"))
    assert seen_by_a_server(base) == set()

    version = export_saved_model(numbers_translator, base)
    assert seen_by_a_server(base) == {version.name} == {"1"}
    assert {entry.name for entry in base.iterdir()} == {"1", "batching.config", "models.config", "monitoring.config"}
