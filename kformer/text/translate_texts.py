"""Translates texts of any number and length by a search that takes batches of short ones, in TensorFlow operations.

Shape letters: B texts, P their parts, N hypotheses for each.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from kformer.decoding import SearchResult
from kformer.text.batches import BATCH_SIZE
from kformer.text.codec import TextCodec
from kformer.text.parts import Parts, join

BATCH_TOKENS = 4096  # of a batch, padding included: this bounds the memory of a search

Find = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], SearchResult]
FindRows = Callable[[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor], SearchResult]
Answer = Callable[[tf.Tensor], tuple[tf.Tensor, ...]]


def translate_texts(codec: TextCodec, find: Find, text: tf.Tensor, n_best: int) -> dict[str, tf.Tensor]:
    """Divides texts into parts, translates the parts in batches, and joins the translations.

    Args:
        codec: The tokenizers and the largest lengths.
        find: Searches for N hypotheses of each source, as `Searcher.find`. A batch has at most `BATCH_SIZE` sources.
        text: (B,) string.
        n_best: N.

    Returns:
        `translation` (B, N) string and `score` (B, N) float32, see `kformer.text.parts.join`.
    """
    parts = codec.divide(text)

    def find_rows(rows: tf.Tensor, source: tf.Tensor, limits: tf.Tensor, starts: tf.Tensor) -> SearchResult:
        return find(source, limits, starts)

    return translate_parts(codec, parts, find_rows, tf.size(text), n_best, codec.score_norm)


def translate_parts(
    codec: TextCodec,
    parts: Parts,
    find: FindRows,
    texts: tf.Tensor,
    n_best: int,
    norm: Callable[[tf.Tensor], tf.Tensor],
) -> dict[str, tf.Tensor]:
    """Translates parts of texts in batches, and joins the translations.

    Args:
        codec: The tokenizers and the largest lengths.
        parts: From `TextCodec.divide`.
        find: From the numbers, sources and limits of some parts (see `TextCodec.pad`), and the ids that stand before
            their translations, to N hypotheses of each part.
        texts: () int, B.
        n_best: N.
        norm: The length penalty of the scores of `find`, see `TextCodec.score_norm`.

    Returns:
        As `translate_texts`.
    """

    def batch(rows: tf.Tensor) -> tuple[tf.Tensor, ...]:
        source, limits = codec.pad(tf.gather(parts.ids, rows))
        result = find(rows, source, limits, tf.gather(parts.start, rows))
        decoded = codec.decode(result, limits)
        return decoded["translation"], decoded["score"], result.lengths

    nothing = [tf.zeros((0, n_best), dtype) for dtype in (tf.string, tf.float32, tf.int32)]
    lengths = tf.cast(parts.ids.row_lengths(), tf.int32) + 1  # with the end id
    translation, score, tokens = in_batches(lengths, BATCH_TOKENS, batch, nothing)
    return join(parts, texts, translation, score, tokens, norm)


def in_batches(lengths: tf.Tensor, tokens: int, answer: Answer, nothing: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Processes P rows in batches of similar length, at most `BATCH_SIZE` rows each. The results keep the rows' order.

    Args:
        lengths: (P,) int32.
        tokens: Largest number of tokens of a batch, padding included; a batch has at least one row.
        answer: From the numbers of some rows to their results.
        nothing: The results for zero rows: empty tensors.
    """
    found, back = run_batches(lengths, tokens, answer, nothing)
    return [tf.gather(values, back) for values in found]


def run_batches(
    lengths: tf.Tensor, tokens: int, answer: Answer, nothing: Sequence[tf.Tensor]
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """As `in_batches`, but the results are in the order in which the rows were processed.

    A result may have any number of entries for a row, one after the other.

    Returns:
        The results; and (P,) int32, the place of each row in this order.
    """
    order = tf.argsort(lengths, direction="DESCENDING", stable=True)

    def some_left(start: tf.Tensor, *_: tf.Tensor) -> tf.Tensor:
        return start < tf.size(order)

    def batch(start: tf.Tensor, *found: tf.Tensor) -> tuple[tf.Tensor, ...]:
        size = tf.clip_by_value(tokens // tf.maximum(1, tf.gather(lengths, order[start])), 1, BATCH_SIZE)
        new = answer(order[start : start + size])
        return start + size, *(tf.concat(pair, axis=0) for pair in zip(found, new, strict=True))

    shapes = (tf.TensorShape([]), *(tf.TensorShape([None, *empty.shape[1:]]) for empty in nothing))
    _, *found = tf.while_loop(some_left, batch, (0, *nothing), shapes, parallel_iterations=1)
    return found, tf.argsort(order)
