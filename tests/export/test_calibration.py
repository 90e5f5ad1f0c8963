"""The ranges that int8 is fitted to are those of the numbers that the model computes."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kformer.export.calibration import input_ranges

pytestmark = pytest.mark.tensorflow_only

TEXTS = ["six one", "one two three", "four"]


def test_ranges_are_those_of_a_teacher_forced_pass_over_the_translations(numbers_translator):
    translator = numbers_translator
    model, config = translator.model, translator.config
    ranges = input_ranges(translator, TEXTS)
    source, _ = translator.codec.encode(tf.constant(TEXTS))
    target = translator.target_tokenizer.tokenize(tf.constant(translator(TEXTS))).to_tensor()
    target = np.pad(target.numpy(), [[0, 0], [1, 0]], constant_values=config.start_id)
    last = keras.Model(model.inputs, model.get_layer("decoder").output)
    outputs = keras.ops.convert_to_numpy(last({"source": source, "target_in": tf.constant(target, tf.int32)}))
    numbers = [variable.path.split("/")[-1] for variable in model.variables]
    (logits,) = [ends for key, ends in ranges.items() if numbers[key[0]] == "embeddings" and len(key) == 1]
    np.testing.assert_allclose(logits, (outputs.min(), outputs.max()), rtol=1e-4)


def test_every_product_has_a_range_and_those_after_relu_begin_at_zero(numbers_translator):
    ranges = input_ranges(numbers_translator, TEXTS)
    paths = [variable.path for variable in numbers_translator.model.variables]
    products = {number for key in ranges for number in key}
    assert products == {number for number, path in enumerate(paths) if path.endswith(("kernel", "embeddings"))}
    for key, (lowest, highest) in ranges.items():
        assert lowest == 0 if "outer" in paths[key[0]] else lowest < 0
        assert highest > 0
