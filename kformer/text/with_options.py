"""Translates texts with options that are tensors, so that one function answers requests with any options.

Shape letters: B texts, R parts of a batch, F tokens of a prefix.
"""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from kformer.config import DecodingConfig
from kformer.decoding import SearchResult
from kformer.text.codec import TextCodec, best, longest_translation
from kformer.text.options import OPTIONS
from kformer.text.parts import differs_from_last, divide
from kformer.text.search import Searcher
from kformer.text.texts import translate_parts
from kformer.tokenizers import Tokenizer

Options = Mapping[str, tf.Tensor]  # all options of a request by their names, each of rank 0
OPTION_SPECS = [tf.TensorSpec([], option.dtype, name=option.name) for option in OPTIONS.values()]


def option_tensors(decoding: DecodingConfig, given: Mapping[str, float | int | None] | None = None) -> Options:
    """The options that are given. Those that are not, or are None, have the values of the model's own search."""
    values = {name: option.default_for(decoding) for name, option in OPTIONS.items()}
    values |= {name: value for name, value in (given or {}).items() if value is not None}
    return {name: tf.constant(value, OPTIONS[name].dtype) for name, value in values.items()}


def named_options(tensors: Sequence[tf.Tensor]) -> Options:
    """The options, in the order of `OPTION_SPECS`, by their names."""
    return dict(zip(OPTIONS, tensors, strict=True))


def translate_with_options(
    codec: TextCodec, searcher: Searcher, text: tf.Tensor, target_prefix: tf.Tensor, options: Options
) -> dict[str, tf.Tensor]:
    """Translates texts; the arguments and the result are those of `Translator.translate_with_options`."""
    prefixes = tf.size(target_prefix)
    one_or_each = tf.equal(prefixes, 1) | tf.equal(prefixes, tf.size(text))
    rule = "target_prefix must have one entry, or one for each text"
    longest = longest_translation(codec.config, codec.decoding)
    with tf.control_dependencies([*checks(options, longest), _require(one_or_each, rule, prefixes)]):
        text = tf.identity(text)
    texts = tf.size(text)
    parts = divide(text, codec.source_tokenizer, codec.longest_line, codec.longest_part)
    # Only the translation of a text's first part begins with the prefix.
    of_parts = tf.gather(tf.broadcast_to(target_prefix, [texts]), parts.text)
    prefixes = codec.target_tokenizer.tokenize(tf.where(differs_from_last(parts.text), of_parts, ""))
    prefixes = _all_known(prefixes, codec.target_tokenizer, target_prefix)
    draws = options["temperature"] > 0

    def find(rows: tf.Tensor, source: tf.Tensor, limits: tf.Tensor) -> SearchResult:
        limits = tf.where(options["max_length"] > 0, tf.minimum(limits, options["max_length"]), limits)
        least = tf.where(options["min_length"] > 0, options["min_length"], searcher.decoding.min_length)
        least = tf.fill(tf.shape(limits), least)  # (R,)
        prefix = tf.gather(prefixes, rows).to_tensor(codec.config.pad_id)  # (R, F)

        def search() -> SearchResult:
            penalty = options["length_penalty"]
            return searcher.find(source, limits, prefix=prefix, length_penalty=penalty, min_length=least)

        def sample() -> SearchResult:
            temperature = tf.where(draws, options["temperature"], 1.0)
            drawing = batch_seed(options, rows), temperature, options["top_k"], options["top_p"]
            return searcher.sample(source, limits, *drawing, prefix=prefix, min_length=least)

        return tf.cond(draws, sample, search)

    is_penalized = tf.logical_and(searcher.decoding.beam_size > 1, tf.logical_not(draws))
    penalty = tf.where(is_penalized, options["length_penalty"], 0.0)
    return best(translate_parts(codec, parts, find, texts, 1, penalty))


def batch_seed(options: Options, rows: tf.Tensor) -> tf.Tensor:
    """(2,) int64: every batch of rows has its own seed. The batch with the first row has the given seed."""
    high = tf.bitwise.right_shift(options["seed"], 32) + tf.cast(tf.reduce_min(rows), tf.int64)
    return tf.stack([options["seed"], high])


def checks(options: Options, longest: int | None) -> list[tf.Operation]:
    """The checks of all options. If one fails, a server answers with INVALID_ARGUMENT.

    Args:
        options: Those of a request.
        longest: The largest number of tokens that the model writes, if it has a number for all texts.
    """
    most = tf.constant(OPTIONS["max_length"].highest if longest is None else longest)
    most = tf.where(options["max_length"] > 0, tf.minimum(options["max_length"], most), most)
    least = options["min_length"]
    rule = f"min_length must be less than {'max_length' if longest is None else f'max_length and {longest}'}"
    return [
        *(
            _require(OPTIONS[name].allows(value), f"{name} {OPTIONS[name].rule}", value)
            for name, value in options.items()
        ),
        _require(least < most, f"{rule}, because the end counts, too", least, options["max_length"]),
    ]


def _all_known(ids: tf.RaggedTensor, tokenizer: Tokenizer, texts: tf.Tensor) -> tf.RaggedTensor:
    """The ids of texts, which must be in the vocabulary."""
    known = tf.reduce_all(tf.not_equal(ids.values, tokenizer.unknown_id))
    rule = "target_prefix must have only words or symbols of the model's vocabulary"
    with tf.control_dependencies([_require(known, rule, texts)]):
        return ids.with_values(tf.identity(ids.values))


def _require(condition: tf.Tensor, rule: str, *values: tf.Tensor) -> tf.Operation:
    return tf.debugging.Assert(condition, [f"{rule}. Received:", *values])
