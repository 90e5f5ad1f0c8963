"""Every kind of positions from training to an int8 export: a model that must know the order of words learns it."""

import pytest
import tensorflow as tf
import toy

from kformer.config import POSITIONAL_ENCODINGS
from kformer.export.saved_model import export_saved_model
from kformer.training.train import train
from kformer.translation.translator import Translator

pytestmark = [pytest.mark.tensorflow_only, pytest.mark.slow]


@pytest.mark.parametrize("kind", sorted({*POSITIONAL_ENCODINGS} - {"sinusoidal"}))
def test_a_model_learns_to_turn_words_around_and_is_exported(kind, tmp_path):
    transformer = toy.TRANSFORMER.replace(positional_encoding=kind, max_length=33)
    report = train(toy.corpus(), tmp_path / "run", transformer, toy.TRAINING.replace(max_steps=400))
    translator, (sources, targets) = Translator.from_run(report.run.path), zip(*toy.corpus().test, strict=True)
    assert sum(map(str.__eq__, translator(sources), targets)) >= 90
    exported = export_saved_model(translator, tmp_path / "exported", precision="int8")
    answer = tf.saved_model.load(str(exported))
    found = answer.signatures["serving_default"](text=tf.constant(sources))["translation"].numpy()
    assert sum(text.decode() == target for text, target in zip(found, targets, strict=True)) >= 90
