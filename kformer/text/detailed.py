"""Translations with the places, probabilities and alignments of their tokens.

After the usual search, the model reads each source and its translation once more, all positions at the same time.

Shape letters: B texts, P their parts, R parts of a batch, H heads, S source length, T target length.
"""

from typing import NamedTuple

import keras
import tensorflow as tf

from kformer.models import call_with_scores
from kformer.text.codec import TextCodec
from kformer.text.parts import Parts, gaps_before, join
from kformer.text.places import locate
from kformer.text.scoring import SCORED_TOKENS, target_batch
from kformer.text.translate_texts import BATCH_TOKENS, Find, run_batches
from kformer.tokenizers.offsets import byte_lengths
from kformer.tokenizers.ragged import in_rows, kept, row_ids, sums, sums_before, with_lengths


class _Found(NamedTuple):
    """The best translation of each part."""

    translation: tf.Tensor  # (P,) string
    score: tf.Tensor  # (P,) float32
    ids: tf.RaggedTensor  # (P, None) int32, with the end id, if it has one


class _Reading(NamedTuple):
    """The results of the second reading, a row for each token of each part."""

    log_probability: tf.Tensor  # (sum of T,) float32
    alignment: tf.RaggedTensor  # (sum of T, None) float32: as many numbers as the token's part has source tokens


def translate_detailed(codec: TextCodec, model: keras.Model, find: Find, text: tf.Tensor) -> dict[str, tf.Tensor]:
    """Translates texts, and gives the places, probabilities and alignments of their tokens.

    Args:
        codec: The tokenizers and the largest lengths.
        model: From `build_transformer`.
        find: The search, as in `translate_texts`.
        text: (B,) string.

    Returns:
        See `Translator.translate_detailed`.

    Raises:
        ValueError: A tokenizer cannot give the offsets of its tokens in a text.
    """
    parts = codec.divide(text)
    texts = tf.size(text)
    found = _search(codec, find, parts)
    reading = _read_again(codec, model, parts, found)
    lengths = tf.cast(found.ids.row_lengths(), tf.int32)[:, tf.newaxis]
    joined = join(parts, texts, found.translation[:, tf.newaxis], found.score[:, tf.newaxis], lengths, codec.score_norm)
    places = locate(codec, text)
    translation = joined["translation"][:, 0]
    is_end = tf.cast(found.ids.values == codec.config.end_id, tf.int32)
    has_end = sums(found.ids.with_values(is_end)) > 0
    is_cut = tf.logical_not(has_end) & (lengths[:, 0] > 0)
    return {
        "translation": translation,
        "score": joined["score"][:, 0],
        "divided": tf.math.unsorted_segment_sum(tf.ones_like(parts.text), parts.text, texts) > 1,
        "overlong": places.overlong,
        "truncated": tf.math.unsorted_segment_max(tf.cast(is_cut, tf.int32), parts.text, texts) > 0,
        "short": tf.math.unsorted_segment_max(tf.cast(_is_short(codec, parts, found), tf.int32), parts.text, texts) > 0,
        **_tokens("source", text, places.start, places.end),
        **_tokens("target", translation, *_target_places(codec, parts, texts, found, has_end)),
        **_alignments(parts, texts, found.ids, reading),
    }


def _is_short(codec: TextCodec, parts: Parts, found: _Found) -> tf.Tensor:
    """(P,) bool, True for a part whose translation has too few characters, see `DecodingConfig.short_ratio`."""
    source = tf.strings.length(codec.source_tokenizer.detokenize(parts.ids), "UTF8_CHAR")
    target = tf.strings.length(found.translation, "UTF8_CHAR")
    return tf.cast(target, tf.float32) < (codec.decoding.short_ratio or 0.0) * tf.cast(source, tf.float32)


def alignment_layer(num_layers: int) -> int:
    """The decoder layer whose cross-attention tells which source token a target token translates: the last one.

    `benchmarks/quality/alignment.py` compares the layers.
    """
    return num_layers - 1


def _search(codec: TextCodec, find: Find, parts: Parts) -> _Found:
    def batch(rows: tf.Tensor) -> tuple[tf.Tensor, ...]:
        source, limits = codec.pad(tf.gather(parts.ids, rows))
        result = find(source, limits, tf.gather(parts.start, rows))
        best = codec.decode_best(result, limits)
        lengths = tf.where(limits > 0, result.lengths[:, 0], 0)
        tokens = result.tokens[:, 0]
        ids = tf.boolean_mask(tokens, tf.sequence_mask(lengths, tf.shape(tokens)[1]))
        return best["translation"], best["score"], lengths, ids

    nothing = [tf.zeros((0,), dtype) for dtype in (tf.string, tf.float32, tf.int32, tf.int32)]
    lengths = tf.cast(parts.ids.row_lengths(), tf.int32) + 1
    (translation, score, lengths, ids), back = run_batches(lengths, BATCH_TOKENS, batch, nothing)
    rows = with_lengths(ids, lengths)
    return _Found(*(tf.gather(values, back) for values in (translation, score, rows)))


def _read_again(codec: TextCodec, model: keras.Model, parts: Parts, found: _Found) -> _Reading:
    """Reads sources and translations together, in batches that bound the memory of the logits."""
    end_id = codec.config.end_id
    layer = alignment_layer(codec.config.num_decoder_layers)

    def batch(rows: tf.Tensor) -> tuple[tf.Tensor, ...]:
        ids = tf.gather(found.ids, rows)
        lengths = tf.gather(parts.ids.row_lengths(), rows)
        source, _ = codec.pad(tf.gather(parts.ids, rows))
        content = kept(ids, ids.values != end_id)
        target_in, target_out = target_batch(codec, content, tf.gather(parts.start, rows))
        logits, scores = call_with_scores(model, source, target_in, codec.config.pad_id)
        log_probability = -tf.nn.sparse_softmax_cross_entropy_with_logits(target_out, logits)  # (R, T)
        weights = tf.reduce_mean(tf.cast(scores.cross[layer], tf.float32), axis=1)  # (R, T, S)
        is_token = tf.sequence_mask(ids.row_lengths(), tf.shape(target_in)[1])  # (R, T)
        is_source = tf.sequence_mask(lengths, tf.shape(source)[1])  # (R, S), without the end
        both = is_token[:, :, tf.newaxis] & is_source[:, tf.newaxis, :]
        return tf.boolean_mask(log_probability, is_token), tf.boolean_mask(weights, both)

    nothing = [tf.zeros((0,), tf.float32)] * 2
    lengths = found.ids.row_lengths()
    (log_probability, weights), back = run_batches(tf.cast(lengths, tf.int32), SCORED_TOKENS, batch, nothing)
    taken = tf.argsort(back)  # the rows in the order in which they were processed
    of_rows = with_lengths(log_probability, tf.gather(lengths, taken))
    sizes = lengths * parts.ids.row_lengths()
    blocks = with_lengths(weights, tf.gather(sizes, taken))
    widths = tf.repeat(parts.ids.row_lengths(), found.ids.row_lengths())
    alignment = with_lengths(tf.gather(blocks, back).values, widths)
    return _Reading(tf.gather(of_rows, back).values, alignment)


def _tokens(side: str, text: tf.Tensor, start: tf.RaggedTensor, end: tf.RaggedTensor) -> dict[str, tf.Tensor]:
    """The tokens of texts, as slices of the texts, and their places; padding is "" and 0."""
    rows = tf.gather(text, row_ids(start))
    token = start.with_values(tf.strings.substr(rows, start.values, end.values - start.values))
    return {
        f"{side}_token": token.to_tensor(""),
        f"{side}_start": tf.cast(start.to_tensor(), tf.int32),
        f"{side}_end": tf.cast(end.to_tensor(), tf.int32),
        f"{side}_length": tf.cast(start.row_lengths(), tf.int32),
    }


def _target_places(
    codec: TextCodec, parts: Parts, texts: tf.Tensor, found: _Found, has_end: tf.Tensor
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """The places of the tokens in the joined translations; an end token stands after its part and has no bytes."""
    content = kept(found.ids, found.ids.values != codec.config.end_id)
    written, spans = codec.target_tokenizer.detokenize_with_offsets(content)
    lengths = byte_lengths(written)
    last = with_lengths(tf.boolean_mask(lengths, has_end), has_end)
    gaps = byte_lengths(gaps_before(parts, written[:, tf.newaxis])[:, 0])
    in_text = sums_before(in_rows(gaps + lengths, parts.text, texts)).values + gaps  # (P,)

    def joined(place: tf.RaggedTensor) -> tf.RaggedTensor:
        rows = tf.concat([place, last], axis=1)
        values = rows.values + tf.gather(in_text, row_ids(rows))
        return in_rows(values, tf.gather(parts.text, row_ids(rows)), texts)

    return joined(spans.start), joined(spans.end)


def _alignments(parts: Parts, texts: tf.Tensor, ids: tf.RaggedTensor, reading: _Reading) -> dict[str, tf.Tensor]:
    """The log probabilities and alignments of all tokens of each text, one part after the other."""
    sources = in_rows(parts.ids.row_lengths(), parts.text, texts)
    first = tf.gather(sums_before(sources).values, row_ids(ids))  # the number of the part's first source token
    owner = tf.gather(parts.text, row_ids(ids))
    weights = in_rows(reading.alignment.to_tensor(), owner, texts)
    return {
        "log_probability": in_rows(reading.log_probability, owner, texts).to_tensor(),
        "alignment": weights.to_tensor(),
        "alignment_start": tf.cast(in_rows(first, owner, texts).to_tensor(), tf.int32),
    }
