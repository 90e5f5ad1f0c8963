"""Where the decoder looks: cross-attention weights beside the model's own forward pass."""

import keras
import numpy as np
from small_models import PAD, SOURCE, TARGET_IN, both_orders, every_form, logits_of, move_embedding, small_transformer

from kformer.models import cross_attention_scores
from kformer.models.transformer import DECODER


def scores_of(model):
    return [keras.ops.convert_to_numpy(of_layer) for of_layer in cross_attention_scores(model, SOURCE, TARGET_IN, PAD)]


@every_form
def test_they_are_weights_over_the_source_without_its_padding(form):
    scores = scores_of(small_transformer(**form))
    assert [of_layer.shape for of_layer in scores] == [(2, 3, 5, 7)] * 3
    for of_layer in scores:
        np.testing.assert_allclose(of_layer.sum(axis=-1), 1, atol=1e-5)
        assert not of_layer[1, :, :, 3:].any()
        assert of_layer[0].std() > 0


@both_orders
def test_the_last_layers_weights_are_those_its_forward_pass_uses(norm_first, monkeypatch):
    model = small_transformer(norm_first=norm_first)
    attention = model.get_layer(DECODER).layers[-1].cross_attention
    original, used = attention.call, []

    def recorded(query, key, attention_mask, **others):
        used.append(attention.attention_scores(query, key, attention_mask))
        return original(query, key=key, attention_mask=attention_mask, **others)

    monkeypatch.setattr(attention, "call", recorded)
    logits_of(model, SOURCE, TARGET_IN)
    monkeypatch.undo()
    np.testing.assert_allclose(scores_of(model)[-1], keras.ops.convert_to_numpy(used[0]), atol=1e-6)


def test_a_position_does_not_see_later_tokens():
    model = small_transformer()
    before = scores_of(model)
    move_embedding(model.get_layer("shared_embedding"), 20)  # target_in[0, 3], and nowhere in the sources
    after = scores_of(model)
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old[0, :, :3], new[0, :, :3])
    assert np.abs(before[-1][0, :, 3:] - after[-1][0, :, 3:]).max() > 1e-4
