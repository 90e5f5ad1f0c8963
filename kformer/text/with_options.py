"""Translates texts with options that are tensors, so that one function answers requests with any options.

Shape letters: B texts, R parts of a batch, F tokens of a prefix.
"""

import tensorflow as tf

from kformer.decoding import SearchResult
from kformer.text.codec import TextCodec, best, longest_translation
from kformer.text.option_tensors import Options, asked_lengths, batch_seed, checks, require
from kformer.text.parts import differs_from_last, divide
from kformer.text.search import Searcher
from kformer.text.texts import translate_parts
from kformer.tokenizers import Tokenizer


def translate_with_options(
    codec: TextCodec, searcher: Searcher, text: tf.Tensor, target_prefix: tf.Tensor, options: Options
) -> dict[str, tf.Tensor]:
    """Translates texts; the arguments and the result are those of `Translator.translate_with_options`."""
    prefixes = tf.size(target_prefix)
    one_or_each = tf.equal(prefixes, 1) | tf.equal(prefixes, tf.size(text))
    rule = "target_prefix must have one entry, or one for each text"
    longest = longest_translation(codec.config, codec.decoding)
    with tf.control_dependencies([*checks(options, longest), require(one_or_each, rule, prefixes)]):
        text = tf.identity(text)
    texts = tf.size(text)
    parts = divide(text, codec.source_tokenizer, codec.longest_line, codec.longest_part)
    # Only the translation of a text's first part begins with the prefix.
    of_parts = tf.gather(tf.broadcast_to(target_prefix, [texts]), parts.text)
    prefixes = codec.target_tokenizer.tokenize(tf.where(differs_from_last(parts.text), of_parts, ""))
    prefixes = _all_known(prefixes, codec.target_tokenizer, target_prefix)
    draws = options["temperature"] > 0

    def find(rows: tf.Tensor, source: tf.Tensor, limits: tf.Tensor) -> SearchResult:
        limits, least = asked_lengths(options, searcher.decoding, limits)
        prefix = tf.gather(prefixes, rows).to_tensor(codec.config.pad_id)  # (R, F)

        def search() -> SearchResult:
            penalty = options["length_penalty"]
            return searcher.find(source, limits, prefix=prefix, length_penalty=penalty, min_length=least)

        def sample() -> SearchResult:
            temperature = tf.where(draws, options["temperature"], 1.0)
            drawing = batch_seed(options, rows), temperature, options["top_k"], options["top_p"]
            return searcher.sample(source, limits, *drawing, prefix=prefix, min_length=least)

        return tf.cond(draws, sample, search)

    penalty = tf.where(draws, 0.0, options["length_penalty"])
    return best(translate_parts(codec, parts, find, texts, 1, lambda lengths: codec.score_norm(lengths, penalty)))


def _all_known(ids: tf.RaggedTensor, tokenizer: Tokenizer, texts: tf.Tensor) -> tf.RaggedTensor:
    """The ids of texts, which must be in the vocabulary."""
    known = tf.reduce_all(tf.not_equal(ids.values, tokenizer.unknown_id))
    rule = "target_prefix must have only words or symbols of the model's vocabulary"
    with tf.control_dependencies([require(known, rule, texts)]):
        return ids.with_values(tf.identity(ids.values))
