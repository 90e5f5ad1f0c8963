"""Configurations of other toolkits may hold anything: an error tells it, and no traceback."""

import json
import shutil

import pytest
from importing.examples import FOLDER

from kformer.importing.formats import choose_format
from kformer.importing.run import read_folder

pytestmark = pytest.mark.tensorflow_only


@pytest.mark.parametrize("value", [[], "x", 10**30, {"a": 1}], ids=str)
@pytest.mark.parametrize("name", ["marian", "bart", "t5", "llama", "bert"])
def test_a_field_of_the_wrong_type_is_an_error_of_the_folder(name, value, tmp_path):
    folder = shutil.copytree(FOLDER / name, tmp_path / "folder")
    wrong = 0
    for file in ("config.json", "generation_config.json"):
        if not (folder / file).is_file():
            continue
        written = (folder / file).read_text(encoding="utf-8")
        content = json.loads(written)
        for field in content:
            (folder / file).write_text(json.dumps({**content, field: value}), encoding="utf-8")
            try:
                read_folder(folder, choose_format(folder, name))
            except (ValueError, FileNotFoundError):  # whatever else comes fails the test
                wrong += 1
        (folder / file).write_text(written, encoding="utf-8")
    assert wrong > 5
