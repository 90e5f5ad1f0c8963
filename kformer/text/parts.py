"""Divides texts into parts that a model can read, and joins the translations of the parts. No text is cut off.

Shape letters: B texts, P parts, N hypotheses for each part.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from kformer.tokenizers import Tokenizer
from kformer.tokenizers.offsets import byte_lengths
from kformer.tokenizers.ragged import numbers, places, row_ids, with_lengths
from kformer.tokenizers.text_ops import BEGINS_SPACED, ENDS_SPACED, INVISIBLE, WHITESPACE, replace_invalid

# A byte that valid UTF-8 never contains. It marks both ends of the white space between two parts.
_MARK = b"\xff"
_LINE_BREAK = f"[{WHITESPACE}]*\n[{WHITESPACE}]*"
# The end of a sentence, the white space after it, and the first character of the next sentence. A sentence does not end
# with the period of an initial or of an abbreviation such as "Mr.", or before a word that begins with a small letter.
_CLOSING = "[\"'”’»)\\]]*"
_SENTENCE_END = (
    rf"((?:[^\p{{Lu}}][^\p{{Lu}}.{WHITESPACE}]\.|\.\.|[!?…؟۔।]){_CLOSING})([{WHITESPACE}]+)([^\p{{Ll}}{WHITESPACE}])"
)
_CJK_SENTENCE_END = rf"([。！？]+[”’」』）]*)([{WHITESPACE}]*)([^{WHITESPACE}])"


class Parts(NamedTuple):
    """The parts of B texts. Every text has at least one."""

    ids: tf.RaggedTensor  # (P, None) int32, the part's tokens, without start and end ids
    text: tf.Tensor  # (P,) int32, the number of the text that the part belongs to, rising
    gap: tf.Tensor  # (P,) string, the white space between the part and the one before it; "" before a text's first part
    start: Any = ()  # (P,) int32, the id that stands before the part's translation; `TextCodec.divide` knows it


class Pieces(NamedTuple):
    """The pieces of some texts."""

    texts: tf.Tensor  # (P,) string
    owner: tf.Tensor  # (P,) int32, the number of the text that a piece belongs to
    gap: tf.Tensor  # (P,) string, the white space before the piece; "" before the first one
    first: tf.Tensor  # (P,) bool, True for the first piece of a text

    def numbered(self) -> "Pieces":
        """The same pieces as if each was a text of its own."""
        return self._replace(owner=tf.range(tf.size(self.owner)))


def divide(text: tf.Tensor, tokenizer: Tokenizer, longest_line: int, longest: int) -> Parts:
    """Divides texts into parts.

    Each line is a part. A line of more than `longest_line` tokens is divided into its sentences, a sentence of more
    than `longest` tokens into groups of words, and a word that is still too long between any two tokens.

    Args:
        text: (B,) string. Bytes that are not UTF-8 are read as U+FFFD.
        tokenizer: The tokenizer of the source.
        longest_line: Largest number of tokens of a part with several sentences.
        longest: Largest number of tokens of a part, at least `longest_line`.
    """
    return divide_lines(lines_of(text)[0], tokenizer, longest_line, longest)


def divide_lines(lines: Pieces, tokenizer: Tokenizer, longest_line: int, longest: int) -> Parts:
    """As `divide`, for texts whose lines are known."""
    parts = Parts(tokenizer.tokenize(lines.texts), lines.owner, lines.gap)

    def shorter() -> Parts:
        pieces, _ = short_pieces(lines, parts.ids, tokenizer, longest_line, longest)
        return divided_anywhere(Parts(tokenizer.tokenize(pieces.texts), pieces.owner, pieces.gap), longest)

    return tf.cond(tf.reduce_any(is_longer(parts.ids, longest_line)), shorter, lambda: parts)


def lines_of(text: tf.Tensor) -> tuple[Pieces, tf.Tensor]:
    """The lines of texts, and (B,) int64, how many bytes of white space stand before the first one."""
    valid = replace_invalid(text)
    # White space at the ends is dropped: a translation never begins or ends with any.
    begun = tf.strings.regex_replace(valid, f"^[{WHITESPACE}]+", "")
    text = tf.strings.regex_replace(begun, f"[{WHITESPACE}]+$", "")
    text = tf.strings.regex_replace(text, f"^[{WHITESPACE}{INVISIBLE}]+$", "")  # lines that show nothing are no lines
    return _split(tf.strings.regex_replace(text, _LINE_BREAK, _between(rb"\0"))), byte_lengths(valid) - byte_lengths(
        begun
    )


def short_pieces(
    lines: Pieces, ids: tf.RaggedTensor, tokenizer: Tokenizer, longest_line: int, longest: int
) -> tuple[Pieces, tf.Tensor]:
    """Divides lines that are too long into pieces that are short enough, except for long single words.

    Args:
        lines: The lines.
        ids: Their tokens.
        tokenizer, longest_line, longest: As in `divide`.

    Returns:
        The pieces, and (B,) bool, True for a text with a sentence that was divided.
    """
    sentences = _each_divided(lines, is_longer(ids, longest_line), _marked_sentences)
    long = is_longer(tokenizer.tokenize(sentences.texts), longest)
    words = _each_divided(sentences, long, _marked_words)
    overlong = tf.math.unsorted_segment_max(tf.cast(long, tf.int32), sentences.owner, lines.owner[-1] + 1) > 0
    return _grouped(words, tokenizer.tokenize(words.texts), longest // 2), overlong


def is_longer(ids: tf.RaggedTensor, longest: int) -> tf.Tensor:
    """(P,) bool, True for rows with more than `longest` ids."""
    return ids.row_lengths() > longest


def join(
    parts: Parts,
    texts: tf.Tensor,
    translation: tf.Tensor,
    score: tf.Tensor,
    lengths: tf.Tensor,
    norm: Callable[[tf.Tensor], tf.Tensor],
) -> dict[str, tf.Tensor]:
    """Joins the translations of the parts of each text, with the white space that stood between them.

    A hypothesis of a text consists of the n-th ones of its parts; the best one is first. Its score is that of one long
    hypothesis: the sum of the parts' log probabilities, divided by the length penalty of all their tokens.

    Args:
        parts: From `divide`.
        texts: () int, B.
        translation: (P, N) string.
        score: (P, N) float32, log probabilities divided by the length penalty.
        lengths: (P, N) int32, tokens of each hypothesis.
        norm: The length penalty of hypotheses with some numbers of tokens, see `TextCodec.score_norm`.

    Returns:
        `translation` (B, N) string and `score` (B, N) float32.
    """
    joined = tf.strings.unsorted_segment_join(gaps_before(parts, translation) + translation, parts.text, texts)
    log_prob = tf.math.unsorted_segment_sum(score * norm(lengths), parts.text, texts)
    tokens = tf.math.unsorted_segment_sum(lengths, parts.text, texts)
    num_parts = tf.math.unsorted_segment_sum(tf.ones_like(parts.text), parts.text, texts)  # (B,)
    own = tf.math.unsorted_segment_sum(score, parts.text, texts)  # the score of a text's only part, not rounded again
    whole = tf.where(num_parts[:, tf.newaxis] > 1, log_prob / norm(tokens), own)
    if translation.shape[1] != 1:  # of several parts, the third hypotheses may together be better than the second ones
        order = tf.argsort(whole, axis=1, direction="DESCENDING", stable=True)
        joined, whole = tf.gather(joined, order, batch_dims=1), tf.gather(whole, order, batch_dims=1)
    return {"translation": joined, "score": whole}


def gaps_before(parts: Parts, translation: tf.Tensor) -> tf.Tensor:
    """(P, N) string: what stands before each translation (P, N) of the parts: the white space before the part.

    Chinese and Japanese write none between two sentences. Their translations have a blank between them, if they are in
    a script with blanks.
    """
    before = tf.concat([tf.zeros_like(translation[:1]), translation[:-1]], axis=0)
    shows_blanks = tf.strings.regex_full_match(before, ENDS_SPACED) & tf.strings.regex_full_match(
        translation, BEGINS_SPACED
    )
    gap = parts.gap[:, tf.newaxis]
    has_none = (gap == "") & ~differs_from_last(parts.text)[:, tf.newaxis]
    return tf.where(has_none & shows_blanks, " ", gap)


def _split(marked: tf.Tensor) -> Pieces:
    """The pieces of texts of the form: piece, mark, gap, mark, piece, ..."""
    both = tf.raw_ops.StringSplitV2(input=marked, sep=_MARK)
    owner, place = tf.unstack(tf.cast(both.indices, tf.int32), axis=1)
    at = places(place % 2 == 0)  # of the pieces; a gap stands between two of them
    first = tf.gather(place, at) == 0
    gap = tf.where(first, "", tf.gather(both.values, tf.maximum(at - 1, 0)))
    return Pieces(tf.gather(both.values, at), tf.gather(owner, at), gap, first)


def differs_from_last(values: tf.Tensor) -> tf.Tensor:
    """(P,) int32 to (P,) bool: True for a number that differs from the one before it, and for the first number."""
    return tf.concat([tf.ones_like(values[:1], tf.bool), values[1:] != values[:-1]], axis=0)


def _between(gap: bytes) -> bytes:
    """A gap between two marks. In the rewrite of a regular expression, `gap` refers to a match."""
    return _MARK + gap + _MARK


def _each_divided(pieces: Pieces, chosen: tf.Tensor, marked: Callable[[tf.Tensor], tf.Tensor]) -> Pieces:
    """The pieces, of which the chosen ones are divided.

    Args:
        pieces: P pieces.
        chosen: (P,) bool, which to divide.
        marked: Puts marks around the gaps at which texts are divided: (P,) string to (P,) string.

    Returns:
        The new pieces; `first` is True where a new piece begins an old one.
    """
    new = _split(tf.where(chosen, marked(pieces.texts), pieces.texts))
    gap = tf.where(new.first, tf.gather(pieces.gap, new.owner), new.gap)
    return Pieces(new.texts, tf.gather(pieces.owner, new.owner), gap, new.first)


def _marked_sentences(line: tf.Tensor) -> tf.Tensor:
    """(P,) string to (P,) string: with marks around the white space between two sentences."""
    marked = rb"\1" + _between(rb"\2") + rb"\3"
    return tf.strings.regex_replace(tf.strings.regex_replace(line, _SENTENCE_END, marked), _CJK_SENTENCE_END, marked)


def _marked_words(sentence: tf.Tensor) -> tf.Tensor:
    """(P,) string to (P,) string: with marks around all white space."""
    return tf.strings.regex_replace(sentence, f"[{WHITESPACE}]+", _between(rb"\0"))


def _grouped(words: Pieces, ids: tf.RaggedTensor, size: int) -> Pieces:
    """Joins words of a sentence into groups. A group has at most `size` tokens, plus the tokens of one more word."""
    counts = tf.cast(ids.row_lengths(), tf.int32)
    sentence = tf.cumsum(tf.cast(words.first, tf.int32)) - 1  # (P,)
    begins = tf.gather(places(words.first), sentence)  # the first word of each word's sentence
    before = tf.gather(tf.cumsum(counts, exclusive=True), begins)  # tokens of all sentences before
    group = (tf.cumsum(counts) - before - 1) // max(1, size)
    first = words.first | differs_from_last(group)
    number = tf.cumsum(tf.cast(first, tf.int32)) - 1
    at = places(first)
    texts = tf.strings.unsorted_segment_join(tf.where(first, "", words.gap) + words.texts, number, tf.size(at))
    return Pieces(texts, *(tf.gather(values, at) for values in (words.owner, words.gap, words.first)))


def divided_anywhere(parts: Parts, longest: int) -> Parts:
    """Divides parts between any two tokens into parts of at most `longest` tokens, with blanks as gaps."""
    lengths = tf.cast(parts.ids.row_lengths(), tf.int32)
    shares = tf.maximum(1, -(-lengths // longest))  # (P,)
    sizes = -(-lengths // shares)
    number = numbers(shares)  # (P, None): 0, 1, ... in each part
    owner = tf.cast(row_ids(number), tf.int32)
    number = tf.cast(number.values, tf.int32)
    size = tf.gather(sizes, owner)
    shorter = tf.cast(tf.minimum(size, tf.gather(lengths, owner) - number * size), tf.int64)
    return Parts(
        with_lengths(parts.ids.flat_values, shorter),
        tf.gather(parts.text, owner),
        tf.where(number == 0, tf.gather(parts.gap, owner), " "),
    )
