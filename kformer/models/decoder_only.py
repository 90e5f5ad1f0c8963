"""Decoder-only models (Radford et al. 2019): causal self-attention over one text, which predicts its next token.

Shape letters: B batch, T length, P tokens read at once, V vocabulary.
"""

import dataclasses
from typing import Any

import keras
from keras import ops

from kformer.config import TransformerConfig
from kformer.layers import Decoder, EncoderLayer
from kformer.layers.tensors import KeysValues, Tensor
from kformer.models.stepwise import Context, History, StepwiseTransformer
from kformer.models.transformer import (
    DECODER,
    TARGET_EMBEDDING,
    Policy,
    make_embedding,
    make_logits,
    make_stack,
    target_mask,
)


def build_language_model(config: TransformerConfig, dtype: Policy = None) -> keras.Model:
    """A model that predicts each token of a text from those before it.

    Its layers are those of an encoder, self-attention and a feed-forward network, under a causal mask. One matrix is
    the embedding and the projection to the vocabulary, unless `embedding_tying` is "none".

    Args:
        config: Sizes and options; the encoder's number of layers and the source's vocabulary size are not used.
        dtype: As in `build_transformer`.

    Returns:
        A functional `keras.Model` with the input `{"target_in": (B, T) int32}`, the start id followed by the text, and
        logits (B, T, V) float32.

    Examples:
        >>> config = kformer.TransformerConfig(9, 9, 0, 1, d_model=8, d_ff=16, num_heads=2)
        >>> tuple(build_language_model(config)({"target_in": np.array([[1, 5, 6]])}).shape)
        (1, 3, 9)
    """
    target_in = keras.Input((None,), dtype="int32", name="target_in")
    tied = config.embedding_tying != "none"
    embedding = make_embedding(config, dtype, TARGET_EMBEDDING, config.target_vocab_size, tied)
    decoder = make_stack(Decoder, EncoderLayer, config.num_decoder_layers, config, dtype, DECODER)
    output = decoder(embedding(target_in), counted=target_mask(target_in, config))
    logits = make_logits(config)(embedding(output, reverse=True))
    return keras.Model({"target_in": target_in}, logits, name="language_model")


class StepwiseLanguageModel(StepwiseTransformer):
    """A decoder-only model that decodes position by position. There is no source to attend to.

    The searches give the beginning of a text as the `prefix` of their constraints. The arguments are those of
    `StepwiseTransformer`. Of a `source`, only the number of rows is used.

    Examples:
        >>> config = kformer.TransformerConfig(9, 9, 0, 1, d_model=8, d_ff=16, num_heads=2)
        >>> stepwise = StepwiseLanguageModel(build_language_model(config), max_length=4)
        >>> context, history = stepwise.start(source=np.zeros((3, 1), "int32"), room=4)
        >>> tuple(stepwise.begin(context)(np.array([1, 1, 1]), history)[0].shape)
        (3, 9)
    """

    def read(self, tokens: Tensor, room: int | Tensor) -> tuple[History, Tensor]:
        """Reads the beginnings of B texts at once.

        Args:
            tokens: (B, P + 1) int32, the start ids and the first P >= 1 tokens of each text.
            room: Number of positions that the caches have room for, at least P.

        Returns:
            The history after P steps, the last of which gave the last token; and (B,) float32, the log probabilities of
            the P tokens together. Both are as if the model had read the tokens one by one.
        """
        batch_size, length = ops.shape(tokens)[0], ops.shape(tokens)[1] - 1
        once = dataclasses.replace(self, rows_per_source=1, block=length)
        next_logits = once.begin(Context(*self.encode(tokens), length))
        logits, read = next_logits(tokens[:, :-1], once.no_history(batch_size, length))  # (B, P, V)
        log_probs = ops.log_softmax(logits, axis=-1)
        of_tokens = ops.take_along_axis(log_probs, ops.expand_dims(tokens[:, 1:], -1), axis=-1)
        reach, order = self.model.get_layer(DECODER).reach, self._order(batch_size)
        places = reach.kept_positions(length - 1, self._kept(room))
        caches = [self.cache.holding(pair, places, order).tensors for pair in read.caches]
        seen: Any = ()
        if self.rows_per_source > 1:
            by_row = ops.expand_dims(ops.less(places, length), 1) & self._own_keys()  # (R, T, R)
            seen = ops.tile(ops.reshape(by_row, (self.rows_per_source, -1)), (batch_size, 1))
        return History(caches, seen, read.position), ops.sum(of_tokens, axis=(1, 2))

    def encode(self, source: Tensor) -> tuple[list[KeysValues], Tensor]:
        """No keys and values, and a mask (B, 1, 1, 1) that only tells how many texts there are."""
        return [], ops.ones((ops.shape(source)[0], 1, 1, 1), dtype="bool")
