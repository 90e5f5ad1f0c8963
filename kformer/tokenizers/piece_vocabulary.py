"""SentencePiece models whose pieces get the ids of another toolkit's vocabulary: Marian, OpenNMT-tf, M2M100.

Shapes: B batch, T tokens.
"""

import json
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import sentencepiece
import tensorflow as tf

from kformer.tokenizers.base import Tokenizer, begins_word
from kformer.tokenizers.offsets import Spans, byte_lengths, given_places, moved, trimmed_places, valid_characters
from kformer.tokenizers.ragged import join, sums, with_first, with_lengths
from kformer.tokenizers.sentencepiece import MODEL_FILE, read_model
from kformer.tokenizers.sentencepiece_proto import MARK_OF_BLANK, read_pieces, without_dummy_prefix
from kformer.tokenizers.subword_sampling import Subwords
from kformer.tokenizers.text_ops import as_texts, replace_invalid, tf_text, trimmed

PIECES_FILE = "pieces.json"
_LANGUAGE_CODE = r">>.*?<<"  # within a line


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
        last_ids: ids that follow each source, in place of the end id alone; None: the end id.
        hidden_ids: ids that `detokenize` leaves out, beside the special ones: those of languages, for example.
        unknown_text: what `detokenize` writes for the unknown id: nothing in transformers, " ⁇ " in SentencePiece.
        reads_language_codes: whether a code such as ">>fr<<" at the beginning of a text is one token, as in Marian.

    Raises:
        ValueError: The bytes are no SentencePiece model, or a special id is outside the vocabulary.

    Examples:
        >>> model = SentencePieceTokenizer.train(["low lower lowest"], vocab_size=271).model_bytes
        >>> pieces = ["</s>", "<unk>", "▁low", "e", "<pad>"]  # padding also stands for the start
        >>> tokenizer = PieceVocabularyTokenizer(model, pieces, pad_id=4, start_id=4, end_id=0, unknown_id=1)
        >>> tokenizer.tokenize(["low", "lower"]).to_list()
        [[2], [2, 3, 1]]
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
        last_ids: Sequence[int] | None = None,
        hidden_ids: Sequence[int] = (),
        unknown_text: str = "",
        reads_language_codes: bool = False,
    ) -> None:
        super().__init__(name="piece_vocabulary_tokenizer")
        read_model(model_bytes)
        self.model_bytes = model_bytes
        self.pieces = tuple(pieces)
        self.vocab_size = len(self.pieces)
        self.pad_id, self.start_id, self.end_id, self.unknown_id = pad_id, start_id, end_id, unknown_id
        self.first_ids, self.hidden_ids = tuple(first_ids), tuple(hidden_ids)
        self.last_ids = (end_id,) if last_ids is None else tuple(last_ids)
        self.unknown_text = unknown_text
        self.reads_language_codes = reads_language_codes
        check_ids(self.special_ids(), self.vocab_size)
        # What no model knows comes as a piece, too, which may be written like a special one.
        special = self.special_ids()
        known = {piece: number for number, piece in enumerate(self.pieces) if piece and number not in special}
        self._table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(tf.constant([*known]), tf.constant([*known.values()], tf.int32)),
            default_value=unknown_id,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.model_bytes, self.pieces, *self._options().values())

    def _options(self) -> dict[str, Any]:
        names = ("pad_id", "start_id", "end_id", "unknown_id", "first_ids", "last_ids", "hidden_ids")
        return {name: getattr(self, name) for name in (*names, "unknown_text", "reads_language_codes")}

    @property
    def closing_ids(self) -> tuple[int, ...]:
        return self.last_ids

    @property
    def tag_pattern(self) -> str | None:
        return _LANGUAGE_CODE if self.reads_language_codes else None

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        code, rest = self._divided(replace_invalid(as_texts(text)))
        pieces = tf_text.SentencepieceTokenizer(self.model_bytes, out_type=tf.string).tokenize(rest)
        return with_first(self._ids(tf.concat([code, pieces], axis=1)), self.first_ids)

    def tokenize_with_offsets(self, text: tf.Tensor) -> Spans:
        """See `Tokenizer.tokenize_with_offsets`. The first ids have no bytes."""
        text = as_texts(text)
        code, rest = self._divided(replace_invalid(text))
        # The operation crashes for a batch of no texts, so there is one more text.
        tokenizer = tf_text.SentencepieceTokenizer(self.model_bytes, out_type=tf.string)
        pieces, *places = tokenizer.tokenize_with_offsets(tf.concat([rest, [""]], axis=0))
        length = code.with_values(byte_lengths(code.values))
        before = sums(length)  # bytes of the code
        start, end = (moved(tf.cast(place[:-1], tf.int64), before) for place in places)
        starts, ends = tf.concat([tf.zeros_like(length), start], axis=1), tf.concat([length, end], axis=1)
        ids = self._ids(tf.concat([code, pieces[:-1]], axis=1))
        nothing = [0] * len(self.first_ids)
        given = given_places(valid_characters(text), starts, ends, text)
        return Spans(with_first(ids, self.first_ids), *(with_first(place, nothing) for place in given))

    def detokenize(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """See `Tokenizer.detokenize`. Special and hidden ids, and ids outside the vocabulary, are left out."""
        return trimmed(self._joined(ids))

    def detokenize_with_offsets(self, ids: tf.RaggedTensor) -> tuple[tf.Tensor, Spans]:
        text, *places = trimmed_places(self._written(ids))
        return text, Spans(ids, *places)

    def _joined(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """As `detokenize`, with all blanks."""
        return replace_invalid(join(self._written(self._content(ids))))

    def _divided(self, text: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """The language codes at the beginning of texts, one or none in each row, and the rest of the texts."""
        if not self.reads_language_codes:
            return with_lengths(tf.constant([], tf.string), tf.zeros_like(text, tf.int64)), text
        rest = tf.strings.regex_replace(text, f"^{_LANGUAGE_CODE}", "", replace_global=False)
        length = byte_lengths(text) - byte_lengths(rest)
        codes = tf.strings.substr(text, tf.zeros_like(length), length)
        return with_lengths(tf.boolean_mask(codes, length > 0), length > 0), rest

    def _ids(self, pieces: tf.RaggedTensor) -> tf.RaggedTensor:
        return pieces.with_values(self._table.lookup(pieces.values))

    def _written(self, ids: tf.RaggedTensor) -> tf.RaggedTensor:
        """The text that each id is written as; for special, hidden and unknown ids it is empty."""
        processor = read_model(self.model_bytes)
        texts = [_text_of(processor, piece) for piece in self._shown_pieces()]
        texts[self.unknown_id] = self.unknown_text.encode()
        known = (ids.values >= 0) & (ids.values < self.vocab_size)
        return ids.with_values(tf.gather(tf.constant(texts), tf.where(known, ids.values, self.pad_id)))

    def _shown_pieces(self) -> list[str]:
        """The piece of each id; for special and hidden ids it is empty."""
        hidden = self.special_ids()
        return ["" if number in hidden else piece for number, piece in enumerate(self.pieces)]

    def has_ids_of(self, other: Tokenizer) -> bool:
        return isinstance(other, PieceVocabularyTokenizer) and self.pieces == other.pieces

    def special_ids(self) -> frozenset[int]:
        return super().special_ids() | {*self.first_ids, *self.last_ids, *self.hidden_ids}

    def spellings(self) -> list[tuple[str, ...]]:
        """See `Tokenizer.spellings`. A piece that begins a word is written with SentencePiece's mark, or without it."""
        return [
            tuple(filter(None, dict.fromkeys((piece, piece.removeprefix(MARK_OF_BLANK)))))
            for piece in self._shown_pieces()
        ]

    def tokens(self) -> list[str]:
        """See `Tokenizer.tokens`. An id without a piece is named by its number."""
        return [piece or f"<{number}>" for number, piece in enumerate(self.pieces)]

    def word_starts(self) -> np.ndarray:
        """See `Tokenizer.word_starts`. A piece that begins a word begins with SentencePiece's mark of a blank."""
        return np.array([begins_word(piece.replace(MARK_OF_BLANK, " ")) for piece in self._shown_pieces()])

    def subwords(self) -> Subwords:
        """See `Tokenizer.subwords`. A piece of the model that the vocabulary lacks is not used."""
        kind, texts, scores = read_pieces(self.model_bytes)
        score_of = dict(zip(texts, scores, strict=True))
        shown = [piece if piece in score_of else "" for piece in self._shown_pieces()]
        return Subwords(kind, tuple(shown), tuple(score_of.get(piece, 0.0) for piece in shown))

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


def check_ids(special: Iterable[int], vocab_size: int) -> None:
    """Refuses special ids outside the vocabulary.

    Raises:
        ValueError: There is one.
    """
    outside = [number for number in special if not 0 <= number < vocab_size]
    if outside:
        raise ValueError(
            f"Special ids must be from 0 to {vocab_size - 1}, the last id of the vocabulary. "
            f"Received: {', '.join(map(str, outside))}. Pass the ids that the pieces have in the vocabulary."
        )


class LlamaTokenizer(PieceVocabularyTokenizer):
    """Subwords by a SentencePiece model, with the blanks of the text, as Llama and Mistral have them.

    A blank is put before a text that does not begin with one, and `detokenize` leaves out the first one. Other blanks
    stay as they are, also those at the end of a text, which a language model continues.

    Args:
        model_bytes, pieces, pad_id, start_id, end_id, unknown_id: see `PieceVocabularyTokenizer`.
        has_start: see `Tokenizer`.

    Raises:
        ValueError: As `PieceVocabularyTokenizer`, or the model removes blanks.

    Examples:
        >>> tokenizer = load_tokenizer("runs/llama/tokenizers/shared")  # doctest: +SKIP
        >>> tokenizer.normalize(["two  blanks "]).numpy().tolist()  # doctest: +SKIP
        [b'two  blanks ']
    """

    kind: ClassVar[str] = "llama"

    def __init__(
        self,
        model_bytes: bytes,
        pieces: Sequence[str],
        pad_id: int,
        start_id: int,
        end_id: int,
        unknown_id: int,
        has_start: bool = True,
    ) -> None:
        super().__init__(model_bytes, pieces, pad_id, start_id, end_id, unknown_id)
        self.has_start = has_start
        self._plain_model = without_dummy_prefix(model_bytes)
        pieces_of_blanks = read_model(self._plain_model).encode("  ", out_type=str)
        if "".join(pieces_of_blanks) != 2 * MARK_OF_BLANK:
            raise ValueError(
                f"The SentencePiece model reads two blanks as {pieces_of_blanks}. Expected: a model that keeps blanks, "
                "trained with remove_extra_whitespaces=false."
            )

    def _options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("pad_id", "start_id", "end_id", "unknown_id", "has_start")}

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        begun = tf.strings.regex_replace(replace_invalid(as_texts(text)), f"^([^ {MARK_OF_BLANK}])", r" \1")
        return self._ids(tf_text.SentencepieceTokenizer(self._plain_model, out_type=tf.string).tokenize(begun))

    def detokenize(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """See `Tokenizer.detokenize`. Special ids, and ids outside the vocabulary, are left out."""
        return tf.strings.regex_replace(self._joined(ids), "^ ", "")


def _text_of(processor: sentencepiece.SentencePieceProcessor, piece: str) -> bytes:
    """What SentencePiece writes for a piece: a piece that the model does not know is written as it is."""
    number = processor.piece_to_id(piece)
    if processor.is_byte(number):
        return bytes([int(piece[1:-1], 16)])
    return b"" if processor.is_control(number) else piece.replace(MARK_OF_BLANK, " ").encode()
