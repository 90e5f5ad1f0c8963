"""Where encoder and decoder look: attention weights beside the model's own forward pass."""

import keras
import numpy as np
import pytest
from small_models import PAD, SOURCE, TARGET_IN, both_orders, every_form, logits_of, move_embedding, small_transformer

from kformer.models import AttentionScores, attention_scores, call_with_scores
from kformer.models.transformer import DECODER, ENCODER

ATTENTIONS = [
    ("encoder", ENCODER, "self_attention"),
    ("decoder", DECODER, "self_attention"),
    ("cross", DECODER, "cross_attention"),
]


def scores_of(model):
    scores = attention_scores(model, SOURCE, TARGET_IN, PAD)
    return AttentionScores(*([keras.ops.convert_to_numpy(of_layer) for of_layer in kind] for kind in scores))


@every_form
def test_they_are_weights_over_what_a_position_may_see(form):
    scores = scores_of(small_transformer(**form))
    assert [of_layer.shape for of_layer in scores.encoder] == [(2, 3, 7, 7)] * 2
    assert [of_layer.shape for of_layer in scores.decoder] == [(2, 3, 5, 5)] * 3
    assert [of_layer.shape for of_layer in scores.cross] == [(2, 3, 5, 7)] * 3
    for of_layer in (*scores.encoder, *scores.decoder, *scores.cross):
        np.testing.assert_allclose(of_layer.sum(axis=-1), 1, atol=1e-5)
        assert of_layer[0].std() > 0
    for of_layer in (*scores.encoder, *scores.cross):
        assert not of_layer[1, :, :, 3:].any()  # padding
    for of_layer in scores.decoder:
        assert not np.triu(of_layer, 1).any()  # later tokens


@every_form
def test_logits_of_the_same_pass_are_those_of_the_model(form):
    model = small_transformer(**form)
    logits, scores = call_with_scores(model, SOURCE, TARGET_IN, PAD)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(logits), logits_of(model, SOURCE, TARGET_IN), atol=1e-5)
    assert len(scores.cross) == 3


@both_orders
@pytest.mark.parametrize(("kind", "stack", "sublayer"), ATTENTIONS, ids=[row[0] for row in ATTENTIONS])
def test_the_last_layers_weights_are_those_its_forward_pass_uses(kind, stack, sublayer, norm_first, monkeypatch):
    model = small_transformer(norm_first=norm_first)
    attention = getattr(model.get_layer(stack).layers[-1], sublayer)
    original, used = attention.call, []

    def recorded(query, key=None, **others):
        outputs, weights = original(query, key=key, **others, return_attention_scores=True)
        used.append(weights)
        return outputs

    monkeypatch.setattr(attention, "call", recorded)
    logits_of(model, SOURCE, TARGET_IN)
    monkeypatch.undo()
    expected = keras.ops.convert_to_numpy(used[0])
    np.testing.assert_allclose(getattr(scores_of(model), kind)[-1], expected, atol=1e-6)


def test_a_position_does_not_see_later_tokens():
    model = small_transformer()
    before = scores_of(model).cross
    move_embedding(model.get_layer("shared_embedding"), 20)  # target_in[0, 3], and nowhere in the sources
    after = scores_of(model).cross
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old[0, :, :3], new[0, :, :3])
    assert np.abs(before[-1][0, :, 3:] - after[-1][0, :, 3:]).max() > 1e-4
