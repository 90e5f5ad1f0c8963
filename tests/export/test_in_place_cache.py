"""An export's cache is written over several positions at once, in a graph whose sizes are open.

Shape letters: B sentences, R rows a sentence, N = B x R, k positions of a step, T target length, V vocabulary.
"""

import numpy as np
import oracles
import pytest
import tensorflow as tf

from kformer.config import TransformerConfig
from kformer.export.in_place_cache import InPlaceCache
from kformer.models import StepwiseTransformer, build_transformer

pytestmark = pytest.mark.tensorflow_only

B, T, V = 2, 6, 13
SOURCE = np.array([[5, 9, 11, 4], [7, 8, 0, 0]], "int32")


@pytest.mark.parametrize("rows", [pytest.param(1, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_key_value_heads": 1, "positional_encoding": "relative"},
        {"num_key_value_heads": 1, "positional_encoding": "relative_values", "max_relative_distance": 2},
        {"attention_window": 2},
    ],
)
def test_a_draft_of_each_row_and_what_follows(changes, rows):
    model = build_transformer(TransformerConfig(V, V, 1, 2, d_model=12, d_ff=17, num_heads=3, **changes))
    oracles.randomize(model)
    stepwise = StepwiseTransformer(model, T, rows_per_source=rows, cache=InPlaceCache, block=4)

    @tf.function(
        autograph=False,
        input_signature=[
            tf.TensorSpec([None, None], tf.int32),
            tf.TensorSpec([None, None], tf.int32),
            tf.TensorSpec([None, None], tf.int32),
            tf.TensorSpec([None], tf.int32),
        ],
    )
    def decode(source, draft, rest, position):
        context, history = stepwise.start(source, T)
        next_logits = stepwise.begin(context)
        first, history = next_logits(draft, history)
        with tf.control_dependencies([first]):  # as in a search, where the next tokens depend on the logits
            rest = tf.identity(rest)
        second, history = next_logits(rest, history._replace(position=position))
        return first, second

    tokens = np.random.default_rng(1).integers(3, V, (B * rows, T)).astype("int32")
    kept = np.random.default_rng(2).integers(1, 4, B * rows).astype("int32")
    draft = np.where(np.arange(4) < kept[:, None], tokens[:, :4], 3).astype("int32")
    rest = np.take_along_axis(tokens, kept[:, None] + np.arange(3), axis=1)
    first, second = decode(SOURCE, draft, rest, kept)
    expected = model({"source": np.repeat(SOURCE, rows, axis=0), "target_in": tokens}).numpy()
    for row, number in enumerate(kept):
        np.testing.assert_allclose(first[row, :number], expected[row, :number], atol=5e-5)
        np.testing.assert_allclose(second[row], expected[row, number : number + 3], atol=5e-5)
