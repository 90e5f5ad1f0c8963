"""Traces the beam search of one text."""

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from kformer.decoding.beam_search import BeamSearch, check_beam_options
from kformer.decoding.tracing import Extension, trace_beam_search
from kformer.models import StepwiseTransformer, reorder_rows
from kformer.text.attention import check_length
from kformer.text.attention_maps import END, NO_BYTES
from kformer.text.beam_tree import BeamTree
from kformer.text.codec import TextCodec
from kformer.text.searcher import Searcher


def trace_text(codec: TextCodec, model: keras.Model, text: str, beam_size: int, length_penalty: float) -> BeamTree:
    """Traces the search for the translation of a text; see `Translator.beam_tree`."""
    check_beam_options(beam_size, length_penalty, n_best=1)
    if beam_size == 1:
        raise ValueError("beam_size=1 is greedy search, which has no beam tree. Pass a beam_size of at least 2.")
    if codec.decoding.beam_rules != "paper":
        raise ValueError(
            f"This model searches by the rules of {codec.decoding.beam_rules}, but only the paper's search has a beam "
            'tree. Load the model with DecodingConfig(beam_rules="paper") to see what that search finds.'
        )
    texts = tf.constant([text])
    ids = codec.tokenize(texts)
    check_length("text", int(ids.row_lengths()[0]), codec.longest_part)
    source, limits = codec.pad(ids)
    longest = int(limits[0])
    stepwise = StepwiseTransformer(model, longest, codec.config.pad_id, beam_size)
    context, history = stepwise.start(source, longest)
    space = Searcher(model, codec.config, codec.decoding, never=codec.never).space(source, limits, codec.starts(texts))
    search = BeamSearch(space, beam_size, length_penalty, 1, reorder_rows)
    extensions = trace_beam_search(search, stepwise.begin(context), history)
    return BeamTree(extensions, _texts(codec, extensions), beam_size, length_penalty)


def _texts(codec: TextCodec, extensions: list[Extension]) -> list[str]:
    ids = np.array([[extension.token] for extension in extensions], "int32")
    texts = [text.decode("utf-8").strip() for text in ops.convert_to_numpy(codec.target_tokenizer.detokenize(ids))]
    is_end = ids[:, 0] == codec.config.end_id
    return [END if end else text or NO_BYTES for end, text in zip(is_end, texts, strict=True)]
