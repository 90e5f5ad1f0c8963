"""The code of docs/fine-tuning.md trains adapters of an imported model, and what it saves and exports has them."""

import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf
from model_weights import arrays_of

import kformer
from benchmarks.bridges import opus_mt_folder
from kformer.data import Corpus

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "fine-tuning.md"
PAIRS = [("In the beginning", "En el principio"), ("the earth", "la tierra"), ("and the light", "y la luz")] * 20
TEXTS = ["In the beginning", "the light of the earth"]


@pytest.mark.tensorflow_only
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Even though the `tf.config.experimental_run_functions_eagerly`")
def test_adapters_of_an_imported_model_are_trained_saved_and_exported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    opus_mt_folder.make(tmp_path / "opus-mt")
    kformer.import_model(tmp_path / "opus-mt", "runs/en-es")
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    training, saving, freezing = blocks[1:]
    few = training.replace("steps_per_epoch=100", "steps_per_epoch=2").replace("Adam(1e-3)", "Adam(0.3)")
    names = {"corpus": Corpus("mine", PAIRS, [], [])}
    tf.config.run_functions_eagerly(True)  # tracing a step would take most of the time
    try:
        exec(compile(few, str(PAGE), "exec"), names)
    finally:
        tf.config.run_functions_eagerly(False)
    translator, before = names["translator"], kformer.Translator.from_run("runs/en-es")
    old, new = arrays_of(before.model), arrays_of(translator.model)
    assert len(translator.model.trainable_weights) == 2 * 2 * 4  # both sides have two layers
    assert all(np.array_equal(new[path], old[path]) for path in old)
    translations = translator(TEXTS)
    assert translations != before(TEXTS)

    exec(compile(saving, str(PAGE), "exec"), names)
    assert kformer.Translator.from_run("runs/mine")(TEXTS) == translations
    exported = kformer.inference.Model("exported/mine")([text.encode() for text in TEXTS])
    assert [best.text for (best,) in exported] == translations

    model = before.model
    exec(compile(freezing, str(PAGE), "exec"), {"model": model})
    layers = {weight.path.split("/")[0] for weight in model.trainable_weights}
    assert layers == {"decoder", "logits"}  # the softmax has a bias
