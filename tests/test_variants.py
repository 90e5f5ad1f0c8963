"""Variants of the model, from training to an int8 export, on a task that needs the order of the words."""

import pytest
import tensorflow as tf
import toy

from kformer.export.saved_model import export_saved_model
from kformer.training.train import train
from kformer.translation.translator import Translator

pytestmark = [pytest.mark.tensorflow_only, pytest.mark.slow]


VARIANTS = [
    {"activation": "geglu", "use_bias": False},
    {"positional_encoding": "rotary", "activation": "swiglu", "normalization": "rms_norm", "norm_first": True},
]


@pytest.mark.parametrize("changes", VARIANTS, ids=lambda changes: "-".join(map(str, changes.values())))
def test_a_model_learns_to_turn_words_around_and_is_exported(changes, tmp_path):
    transformer = toy.TRANSFORMER.replace(**changes)
    report = train(toy.corpus(), tmp_path / "run", transformer, toy.TRAINING.replace(max_steps=400))
    translator, (sources, targets) = Translator.from_run(report.run.path), zip(*toy.corpus().test, strict=True)
    assert sum(map(str.__eq__, translator(sources), targets)) >= 90
    exported = export_saved_model(translator, tmp_path / "exported", precision="int8")
    answer = tf.saved_model.load(str(exported))
    found = answer.signatures["serving_default"](text=tf.constant(sources))["translation"].numpy()
    assert sum(text.decode() == target for text, target in zip(found, targets, strict=True)) >= 90
