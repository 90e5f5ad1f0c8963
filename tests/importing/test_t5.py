"""T5 of Hugging Face: what is refused."""

import json
import shutil

import pytest
from importing.examples import FOLDER

from kformer.importing.run import import_model

pytestmark = pytest.mark.tensorflow_only


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("relative_attention_num_buckets", 16),
        ("relative_attention_max_distance", 64),
        ("feed_forward_proj", "gated-silu"),
        ("num_layers", None),
    ],
)
def test_what_cannot_be_represented_is_refused_by_its_name(tmp_path, field, value):
    folder = shutil.copytree(FOLDER / "t5", tmp_path / "folder")
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    with pytest.raises(ValueError, match=f"{field}.* in .*config.json"):
        import_model(folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()
