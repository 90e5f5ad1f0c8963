"""SentencePiece models whose pieces get the ids of another toolkit's vocabulary: Marian, OpenNMT-tf, M2M100.

Shapes: B batch, T tokens.
"""

import json
import pathlib
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import sentencepiece
import tensorflow as tf

from kformer.tokenizers.base import Tokenizer, begins_word
from kformer.tokenizers.offsets import Spans, byte_lengths, decode, given_places, joined_places, valid_characters
from kformer.tokenizers.ragged import find, join, pick, row_ids, sums, with_lengths
from kformer.tokenizers.sentencepiece import MARK_OF_BLANK, MODEL_FILE, read_model
from kformer.tokenizers.text_ops import as_texts, replace_invalid, tf_text

PIECES_FILE = "pieces.json"
_LANGUAGE_CODE = r"^>>(?s:.*?)<<"


class PieceVocabularyTokenizer(Tokenizer):
    """Subwords by a SentencePiece model, with ids from a vocabulary of its own.

    A piece that the vocabulary lacks gets the unknown id. Text that looks like a special piece, such as "</s>", is
    treated as text. Nothing but the model's own normalizer changes a text: it is neither brought into the form NFC nor
    are its blanks collapsed.

    Args:
        model_bytes: a serialized SentencePiece model, with or without special pieces.
        pieces: the vocabulary, in the order of the ids; "" for an id without a piece.
        pad_id, start_id, end_id, unknown_id: the special ids. The start id may be that of padding or of the end.
        first_ids: ids that `tokenize` puts before each text, such as that of its language; not before a text without
            pieces.
        hidden_ids: ids that `detokenize` leaves out, beside the special ones: those of languages, for example.
        reads_language_codes: whether a code such as ">>fr<<" at the beginning of a text is one token, as in Marian.

    Raises:
        ValueError: The bytes are no SentencePiece model, or a special id is outside the vocabulary.
    """

    kind: ClassVar[str] = "piece_vocabulary"

    def __init__(
        self,
        model_bytes: bytes,
        pieces: Sequence[str],
        pad_id: int,
        start_id: int,
        end_id: int,
        unknown_id: int,
        first_ids: Sequence[int] = (),
        hidden_ids: Sequence[int] = (),
        reads_language_codes: bool = False,
    ) -> None:
        super().__init__(name="piece_vocabulary_tokenizer")
        read_model(model_bytes)
        self.model_bytes = model_bytes
        self.pieces = tuple(pieces)
        self.vocab_size = len(self.pieces)
        self.pad_id, self.start_id, self.end_id, self.unknown_id = pad_id, start_id, end_id, unknown_id
        self.first_ids, self.hidden_ids = tuple(first_ids), tuple(hidden_ids)
        self.reads_language_codes = reads_language_codes
        given = (pad_id, start_id, end_id, unknown_id, *self.first_ids, *self.hidden_ids)
        if min(given) < 0 or max(given) >= self.vocab_size:
            raise ValueError(
                f"Special ids must be from 0 to {self.vocab_size - 1}, the last id of the vocabulary. "
                f"Received: {', '.join(map(str, given))}. Pass the ids that the pieces have in the vocabulary."
            )
        # What no model knows comes as a piece, too, which may be written like a special one.
        special = {pad_id, start_id, end_id, unknown_id, *self.first_ids, *self.hidden_ids}
        known = {piece: number for number, piece in enumerate(self.pieces) if piece and number not in special}
        self._table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(tf.constant([*known]), tf.constant([*known.values()], tf.int32)),
            default_value=unknown_id,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.model_bytes, self.pieces, *self._options().values())

    def _options(self) -> dict[str, Any]:
        names = ("pad_id", "start_id", "end_id", "unknown_id", "first_ids", "hidden_ids", "reads_language_codes")
        return {name: getattr(self, name) for name in names}

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        code, rest = self._divided(replace_invalid(as_texts(text)))
        pieces = tf_text.SentencepieceTokenizer(self.model_bytes, out_type=tf.string).tokenize(rest)
        return self._with_first(self._ids(tf.concat([code, pieces], axis=1)), self.first_ids)

    def tokenize_with_offsets(self, text: tf.Tensor) -> Spans:
        """See `Tokenizer.tokenize_with_offsets`. The first ids have no bytes."""
        text = as_texts(text)
        code, rest = self._divided(replace_invalid(text))
        # The operation crashes for a batch of no texts, so there is one more text.
        tokenizer = tf_text.SentencepieceTokenizer(self.model_bytes, out_type=tf.string)
        pieces, *places = tokenizer.tokenize_with_offsets(tf.concat([rest, [""]], axis=0))
        length = code.with_values(byte_lengths(code.values))
        before = sums(length)  # bytes of the code
        start, end = (_moved(tf.cast(place[:-1], tf.int64), before) for place in places)
        starts, ends = tf.concat([tf.zeros_like(length), start], axis=1), tf.concat([length, end], axis=1)
        ids = self._ids(tf.concat([code, pieces[:-1]], axis=1))
        nothing = [0] * len(self.first_ids)
        given = given_places(valid_characters(text), starts, ends, text)
        return Spans(self._with_first(ids, self.first_ids), *(self._with_first(place, nothing) for place in given))

    def detokenize(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """See `Tokenizer.detokenize`. Special and hidden ids, and ids outside the vocabulary, are left out."""
        return _stripped(replace_invalid(join(self._written(self._content(ids)))))

    def detokenize_with_offsets(self, ids: tf.RaggedTensor) -> tuple[tf.Tensor, Spans]:
        joined, *places = joined_places(self._written(ids))
        valid = replace_invalid(joined)
        text, without = _stripped(valid), tf.strings.regex_replace(valid, r"^\s+", "")
        _, first = decode(joined)
        _, valid_first = decode(valid)
        cut, length = byte_lengths(valid) - byte_lengths(without), byte_lengths(text)

        def in_text(place: tf.RaggedTensor) -> tf.RaggedTensor:
            found = _moved(pick(valid_first, find(first, place), byte_lengths(valid)), -cut)
            largest = tf.gather(length, row_ids(found))
            return found.with_values(tf.clip_by_value(found.values, tf.zeros_like(largest), largest))

        return text, Spans(ids, *(in_text(place) for place in places))

    def _divided(self, text: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """The language codes at the beginning of texts, one or none in each row, and the rest of the texts."""
        if not self.reads_language_codes:
            return with_lengths(tf.constant([], tf.string), tf.zeros_like(text, tf.int64)), text
        rest = tf.strings.regex_replace(text, _LANGUAGE_CODE, "", replace_global=False)
        length = byte_lengths(text) - byte_lengths(rest)
        codes = tf.strings.substr(text, tf.zeros_like(length), length)
        return with_lengths(tf.boolean_mask(codes, length > 0), length > 0), rest

    def _ids(self, pieces: tf.RaggedTensor) -> tf.RaggedTensor:
        return pieces.with_values(self._table.lookup(pieces.values))

    @staticmethod
    def _with_first(rows: tf.RaggedTensor, values: Sequence[int]) -> tf.RaggedTensor:
        """(B, None) integers, with values before each row that is not empty."""
        if not values:
            return rows
        lengths = len(values) * tf.cast(rows.row_lengths() > 0, tf.int64)
        firsts = tf.tile(tf.constant(values, rows.dtype), [tf.math.count_nonzero(lengths)])
        return tf.concat([with_lengths(firsts, lengths), rows], axis=1)

    def _written(self, ids: tf.RaggedTensor) -> tf.RaggedTensor:
        """The text that each id is written as; for special, hidden and unknown ids it is empty."""
        processor = read_model(self.model_bytes)
        written = tf.constant([_text_of(processor, piece) for piece in self._shown_pieces()])
        known = (ids.values >= 0) & (ids.values < self.vocab_size)
        return ids.with_values(tf.gather(written, tf.where(known, ids.values, self.pad_id)))

    def _shown_pieces(self) -> list[str]:
        """The piece of each id; for special and hidden ids it is empty."""
        hidden = {self.pad_id, self.start_id, self.end_id, self.unknown_id, *self.first_ids, *self.hidden_ids}
        return ["" if number in hidden else piece for number, piece in enumerate(self.pieces)]

    def has_ids_of(self, other: Tokenizer) -> bool:
        return isinstance(other, PieceVocabularyTokenizer) and self.pieces == other.pieces

    def fallback_ids(self) -> list[int]:
        return [self.unknown_id]

    def spellings(self) -> list[tuple[str, ...]]:
        """See `Tokenizer.spellings`. A piece that begins a word is written with SentencePiece's mark, or without it."""
        return [
            tuple(filter(None, dict.fromkeys((piece, piece.removeprefix(MARK_OF_BLANK)))))
            for piece in self._shown_pieces()
        ]

    def word_starts(self) -> np.ndarray:
        """See `Tokenizer.word_starts`. A piece that begins a word begins with SentencePiece's mark of a blank."""
        return np.array([begins_word(piece.replace(MARK_OF_BLANK, " ")) for piece in self._shown_pieces()])

    def write_files(self, directory: pathlib.Path) -> dict[str, Any]:
        (directory / MODEL_FILE).write_bytes(self.model_bytes)
        text = json.dumps(self.pieces, ensure_ascii=False, indent=0) + "\n"
        (directory / PIECES_FILE).write_text(text, encoding="utf-8")
        return self._options()

    @classmethod
    def read_files(cls, directory: pathlib.Path, description: dict[str, Any]) -> Self:
        options = {name: value for name, value in description.items() if name != "kind"}
        pieces = json.loads((directory / PIECES_FILE).read_text(encoding="utf-8"))
        return cls((directory / MODEL_FILE).read_bytes(), pieces, **options)


def _stripped(text: tf.Tensor) -> tf.Tensor:
    """(B,) string to (B,) string, without white space at the ends."""
    return tf.strings.regex_replace(text, r"^\s+|\s+$", "")


def _moved(places: tf.RaggedTensor, distance: tf.Tensor) -> tf.RaggedTensor:
    """Places in texts, each text's moved by its own distance, (B,) int64."""
    return places.with_values(places.values + tf.gather(distance, row_ids(places)))


def _text_of(processor: sentencepiece.SentencePieceProcessor, piece: str) -> bytes:
    """What SentencePiece writes for a piece: a piece that the model does not know is written as it is."""
    number = processor.piece_to_id(piece)
    if processor.is_byte(number):
        return bytes([int(piece[1:-1], 16)])
    return b"" if processor.is_control(number) else piece.replace(MARK_OF_BLANK, " ").encode()
