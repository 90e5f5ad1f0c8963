"""The signatures of an export: each is one function of the served model, which all share.

All inputs and outputs have the batch as their first dimension, so that a server can put requests together. Only
`translate_with_options` is different: its options are scalars for a whole request, and it may have one prefix for all
texts. No name ends in `_bytes`, because REST encodes such outputs. Shape letters: B texts, N beams.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from kformer.export.variables import FrozenScope
from kformer.runtime.versions import DEFAULT_SIGNATURE, MOSTLY_UNKNOWN
from kformer.tasks.language_model import OPTIONS as GENERATE_OPTIONS
from kformer.tasks.translator import OPTIONS, TEXT, TRANSLATION
from kformer.text.detailed import translate_detailed
from kformer.text.options import Options, default_options, translate_with_options
from kformer.text.scoring import score_pairs
from kformer.text.texts import translate_texts

Function: TypeAlias = tf.types.experimental.PolymorphicFunction


class Served(NamedTuple):
    """What is exported: a model with weights of its own."""

    predictor: Any  # a `Predictor`; the signatures below say of which class
    frozen: FrozenScope  # in which the predictor's model computes


def answer(served: Served) -> Function:
    """From `text` (B,) string to what the predictor's `answer` gives."""

    @tf.function(autograph=False, input_signature=[TEXT])
    def function(text: tf.Tensor) -> dict[str, tf.Tensor]:
        with served.frozen:
            return served.predictor.answer(text)

    return function


def n_best(served: Served, number: int | None = None) -> Function:
    """Of a translator: from `text` (B,) string to `translation` (B, N) string and `score` (B, N) float32, best first.

    Args:
        served: The model.
        number: N, by default the beam size.
    """
    number = number or served.predictor.searcher.decoding.beam_size

    @tf.function(autograph=False, input_signature=[TEXT])
    def function(text: tf.Tensor) -> dict[str, tf.Tensor]:
        find = functools.partial(served.predictor.searcher.find, n_best=number)
        with served.frozen:
            return translate_texts(served.predictor.codec, find, text, number)

    return function


def score(served: Served) -> Function:
    """Of a translator: from `text` and `translation`, (B,) string, to what `score_pairs` gives, each (B,)."""

    @tf.function(autograph=False, input_signature=[TEXT, TRANSLATION])
    def function(text: tf.Tensor, translation: tf.Tensor) -> dict[str, tf.Tensor]:
        with served.frozen:
            return score_pairs(served.predictor.codec, served.predictor.searcher.model, text, translation)

    return function


def detailed(served: Served) -> Function:
    """Of a translator: from `text` (B,) string to what `Translator.translate_detailed` gives."""

    @tf.function(autograph=False, input_signature=[TEXT])
    def function(text: tf.Tensor) -> dict[str, tf.Tensor]:
        with served.frozen:
            return translate_detailed(
                served.predictor.codec, served.predictor.searcher.model, served.predictor.searcher.find, text
            )

    return function


def with_options(served: Served) -> Function:
    """Of a translator: from `text` and options to what `Translator.translate_with_options` gives.

    Each option has a default in the SignatureDef, which a server uses if a request does not give the option: the value
    that the search of `serving_default` has.
    """
    default = default_options(served.predictor.codec)
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
            return translate_with_options(
                served.predictor.codec, served.predictor.searcher, text, target_prefix, options
            )

    return function


def mostly_unknown(served: Served) -> Function:
    """From `text` (B,) string to `mostly_unknown` (B,) bool: see `Tokenizer.is_mostly_unknown`."""

    @tf.function(autograph=False, input_signature=[TEXT])
    def function(text: tf.Tensor) -> dict[str, tf.Tensor]:
        return {MOSTLY_UNKNOWN: served.predictor.source_tokenizer.is_mostly_unknown(text)}

    return function


def generate_with_options(served: Served) -> Function:
    """Of a language model: from `text` and options to what `LanguageModel.answer_with_options` gives.

    Each option has a default in the SignatureDef: without options, the answer is that of `serving_default`.
    """
    default = default_options(served.predictor.codec)

    @tf.function(autograph=False, input_signature=GENERATE_OPTIONS)
    def function(
        text: tf.Tensor,
        length_penalty: tf.Tensor = default.length_penalty,
        max_length: tf.Tensor = default.max_length,
        temperature: tf.Tensor = default.temperature,
        top_k: tf.Tensor = default.top_k,
        top_p: tf.Tensor = default.top_p,
        seed: tf.Tensor = default.seed,
    ) -> dict[str, tf.Tensor]:
        with served.frozen:
            return served.predictor.answer_with_options(
                text, length_penalty, max_length, temperature, top_k, top_p, seed
            )

    return function


SIGNATURES: dict[str, Callable[[Served], Function]] = {
    DEFAULT_SIGNATURE: answer,
    "n_best": n_best,
    "score": score,
    "translate_detailed": detailed,
    "translate_with_options": with_options,
    "generate_with_options": generate_with_options,
}
