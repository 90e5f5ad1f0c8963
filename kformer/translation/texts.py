"""Translates any number of texts of any length by a search that takes batches of short ones, in TensorFlow operations.

Shape letters: B texts, P their parts, N hypotheses for each.
"""

from collections.abc import Callable

import tensorflow as tf

from kformer.decoding import SearchResult
from kformer.translation.batches import BATCH_SIZE
from kformer.translation.codec import TextCodec
from kformer.translation.parts import divide, join

BATCH_TOKENS = 4096  # of a batch, its padding counted: this bounds the memory that a search takes

Find = Callable[[tf.Tensor, tf.Tensor], SearchResult]


def translate_texts(codec: TextCodec, find: Find, text: tf.Tensor, n_best: int) -> dict[str, tf.Tensor]:
    """Divides texts in parts, translates these in batches, and joins the translations.

    Args:
        codec: The tokenizers and the largest lengths.
        find: Searches for N hypotheses of each source, as `Searcher.find`. A batch has at most `BATCH_SIZE` sources.
        text: (B,) string.
        n_best: N.

    Returns:
        `translation` (B, N) string and `score` (B, N) float32, see `kformer.translation.parts.join`.
    """
    parts = divide(text, codec.source_tokenizer, codec.longest_part)
    found = _in_batches(codec, find, parts.ids, n_best)
    return join(parts, tf.size(text), *found, codec.score_penalty)


def best(found: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """The best hypothesis of each text: (B, N) to (B,)."""
    return {name: values[:, 0] for name, values in found.items()}


def _in_batches(
    codec: TextCodec, find: Find, ids: tf.RaggedTensor, n_best: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Translations, scores and lengths, (P, N) each, of sources (P, None). Batches have sources of like lengths."""
    lengths = tf.cast(ids.row_lengths(), tf.int32)
    order = tf.argsort(lengths, direction="DESCENDING", stable=True)

    def some_left(start: tf.Tensor, *_: tf.Tensor) -> tf.Tensor:
        return start < tf.size(order)

    def batch(start: tf.Tensor, *found: tf.Tensor) -> tuple[tf.Tensor, ...]:
        with_end = tf.gather(lengths, order[start]) + 1
        size = tf.clip_by_value(BATCH_TOKENS // with_end, 1, BATCH_SIZE)
        source, limits = codec.pad(tf.gather(ids, order[start : start + size]))
        result = find(source, limits)
        decoded = codec.decode(result, limits)
        new = (decoded["translation"], decoded["score"], result.lengths)
        return start + size, *(tf.concat(pair, axis=0) for pair in zip(found, new, strict=True))

    nothing = [tf.zeros((0, n_best), dtype) for dtype in (tf.string, tf.float32, tf.int32)]
    rows = tf.TensorShape([None, n_best])
    shapes = (tf.TensorShape([]), rows, rows, rows)
    _, *found = tf.while_loop(some_left, batch, (0, *nothing), shapes, parallel_iterations=1)
    back = tf.argsort(order)
    return tuple(tf.gather(values, back) for values in found)
