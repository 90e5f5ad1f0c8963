"""A vocabulary of whole words and punctuation marks, for texts of languages that write blanks between words.

Shapes: B batch, T tokens.
"""

import unicodedata
from collections.abc import Sequence
from typing import ClassVar

import tensorflow as tf

from kformer.tokenizers.offsets import Spans, byte_lengths, given_places, read_characters
from kformer.tokenizers.ragged import join, previous_of, sums_before
from kformer.tokenizers.symbols import SymbolTokenizer
from kformer.tokenizers.text_ops import read_text, tf_text
from kformer.writing_systems import WHITESPACE

_LETTER = r"[\p{L}\p{N}]"
_PATTERNS = (
    r"\p{N}+(?:[.,:]\p{N}+)+",  # 3.50, 1,000, 10:30
    rf"{_LETTER}[\p{{L}}\p{{N}}\p{{M}}]*(?:['’‐‑-]{_LETTER}[\p{{L}}\p{{N}}\p{{M}}]*)*",  # don't, well-known
    r"\p{P}",
    rf"[^\p{{L}}\p{{N}}\p{{P}}{WHITESPACE}]+",  # signs; an emoji may consist of several
)
_TOKEN = "|".join(_PATTERNS)
_TOKEN_OR_BLANKS = f"{_TOKEN}|[{WHITESPACE}]+"

# Marks without a blank before them or after them, beside those that Unicode calls closing (Pe, Pf) or opening (Ps, Pi).
_CLOSING = frozenset(",.;:!?%…'،؛؟،。、！？：；")
_OPENING = frozenset("¿¡")
_QUOTE = '"'


class WordTokenizer(SymbolTokenizer):
    """Splits texts into words and punctuation marks, and gives each an id. The first word has the id 4.

    A word consists of letters and digits, with apostrophes, hyphens or, between digits, `.,:` inside. Every punctuation
    mark is a token of its own, and so is a run of other signs. A word outside the vocabulary gets the unknown id 3,
    which is shown as "⁇". Upper case and lower case are different. Texts are brought into the Unicode form NFC first,
    and lose soft hyphens, zero width spaces and marks of direction (`kformer.writing_systems.MEANINGLESS`).

    `detokenize` puts one blank between tokens, but none before a closing mark and none after an opening one. Straight
    double quotation marks open and close in turn. So `normalize` may change the blanks around punctuation.

    Args:
        symbols: the words and marks, in the order of the ids.

    Raises:
        ValueError: There is no word, or a word is empty, contains white space or occurs twice.

    Examples:
        >>> tokenizer = WordTokenizer(["Hello", "world", ",", "!"])
        >>> tokenizer.tokenize(["Hello , world!", "Hello there!"]).to_list()
        [[4, 6, 5, 7], [4, 3, 7]]
        >>> tokenizer.normalize(["Hello , world!"]).numpy()[0].decode()
        'Hello, world!'
    """

    kind: ClassVar[str] = "words"

    def __init__(self, symbols: Sequence[str]) -> None:
        super().__init__(symbols)
        marks = ("", *self.symbols)  # the first stands for the unknown word, as in `_shown`
        self._closes = [mark in _CLOSING or _category(mark) in ("Pe", "Pf") for mark in marks]
        self._opens = [mark in _OPENING or _category(mark) in ("Ps", "Pi") for mark in marks]
        self._is_quote = [mark == _QUOTE for mark in marks]

    def detokenize(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """See `Tokenizer.detokenize`. The unknown id, and ids outside the vocabulary, are shown as "⁇"."""
        return join(self._with_blanks(self._content(ids)))

    def tokenize_with_offsets(self, text: tf.Tensor) -> Spans:
        words, start, end = _split(text)
        return Spans(self._ids(words), *given_places(read_characters(text), start, end, text))

    def detokenize_with_offsets(self, ids: tf.RaggedTensor) -> tuple[tf.Tensor, Spans]:
        written = self._with_blanks(ids)
        lengths = byte_lengths(written.values)
        end = sums_before(written.with_values(lengths)).values + lengths
        start = end - byte_lengths(self._shown(ids).values)
        return join(written), Spans(ids, ids.with_values(start), ids.with_values(end))

    @staticmethod
    def _split(text: tf.Tensor) -> tf.RaggedTensor:
        return _split(text)[0]

    def _with_blanks(self, ids: tf.RaggedTensor) -> tf.RaggedTensor:
        """(B, None) ids to (B, None) strings: each token with the blank before it, if it has one."""
        numbers = self._numbers(ids)
        is_quote = tf.gather(tf.constant(self._is_quote), numbers.values)
        before = sums_before(numbers.with_values(tf.cast(is_quote, tf.int64)))  # quotation marks before this one
        is_even = before.values % 2 == 0
        closes = tf.gather(tf.constant(self._closes), numbers.values) | (is_quote & ~is_even)
        opens = tf.gather(tf.constant(self._opens), numbers.values) | (is_quote & is_even)
        no_blank_after = tf.ones_like(numbers.row_starts(), tf.bool)  # at the beginning of a text
        attached = closes | previous_of(numbers.with_values(opens), no_blank_after).values
        shown = self._shown(ids)
        return shown.with_values(tf.strings.join([tf.where(attached, "", " "), shown.values]))


def _split(text: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
    """The words and marks of texts (B,), their first bytes in the normalized texts and the first bytes after them."""
    without_nul = tf.strings.regex_replace(read_text(text), r"\x00", "\x01")  # the operation would end at a NUL
    return tf_text.regex_split_with_offsets(without_nul, _TOKEN_OR_BLANKS, _TOKEN)


def _category(mark: str) -> str:
    return unicodedata.category(mark) if len(mark) == 1 else ""
