"""Translates texts with options that are tensors, so that one function answers requests with any options.

Shape letters: B texts, R parts of a batch, F tokens of a prefix.
"""

import tensorflow as tf

from kformer.decoding import SearchResult
from kformer.text.codec import TextCodec, best, longest_translation
from kformer.text.option_tensors import Options, asked_lengths, batch_seed, checks, require
from kformer.text.searcher import Searcher
from kformer.text.translate_texts import translate_parts
from kformer.tokenizers import Tokenizer


def translate_with_options(
    codec: TextCodec,
    searcher: Searcher,
    text: tf.Tensor,
    target_prefix: tf.Tensor,
    tag: tf.Tensor,
    options: Options,
) -> dict[str, tf.Tensor]:
    """Translates texts; the arguments and the result are those of `Translator.translate_with_options`."""
    longest = longest_translation(codec.config, codec.decoding)
    of_texts = [_one_or_each(name, value, text) for name, value in (("target_prefix", target_prefix), ("tag", tag))]
    with tf.control_dependencies([*checks(options, longest), *of_texts, _tags_known(codec, tag)]):
        text = _tagged(text, tag)
    texts = tf.size(text)
    parts = codec.divide(text)
    # Only the translation of the first part of a text that shows something begins with the prefix.
    number, has_ids = tf.range(tf.size(parts.text)), parts.ids.row_lengths() > 0
    first = tf.math.unsorted_segment_min(tf.where(has_ids, number, tf.size(parts.text)), parts.text, texts)
    of_parts = tf.gather(tf.broadcast_to(target_prefix, [texts]), parts.text)
    prefixes = codec.target_tokenizer.tokenize(tf.where(tf.gather(first, parts.text) == number, of_parts, ""))
    prefixes = _all_known(prefixes, codec.target_tokenizer, target_prefix)
    draws = options["temperature"] > 0

    def find(rows: tf.Tensor, source: tf.Tensor, limits: tf.Tensor, starts: tf.Tensor) -> SearchResult:
        limits, least = asked_lengths(options, searcher.decoding, limits)
        prefix = tf.gather(prefixes, rows).to_tensor(codec.config.pad_id)  # (R, F)

        def search() -> SearchResult:
            penalty = options["length_penalty"]
            return searcher.find(source, limits, starts, prefix=prefix, length_penalty=penalty, min_length=least)

        def sample() -> SearchResult:
            temperature = tf.where(draws, options["temperature"], 1.0)
            drawing = batch_seed(options, rows), temperature, options["top_k"], options["top_p"]
            return searcher.sample(source, limits, *drawing, starts, prefix=prefix, min_length=least)

        return tf.cond(draws, sample, search)

    penalty = tf.where(draws, 0.0, options["length_penalty"])
    return best(translate_parts(codec, parts, find, texts, 1, lambda lengths: codec.score_norm(lengths, penalty)))


def _one_or_each(name: str, values: tf.Tensor, text: tf.Tensor) -> tf.Operation:
    fits = tf.equal(tf.size(values), 1) | tf.equal(tf.size(values), tf.size(text))
    return require(fits, f"{name} must have one entry, or one for each text", tf.size(values))


def _tags_known(codec: TextCodec, tag: tf.Tensor) -> tf.Operation:
    """Refuses a tag that the model does not have."""
    if codec.tags is None:
        return require(tf.reduce_all(tag == ""), "tag must be empty, because this model has no tags", tag)
    known = tf.strings.regex_full_match(tag, codec.tags.pattern) | (tag == "")
    rule = f"the model knows no other tags than {codec.decoding.tags or 'a language code such as >>fr<<'}"
    return require(tf.reduce_all(known), rule, tag)


def _tagged(text: tf.Tensor, tag: tf.Tensor) -> tf.Tensor:
    """(B,) string: the texts behind their tags; "" leaves a text as it is."""
    return tf.where(tag == "", text, tf.strings.join([tf.broadcast_to(tag, tf.shape(text)), text], " "))


def _all_known(ids: tf.RaggedTensor, tokenizer: Tokenizer, texts: tf.Tensor) -> tf.RaggedTensor:
    """The ids of texts, which must be in the vocabulary."""
    known = tf.reduce_all(tf.not_equal(ids.values, tokenizer.unknown_id))
    rule = "target_prefix must have only words or symbols of the model's vocabulary"
    with tf.control_dependencies([require(known, rule, texts)]):
        return ids.with_values(tf.identity(ids.values))
