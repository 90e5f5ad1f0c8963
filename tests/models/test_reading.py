"""A language model reads the beginning of a text at once, and goes on as if it had read token by token."""

import keras
import numpy as np
import pytest

from kformer.config import TransformerConfig
from kformer.models.decoder_only import StepwiseLanguageModel, build_language_model

CONFIG = TransformerConfig(11, 11, 0, 2, d_model=12, d_ff=20, num_heads=3, dropout_rate=0.0)
TOKENS = np.array([[1, 5, 7, 3, 9, 4, 8, 6], [1, 10, 3, 3, 5, 6, 4, 7]], "int32")  # the first are start ids
VARIANTS = {
    "the paper's": {},
    "learned positions": {"positional_encoding": "learned", "max_length": 16},
    "rotary positions": {"positional_encoding": "rotary"},
    "relative positions": {"positional_encoding": "relative"},
    "norm first": {"norm_first": True},
    "one head for keys and values": {"num_key_value_heads": 1},
    "a short window": {"attention_window": 3, "positional_encoding": "alibi"},
    "a long window": {"attention_window": 9, "positional_encoding": "relative_buckets"},
    "shared layers": {"depth": "shared"},
    "adaptive depth": {"depth": "adaptive"},
}


def array(tensor):
    return keras.ops.convert_to_numpy(tensor)


@pytest.mark.parametrize("rows", [pytest.param(1, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_what_follows_is_the_same(changes, rows):
    stepwise = StepwiseLanguageModel(build_language_model(CONFIG.replace(**changes)), 9, rows_per_source=rows)
    context, slow = stepwise.start(TOKENS[:, :1], room=9)
    next_logits = stepwise.begin(context)
    expected = 0.0
    for now, following in zip(TOKENS.T[:5], TOKENS.T[1:6], strict=True):
        logits, slow = next_logits(np.repeat(now, rows), slow)
        log_probs = array(keras.ops.log_softmax(logits))[::rows]
        expected = expected + log_probs[np.arange(2), following]
    fast, found = stepwise.read(TOKENS[:, :6], room=9)
    np.testing.assert_allclose(array(found), expected, atol=1e-4)
    assert int(fast.position) == int(slow.position) == 5
    for tokens in TOKENS.T[5:]:
        of_fast, fast = next_logits(np.repeat(tokens, rows), fast)
        of_slow, slow = next_logits(np.repeat(tokens, rows), slow)
        np.testing.assert_allclose(array(of_fast), array(of_slow), atol=1e-4)
