"""Byte pair encoding of bytes, as GPT-2 and its successors have it (Radford et al. 2019, section 2.2).

Shapes: B texts, W words, N symbols.
"""

import json
import pathlib
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import tensorflow as tf

from kformer.tokenizers.base import Tokenizer, begins_word
from kformer.tokenizers.offsets import (
    Spans,
    byte_lengths,
    decode,
    given_places,
    trimmed_places,
    valid_characters,
)
from kformer.tokenizers.piece_vocabulary import PIECES_FILE
from kformer.tokenizers.ragged import (
    in_rows,
    join,
    kept,
    next_of,
    previous_of,
    row_ids,
    sums_before,
    with_first,
    with_lengths,
)
from kformer.tokenizers.text_ops import as_texts, replace_invalid, tf_text, trimmed
from kformer.writing_systems import WHITESPACE

MERGES_FILE = "merges.json"
_SPACE = WHITESPACE.replace("\ufeff", "")  # a byte order mark is no white space for GPT-2
# GPT-2's words. Its own expression also has `\s+(?!\S)`, which TensorFlow's expressions cannot have: see `_segments`.
_WORD = rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}+| ?\p{{N}}+| ?[^{_SPACE}\p{{L}}\p{{N}}]+|[{_SPACE}]+"
_RUN = f"[{_SPACE}]+"


def byte_characters() -> list[str]:
    """The character that stands for each byte in the files of a vocabulary: printable ones stand for themselves.

    Examples:
        >>> byte_characters()[ord("a")], byte_characters()[ord(" ")]
        ('a', 'Ġ')
    """
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


class ByteBPETokenizer(Tokenizer):
    """Subwords of bytes: a text is divided into words with the blanks before them, and of their bytes pairs are merged.

    No text is unknown or changed, but a NUL character is read as U+FFFD. Text that looks like a special piece, such as
    "<|endoftext|>", is treated as text.

    Args:
        pieces: the vocabulary, in the order of the ids; the bytes are written as `byte_characters`. "" for an id
            without a piece.
        merges: the pairs of pieces that become one, the first ones first.
        pad_id, start_id, end_id: the special ids. The start id may be the end id.
        hidden_ids: ids that no text gets and that `detokenize` leaves out, beside the special ones.
        has_start: see `Tokenizer`. In GPT-2 a text begins with its own first token.
        first_ids: ids that `tokenize` puts before each text, such as that of "<s>" in BART; not before a text without
            bytes. `detokenize` leaves them out.
        trims_ends: whether `detokenize` leaves out white space at the ends of a text, as translators do.

    Raises:
        ValueError: A special id is outside the vocabulary; or a byte, or a piece of a merge, is not in it.

    Examples:
        >>> from kformer.tokenizers.byte_bpe import byte_characters
        >>> pieces = [*byte_characters(), "an", "Ġan", "<pad>", "<end>"]
        >>> tokenizer = ByteBPETokenizer(pieces, ["a n", "Ġ an"], pad_id=258, start_id=259, end_id=259)
        >>> tokenizer.tokenize(["banana an"]).to_list()
        [[98, 256, 256, 97, 257]]
    """

    kind: ClassVar[str] = "byte_bpe"

    def __init__(
        self,
        pieces: Sequence[str],
        merges: Sequence[str],
        pad_id: int,
        start_id: int,
        end_id: int,
        hidden_ids: Sequence[int] = (),
        has_start: bool = False,
        first_ids: Sequence[int] = (),
        trims_ends: bool = False,
    ) -> None:
        super().__init__(name="byte_bpe_tokenizer")
        self.pieces, self.merges = tuple(pieces), tuple(dict.fromkeys(merges))  # of equal merges, the first one counts
        self.vocab_size = len(self.pieces)
        self.pad_id, self.start_id, self.end_id, self.hidden_ids = pad_id, start_id, end_id, tuple(hidden_ids)
        self.unknown_id = pad_id  # every byte is known, so no id stands for unknown text
        self.has_start, self.first_ids, self.trims_ends = has_start, tuple(first_ids), trims_ends
        given = (pad_id, start_id, end_id, *self.hidden_ids, *self.first_ids)
        if min(given) < 0 or max(given) >= self.vocab_size:
            raise ValueError(
                f"Special ids must be from 0 to {self.vocab_size - 1}, the last id of the vocabulary. "
                f"Received: {', '.join(map(str, given))}. Pass the ids that the pieces have in the vocabulary."
            )
        known = {piece: number for number, piece in enumerate(self.pieces) if piece}
        self._byte_ids = np.array([_id_of(character, known) for character in byte_characters()], np.int32)
        pairs = [_pair(merge, known) for merge in self.merges]
        self._merged_ids = np.array([merged for _, _, merged in pairs] + [0], np.int32)  # one more, for no merge
        self._ranks = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                # The last key is that of no pair: a table cannot be empty.
                tf.constant([left * self.vocab_size + right for left, right, _ in pairs] + [-1], tf.int64),
                tf.range(len(pairs) + 1),
            ),
            default_value=len(pairs),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.pieces, self.merges, *self._options().values())

    def _options(self) -> dict[str, Any]:
        names = ("pad_id", "start_id", "end_id", "hidden_ids", "has_start", "first_ids", "trims_ends")
        return {name: getattr(self, name) for name in names}

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        return with_first(self._ids_of(_readable(as_texts(text))), self.first_ids)

    def tokenize_with_offsets(self, text: tf.Tensor) -> Spans:
        """See `Tokenizer.tokenize_with_offsets`. The first ids have no bytes."""
        text = as_texts(text)
        readable = _readable(text)
        ids = self._ids_of(readable)
        lengths = np.array([len(written) for written in self._bytes()], np.int64)
        length = tf.gather(tf.constant(lengths), ids.values)
        start = sums_before(ids.with_values(length))
        _, begins = decode(readable)  # has the characters of the given text
        characters = valid_characters(text)._replace(start=begins)
        places = given_places(characters, start, start.with_values(start.values + length), text)
        nothing = [0] * len(self.first_ids)
        return Spans(with_first(ids, self.first_ids), *(with_first(place, nothing) for place in places))

    def _ids_of(self, text: tf.Tensor) -> tf.RaggedTensor:
        """(B,) string to (B, None) int32, without first ids."""
        segments = _segments(text)
        words = _split(segments.values, _WORD)
        different, place = tf.unique(words.values, tf.int64)
        ids = tf.gather(self._ids(different), place)  # (W, None)
        rows = tf.gather(row_ids(segments), tf.gather(row_ids(words), row_ids(ids)))
        return in_rows(ids.values, rows, tf.size(text))

    def _ids(self, words: tf.Tensor) -> tf.RaggedTensor:
        """(W,) string to (W, None) int32: every word by itself."""
        lengths = byte_lengths(words)
        data = tf.cast(tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8), tf.int32)
        symbols = tf.gather(tf.constant(self._byte_ids), data)
        rows = row_ids(with_lengths(symbols, lengths))
        state = symbols, rows, self._ranks_of(symbols, rows)
        shapes = (tf.TensorShape([None]),) * 3
        symbols, rows, _ = tf.while_loop(self._has_merge, self._merge, state, shapes, parallel_iterations=1)
        return in_rows(symbols, rows, tf.size(words))

    def _ranks_of(self, symbols: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """The rank of the merge of each of N symbols and the next one; the number of merges where there is none."""
        left, right = tf.cast(symbols[:-1], tf.int64), tf.cast(symbols[1:], tf.int64)
        ranks = self._ranks.lookup(left * self.vocab_size + right)
        ranks = tf.where(rows[:-1] == rows[1:], ranks, len(self.merges))
        return tf.concat([ranks, tf.fill([tf.minimum(tf.size(symbols), 1)], len(self.merges))], axis=0)

    def _has_merge(self, symbols: tf.Tensor, rows: tf.Tensor, ranks: tf.Tensor) -> tf.Tensor:
        return tf.reduce_any(ranks < len(self.merges))

    def _merge(self, symbols: tf.Tensor, rows: tf.Tensor, ranks: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Merges, in each word, all pairs of the lowest rank."""
        least = tf.math.unsorted_segment_min(ranks, rows, rows[-1] + 1)  # (W,)
        is_chosen = (ranks < len(self.merges)) & (ranks == tf.gather(least, rows))
        is_chosen &= _is_even(is_chosen)
        symbols = tf.where(is_chosen, tf.gather(tf.constant(self._merged_ids), ranks), symbols)
        stays = ~tf.roll(is_chosen, 1, axis=0)  # the last symbol of all begins no pair
        symbols, rows = tf.boolean_mask(symbols, stays), tf.boolean_mask(rows, stays)
        return symbols, rows, self._ranks_of(symbols, rows)

    def detokenize(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """See `Tokenizer.detokenize`. Special and hidden ids, and ids outside the vocabulary, are left out."""
        text = replace_invalid(join(self._written(self._content(ids))))
        return trimmed(text) if self.trims_ends else text

    def detokenize_with_offsets(self, ids: tf.RaggedTensor) -> tuple[tf.Tensor, Spans]:
        """See `Tokenizer.detokenize_with_offsets`. Only a tokenizer that trims the ends of texts can do so."""
        if not self.trims_ends:
            return super().detokenize_with_offsets(ids)
        text, *places = trimmed_places(self._written(ids))
        return text, Spans(ids, *places)

    def _written(self, ids: tf.RaggedTensor) -> tf.RaggedTensor:
        """The bytes that each id is written as; none for ids outside the vocabulary."""
        known = (ids.values >= 0) & (ids.values < self.vocab_size)
        return ids.with_values(tf.gather(tf.constant(self._bytes()), tf.where(known, ids.values, self.end_id)))

    def _bytes(self) -> list[bytes]:
        """The bytes that each id stands for; none for special and hidden ids."""
        hidden = {self.pad_id, self.start_id, self.end_id, *self.hidden_ids, *self.first_ids}
        byte_of = {character: byte for byte, character in enumerate(byte_characters())}
        return [b"" if number in hidden else _bytes_of(piece, byte_of) for number, piece in enumerate(self.pieces)]

    def special_ids(self) -> frozenset[int]:
        return super().special_ids() | {*self.hidden_ids, *self.first_ids}

    def has_ids_of(self, other: Tokenizer) -> bool:
        return isinstance(other, ByteBPETokenizer) and self.pieces == other.pieces

    def fallback_ids(self) -> list[int]:
        """The ids of single bytes that are no ASCII characters."""
        return [int(number) for number in self._byte_ids[128:]]

    def spellings(self) -> list[tuple[str, ...]]:
        """See `Tokenizer.spellings`. A piece that begins a word is written with a blank, or without it."""
        texts = [written.decode("utf-8", "ignore") for written in self._bytes()]
        return [tuple(filter(None, dict.fromkeys((text, text.removeprefix(" "))))) for text in texts]

    def word_starts(self) -> np.ndarray:
        return np.array([begins_word(written.decode("utf-8", "ignore")) for written in self._bytes()])

    def write_files(self, directory: pathlib.Path) -> dict[str, Any]:
        for name, content in ((PIECES_FILE, self.pieces), (MERGES_FILE, self.merges)):
            text = json.dumps(content, ensure_ascii=False, indent=0) + "\n"
            (directory / name).write_text(text, encoding="utf-8")
        return self._options()

    @classmethod
    def read_files(cls, directory: pathlib.Path, description: dict[str, Any]) -> Self:
        options = {name: value for name, value in description.items() if name != "kind"}
        contents = (json.loads((directory / name).read_text(encoding="utf-8")) for name in (PIECES_FILE, MERGES_FILE))
        return cls(*contents, **options)


def _id_of(piece: str, known: dict[str, int]) -> int:
    if piece not in known:
        raise ValueError(
            f"The vocabulary has no piece {piece!r}, which a text may need. Expected: a piece for every byte, and for "
            "every merge its parts and what they become. Pass pieces and merges of one vocabulary."
        )
    return known[piece]


def _pair(merge: str, known: dict[str, int]) -> tuple[int, int, int]:
    """The ids of the two pieces of a merge, and of what they become."""
    left, _, right = merge.partition(" ")
    return _id_of(left, known), _id_of(right, known), _id_of(left + right, known)


def _bytes_of(piece: str, byte_of: dict[str, int]) -> bytes:
    """The bytes of a piece. One with other characters was added to the vocabulary as plain text."""
    if all(character in byte_of for character in piece):
        return bytes(byte_of[character] for character in piece)
    return piece.encode("utf-8", "replace")


def _readable(text: tf.Tensor) -> tf.Tensor:
    """(B,) string to (B,) string: valid UTF-8 without NUL, which would end a text. No character is left out."""
    return tf.strings.regex_replace(replace_invalid(text), r"\x00", "\ufffd")


def _split(text: tf.Tensor, pattern: str) -> tf.RaggedTensor:
    """All matches of an expression, and what stands between them: (B,) string to (B, None) string."""
    return tf_text.regex_split(text, pattern, pattern)


def _segments(text: tf.Tensor) -> tf.RaggedTensor:
    """Divides texts before the last character of each run of white space that something follows.

    So a run is a segment without this character, which stands before what follows: `\\s+(?!\\S)` in GPT-2's expression.
    """
    parts = _split(text, _RUN)
    is_end = next_of(parts, tf.fill([tf.size(text)], "")).values == ""
    is_divided = tf.strings.regex_full_match(parts.values, _RUN) & ~is_end
    last = tf.where(is_divided, tf.strings.regex_replace(parts.values, r"^(?s:.*(.))$", r"\1"), "")
    rest = tf.where(is_divided, tf.strings.regex_replace(parts.values, r"(?s:.)$", ""), parts.values)
    before = previous_of(parts.with_values(last), tf.fill([tf.size(text)], ""))
    segments = before.values + rest
    return kept(parts.with_values(segments), segments != "")


def _is_even(flags: tf.Tensor) -> tf.Tensor:
    """(N,) bool: in each run of True, whether an even number of them stands before. Elsewhere it means nothing."""
    places = tf.range(tf.size(flags))
    begins = flags & ~tf.concat([[False], flags[:-1]], axis=0)
    first = tf.squeeze(tf.where(begins), 1)
    run = tf.maximum(tf.cumsum(tf.cast(begins, tf.int32)) - 1, 0)
    return (places - tf.cast(tf.gather(first, run), tf.int32)) % 2 == 0
