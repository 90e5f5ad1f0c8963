"""Configurations of other toolkits may hold anything: an error tells it, and no traceback."""

import json
import shutil

import pytest
from importing.examples import FOLDER

from kformer.importing import imported_model
from kformer.importing.formats import choose_format
from kformer.importing.run import import_model, read_folder

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


@pytest.mark.parametrize(
    ("name", "field", "told"),
    [
        ("t5", "d_model", "d_model is 960000 by the configuration, and no weight has this size"),
        ("t5", "d_ff", "d_ff is 960000 by the configuration"),
        ("t5", "d_kv", "num_heads times head_dim is"),
        ("marian", "encoder_ffn_dim", "encoder_ffn_dim"),
        ("bert", "hidden_size", "d_model is 960000"),
        ("bert", "intermediate_size", "d_ff is 960000"),
        ("gpt2", "n_embd", "d_model is 960000"),
        ("llama", "intermediate_size", "d_ff is 960000"),
    ],
)
def test_sizes_that_no_weight_has_are_told_before_the_model_fills_the_memory(name, field, told, tmp_path, monkeypatch):
    monkeypatch.setattr(imported_model, "build_model", None)  # which would be called
    folder = shutil.copytree(FOLDER / name, tmp_path / "folder")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, field: 960_000}), encoding="utf-8")
    with pytest.raises(ValueError, match=told):
        import_model(folder, tmp_path / "run", name)
    assert not (tmp_path / "run").exists()
