"""A small T5 of version 1.1: a softmax of its own, and a feed-forward network with a gate."""

import pathlib

import make_t5
import torch


def make(folder: pathlib.Path) -> None:
    model = make_t5.random_model(13, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    assert not model.config.scale_decoder_outputs
    softmax = torch.randn_like(model.lm_head.weight) * 2 * make_t5.WIDTH**-0.5
    softmax[1] *= 1.5  # so that texts end
    model.lm_head.weight = torch.nn.Parameter(softmax)
    make_t5.write(folder, model)
