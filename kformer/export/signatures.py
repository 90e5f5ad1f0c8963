"""The signatures of an export: each is one function of the served model, which all share.

All inputs and outputs have the batch as their first dimension, so that a server can put requests together. Only
`translate_with_options` is different: its options are scalars for a whole request, and it may have one prefix for all
texts. No name ends in `_bytes`, because REST encodes such outputs. Shape letters: B texts, N beams.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import tensorflow as tf

from kformer.export.variables import FrozenScope
from kformer.export.versions import DEFAULT_SIGNATURE
from kformer.translation.codec import TextCodec
from kformer.translation.detailed import translate_detailed
from kformer.translation.options import Options, default_options, translate_with_options
from kformer.translation.scoring import score_pairs
from kformer.translation.search import Searcher
from kformer.translation.texts import best, translate_texts
from kformer.translation.translator import OPTIONS, TEXT, TRANSLATION

Function: TypeAlias = tf.types.experimental.PolymorphicFunction


class Served(NamedTuple):
    """What is exported: a model with weights of its own."""

    codec: TextCodec
    searcher: Searcher
    frozen: FrozenScope  # in which the searcher's model computes


def translate(served: Served) -> Function:
    """From `text` (B,) string to `translation` (B,) string and `score` (B,) float32."""

    @tf.function(autograph=False, input_signature=[TEXT])
    def function(text: tf.Tensor) -> dict[str, tf.Tensor]:
        with served.frozen:
            return best(translate_texts(served.codec, served.searcher.find, text, n_best=1))

    return function


def n_best(served: Served, number: int | None = None) -> Function:
    """From `text` (B,) string to `translation` (B, N) string and `score` (B, N) float32, best first.

    Args:
        served: The model.
        number: N, by default the beam size.
    """
    number = number or served.searcher.decoding.beam_size

    @tf.function(autograph=False, input_signature=[TEXT])
    def function(text: tf.Tensor) -> dict[str, tf.Tensor]:
        find = functools.partial(served.searcher.find, n_best=number)
        with served.frozen:
            return translate_texts(served.codec, find, text, number)

    return function


def score(served: Served) -> Function:
    """From `text` and `translation`, (B,) string, to what `score_pairs` gives, each (B,)."""

    @tf.function(autograph=False, input_signature=[TEXT, TRANSLATION])
    def function(text: tf.Tensor, translation: tf.Tensor) -> dict[str, tf.Tensor]:
        with served.frozen:
            return score_pairs(served.codec, served.searcher.model, text, translation)

    return function


def detailed(served: Served) -> Function:
    """From `text` (B,) string to what `Translator.translate_detailed` gives."""

    @tf.function(autograph=False, input_signature=[TEXT])
    def function(text: tf.Tensor) -> dict[str, tf.Tensor]:
        with served.frozen:
            return translate_detailed(served.codec, served.searcher.model, served.searcher.find, text)

    return function


def with_options(served: Served) -> Function:
    """From `text` and options to what `Translator.translate_with_options` gives.

    Each option has a default in the SignatureDef, which a server uses if a request does not give the option: the value
    that the search of `serving_default` has.
    """
    default = default_options(served.codec)
    no_prefix = tf.constant([""])  # not at module level: a tensor would start TensorFlow before its settings are made

    @tf.function(autograph=False, input_signature=OPTIONS)
    def function(
        text: tf.Tensor,
        target_prefix: tf.Tensor = no_prefix,
        length_penalty: tf.Tensor = default.length_penalty,
        max_length: tf.Tensor = default.max_length,
        temperature: tf.Tensor = default.temperature,
        top_k: tf.Tensor = default.top_k,
        top_p: tf.Tensor = default.top_p,
        seed: tf.Tensor = default.seed,
    ) -> dict[str, tf.Tensor]:
        options = Options(length_penalty, max_length, temperature, top_k, top_p, seed)
        with served.frozen:
            return translate_with_options(served.codec, served.searcher, text, target_prefix, options)

    return function


SIGNATURES: dict[str, Callable[[Served], Function]] = {
    DEFAULT_SIGNATURE: translate,
    "n_best": n_best,
    "score": score,
    "translate_detailed": detailed,
    "translate_with_options": with_options,
}
