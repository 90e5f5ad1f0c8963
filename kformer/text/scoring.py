"""The probability that a model gives to translations, computed for all tokens at once.

Shape letters: B pairs, S source length, T target length with the end token.
"""

import keras
import tensorflow as tf

from kformer.config import TransformerConfig
from kformer.text.codec import TextCodec, longest_translation
from kformer.text.option_tensors import require
from kformer.text.translate_texts import in_batches

SCORED_TOKENS = 512  # target tokens in a batch: each has logits for the whole vocabulary


def score_pairs(codec: TextCodec, model: keras.Model, text: tf.Tensor, translation: tf.Tensor) -> dict[str, tf.Tensor]:
    """Scores pairs of texts.

    Args:
        codec: The tokenizers and the largest lengths.
        model: From `build_transformer`.
        text: (B,) string.
        translation: (B,) string.

    Returns:
        `log_probability` (B,) float32, the natural logarithm of the probability of the translation and its end, without
        a first token that is given (`DecodingConfig.first_is_free`);
        `score` (B,) float32, the same divided by the length penalty, as a search gives it; `tokens` (B,) int32, the
        number of tokens of the translation, its end included; `truncated` (B,) bool, True where a text has more tokens
        than the model reads, or a translation more than a search gives. The rest is not read, because the memory for
        attention grows with the square of the length.
    """
    translations = tf.size(translation)
    rule = "translation must have one entry for each text"
    with tf.control_dependencies([require(tf.equal(translations, tf.size(text)), rule, translations)]):
        text = tf.identity(text)
    source, target = codec.tokenize(text), codec.target_tokenizer.tokenize(translation)
    starts = codec.starts(text)
    longest = longest_translation(codec.config, codec.decoding) or codec.longest_part + codec.decoding.max_extra_length
    truncated = (source.row_lengths() > codec.longest_part) | (target.row_lengths() > longest - 1)
    source, target = source[:, : codec.longest_part], target[:, : longest - 1]
    tokens = tf.cast(target.row_lengths(), tf.int32) + 1

    def batch(rows: tf.Tensor) -> tuple[tf.Tensor]:
        return (_log_probabilities(codec, model, *(tf.gather(each, rows) for each in (source, target, starts))),)

    nothing = (tf.zeros((0,), tf.float32),)
    (log_probability,) = in_batches(tokens, SCORED_TOKENS, batch, nothing)
    score = log_probability / codec.score_norm(tokens)
    return {"log_probability": log_probability, "score": score, "tokens": tokens, "truncated": truncated}


def _log_probabilities(
    codec: TextCodec, model: keras.Model, source: tf.RaggedTensor, target: tf.RaggedTensor, starts: tf.Tensor
) -> tf.Tensor:
    """(B,) float32 for sources and targets (B, None) of ids, without start and end ids; `starts` stand before these."""
    target_in, target_out = target_batch(codec, target, starts)
    padded, _ = codec.pad(source)
    logits = model({"source": padded, "target_in": target_in}, training=False)
    loss = tf.nn.sparse_softmax_cross_entropy_with_logits(target_out, logits)  # (B, T)
    is_free = target_out == codec.config.pad_id
    if codec.decoding.first_is_free:
        is_free |= (tf.range(tf.shape(loss)[1]) == 0) & (target_out == codec.decoding.first_id)
    return -tf.reduce_sum(tf.where(is_free, 0.0, loss), axis=1)


def target_batch(codec: TextCodec, target: tf.RaggedTensor, starts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Inputs and labels of the model, (B, T) int32 each, for targets (B, None) and the ids (B,) that stand before."""
    return next_tokens(codec.config, tf.concat([starts[:, tf.newaxis], target], axis=1))


def next_tokens(config: TransformerConfig, begun: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Sequences (B, None) with the id that stands before each, and the labels: their next ids and the end."""
    ends = tf.fill([begun.nrows(), 1], tf.constant(config.end_id, tf.int32))
    labels = tf.concat([begun[:, 1:], ends], axis=1)
    return begun.to_tensor(config.pad_id), labels.to_tensor(config.pad_id)
