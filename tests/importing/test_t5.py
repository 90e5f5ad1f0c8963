"""T5 of Hugging Face: other numbers of layers, and what is refused."""

import json
import shutil

import pytest
import safetensors.numpy
from importing.examples import FOLDER

from kformer.importing.run import import_model

pytestmark = pytest.mark.tensorflow_only


def test_the_decoder_may_have_fewer_layers_than_the_encoder(tmp_path):
    folder = shutil.copytree(FOLDER / "t5", tmp_path / "folder")
    weights, config = folder / "model.safetensors", folder / "config.json"
    tensors = safetensors.numpy.load_file(weights)
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith("decoder.block.1.")}
    safetensors.numpy.save_file(kept, weights)
    config.write_text(json.dumps({**json.loads(config.read_text()), "num_decoder_layers": 1}))
    transformer = import_model(folder, tmp_path / "run").transformer_config()
    assert (transformer.num_encoder_layers, transformer.num_decoder_layers) == (2, 1)


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
