"""The attention weights of a model between the tokens of a text and those of its translation.

Letters: L layers, H heads, S source tokens with the end, T target tokens with the end.
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from kformer.models import attention_scores
from kformer.text.attention_maps import END, NO_BYTES, START, Attention, AttentionMap
from kformer.text.codec import TextCodec
from kformer.tokenizers import Tokenizer
from kformer.tokenizers.offsets import Spans


def read_attention(codec: TextCodec, model: keras.Model, text: str, translation: str) -> Attention:
    """The attention weights of a model that reads a text and its translation; see `Translator.attention`."""
    config = codec.config
    source_ids, source_tokens = _tokens(codec.source_tokenizer, codec.written(text))
    target_ids, target_tokens = _tokens(codec.target_tokenizer, translation)
    check_length("text", len(source_ids), codec.longest_part)
    if config.longest_sequence is not None:
        check_length("translation", len(target_ids), config.longest_sequence - 1)
    source = np.array([[*source_ids, *codec.source_tokenizer.closing_ids]], "int32")
    starts = codec.starts(tf.constant([text]))
    target_in = np.array([[*starts.numpy(), *target_ids]], "int32")
    scores = attention_scores(model, source, target_in, config.pad_id)
    encoder, decoder, cross = (np.stack([_array(of_layer) for of_layer in kind]) for kind in scores)
    ends = [END] * len(codec.source_tokenizer.closing_ids)
    start = codec.target_tokenizer.detokenize(starts[:, tf.newaxis]).numpy()[0].decode("utf-8") or START  # or a tag
    sources, read, written = (*source_tokens, *ends), (start, *target_tokens), (*target_tokens, END)
    return Attention(
        AttentionMap(encoder, sources, sources, "Encoder self-attention"),
        AttentionMap(decoder, written, read, "Decoder self-attention"),
        AttentionMap(cross, written, sources, "Cross-attention"),
    )


def _array(weights: Any) -> np.ndarray:
    return ops.convert_to_numpy(ops.cast(weights, "float32"))[0]


def _tokens(tokenizer: Tokenizer, text: str) -> tuple[list[int], list[str]]:
    """The ids of a text, and the piece of the text that each id stands for."""
    spans: Spans = tokenizer.tokenize_with_offsets(tf.constant([text]))
    content = text.encode("utf-8")
    ids, starts, ends = (values[0].numpy().tolist() for values in spans)
    pieces = [content[start:end].decode("utf-8", "replace").strip() for start, end in zip(starts, ends, strict=True)]
    return ids, [piece or NO_BYTES for piece in pieces]


def check_length(what: str, tokens: int, longest: int) -> None:
    """Refuses a text that is empty, or too long to be read at once.

    Raises:
        ValueError: `tokens` is not from 1 to `longest`.
    """
    if not 0 < tokens <= longest:
        raise ValueError(
            f"The {what} must have from 1 to {longest} tokens, the most that the model reads at once. "
            f"Received: {tokens} tokens. Pass a single sentence."
        )
