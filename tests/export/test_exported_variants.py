"""Every variant of the model, from training to an int8 export, on a task that needs the order of the words."""

import pytest
import tensorflow as tf
import toy

from kformer.config import DEPTHS, POSITIONAL_ENCODINGS
from kformer.export.saved_model import export_saved_model
from kformer.tasks.translator import Translator
from kformer.training.train import train

pytestmark = [pytest.mark.tensorflow_only, pytest.mark.slow]


TWO_STEPS = {"num_encoder_layers": 2, "num_decoder_layers": 2}
# With fewer updates than 600, the relative positions of Shaw et al. have not learned it.
VARIANTS = [
    {"positional_encoding": "learned", "depth": "shared", **TWO_STEPS},
    {"positional_encoding": "learned", "embedding_dim": 24},
    {"positional_encoding": "relative"},
    {"positional_encoding": "relative_values", "max_relative_distance": 8},
    {"positional_encoding": "relative_buckets", "attention_window": 4, "num_key_value_heads": 2},
    {"positional_encoding": "sinusoidal", "depth": "adaptive", **TWO_STEPS},
    {"positional_encoding": "alibi", "activation": "geglu", "use_bias": False, "num_key_value_heads": 1},
    {"positional_encoding": "rotary", "activation": "swiglu", "normalization": "rms_norm", "num_key_value_heads": 2},
    {"positional_encoding": "sinusoidal_halves", "activation": "gelu_tanh", "head_dim": 12, "softmax_bias": True},
]


def test_there_is_a_variant_of_every_kind_of_positions_and_of_depth():
    assert {variant["positional_encoding"] for variant in VARIANTS} == {*POSITIONAL_ENCODINGS}
    assert {variant.get("depth", "stacked") for variant in VARIANTS} == {*DEPTHS}


@pytest.mark.parametrize("changes", VARIANTS, ids=lambda changes: "-".join(map(str, changes.values())))
def test_a_model_learns_to_turn_words_around_and_is_exported(changes, tmp_path):
    transformer = toy.TRANSFORMER.replace(norm_first=True, max_length=33, **changes)
    report = train(toy.corpus(), tmp_path / "run", transformer, toy.TRAINING.replace(max_steps=600))
    translator, (sources, targets) = Translator.from_run(report.run.path), zip(*toy.corpus().test, strict=True)
    assert sum(map(str.__eq__, translator(sources), targets)) >= 90
    exported = export_saved_model(translator, tmp_path / "exported", precision="int8")
    answer = tf.saved_model.load(str(exported))
    found = answer.signatures["serving_default"](text=tf.constant(sources))["translation"].numpy()
    assert sum(text.decode() == target for text, target in zip(found, targets, strict=True)) >= 90
