"""Translates texts with options that are tensors, so that one function answers requests with any options.

Shape letters: B texts, R parts of a batch, F tokens of a prefix.
"""

from typing import NamedTuple

import tensorflow as tf

from kformer.decoding import SearchResult
from kformer.text.codec import TextCodec, best
from kformer.text.parts import differs_from_last, divide
from kformer.text.search import Searcher
from kformer.text.texts import translate_parts


class Options(NamedTuple):
    """Options of one request, each a tensor of rank 0; see `Translator.translate_with_options`."""

    length_penalty: tf.Tensor  # float32
    max_length: tf.Tensor  # int32
    temperature: tf.Tensor  # float32
    top_k: tf.Tensor  # int32
    top_p: tf.Tensor  # float32
    seed: tf.Tensor  # int64


def default_options(codec: TextCodec) -> Options:
    """The options that give the same translations as no options."""
    return Options(
        length_penalty=tf.constant(codec.decoding.length_penalty, tf.float32),
        max_length=tf.constant(0, tf.int32),
        temperature=tf.constant(0.0, tf.float32),
        top_k=tf.constant(0, tf.int32),
        top_p=tf.constant(1.0, tf.float32),
        seed=tf.constant(0, tf.int64),
    )


def translate_with_options(
    codec: TextCodec, searcher: Searcher, text: tf.Tensor, target_prefix: tf.Tensor, options: Options
) -> dict[str, tf.Tensor]:
    """Translates texts; the arguments and the result are those of `Translator.translate_with_options`."""
    with tf.control_dependencies(_checks(text, target_prefix, options)):
        text = tf.identity(text)
    texts = tf.size(text)
    parts = divide(text, codec.source_tokenizer, codec.longest_line, codec.longest_part)
    # Only the translation of a text's first part begins with the prefix.
    of_parts = tf.gather(tf.broadcast_to(target_prefix, [texts]), parts.text)
    prefixes = codec.target_tokenizer.tokenize(tf.where(differs_from_last(parts.text), of_parts, ""))
    draws = options.temperature > 0

    def find(rows: tf.Tensor, source: tf.Tensor, limits: tf.Tensor) -> SearchResult:
        limits = tf.where(options.max_length > 0, tf.minimum(limits, options.max_length), limits)
        prefix = tf.gather(prefixes, rows).to_tensor(codec.config.pad_id)  # (R, F)

        def search() -> SearchResult:
            return searcher.find(source, limits, prefix=prefix, length_penalty=options.length_penalty)

        def sample() -> SearchResult:
            seed = batch_seed(options, rows)
            temperature = tf.where(draws, options.temperature, 1.0)
            return searcher.sample(source, limits, seed, temperature, options.top_k, options.top_p, prefix)

        return tf.cond(draws, sample, search)

    is_penalized = tf.logical_and(searcher.decoding.beam_size > 1, tf.logical_not(draws))
    penalty = tf.where(is_penalized, options.length_penalty, 0.0)
    return best(translate_parts(codec, parts, find, texts, 1, penalty))


def batch_seed(options: Options, rows: tf.Tensor) -> tf.Tensor:
    """(2,) int64: every batch of rows has its own seed. The batch with the first row has the given seed."""
    high = tf.bitwise.right_shift(options.seed, 32) + tf.cast(tf.reduce_min(rows), tf.int64)
    return tf.stack([options.seed, high])


def _checks(text: tf.Tensor, target_prefix: tf.Tensor, options: Options) -> list[tf.Operation]:
    """The checks of a request. If one fails, a server answers with INVALID_ARGUMENT."""
    prefixes = tf.size(target_prefix)
    return [
        *checks_of_options(options),
        _require(
            tf.equal(prefixes, 1) | tf.equal(prefixes, tf.size(text)),
            "target_prefix must have one entry, or one for each text",
            prefixes,
        ),
    ]


def checks_of_options(options: Options) -> list[tf.Operation]:
    """Checks the values of the options, see `_checks`."""
    penalty, temperature = options.length_penalty, options.temperature
    return [
        # Beyond 10, the penalty of a long text is too large for float32.
        _require((penalty >= 0) & (penalty <= 10), "length_penalty must be a number from 0 to 10", penalty),
        _require(options.max_length >= 0, "max_length must be at least 0; 0 means no limit", options.max_length),
        _require(
            (temperature >= 0) & tf.math.is_finite(temperature),
            "temperature must be a finite number of at least 0; 0 means a search instead of sampling",
            temperature,
        ),
        _require(options.top_k >= 0, "top_k must be at least 0; 0 keeps every token", options.top_k),
        _require((options.top_p > 0) & (options.top_p <= 1), "top_p must be above 0 and at most 1", options.top_p),
    ]


def _require(condition: tf.Tensor, rule: str, value: tf.Tensor) -> tf.Operation:
    return tf.debugging.Assert(condition, [f"{rule}. Received:", value])
