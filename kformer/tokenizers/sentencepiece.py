"""Subwords by SentencePiece: byte pair encoding or a unigram language model. Rare characters are written as bytes.

Shapes: B batch, T tokens.
"""

import functools
import io
import itertools
import pathlib
import random
import re
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, ClassVar, Self

import numpy as np
import sentencepiece
import tensorflow as tf

from kformer.files.writing import temporary_folder
from kformer.tokenizers.base import END_ID, NUM_SPECIAL_IDS, PAD_ID, START_ID, UNKNOWN_ID, Tokenizer, begins_word
from kformer.tokenizers.offsets import (
    Spans,
    byte_lengths,
    decode,
    given_places,
    joined_places,
    normalized_characters,
    read_characters,
    with_every_bad_byte_replaced,
)
from kformer.tokenizers.ragged import find, kept, next_of, pick, previous_of
from kformer.tokenizers.sentencepiece_proto import MARK_OF_BLANK, is_bpe, read_pieces, without_rule_files
from kformer.tokenizers.subword_sampling import Subwords
from kformer.tokenizers.text_ops import as_texts, batches_of_bytes, normalize_text, read_text, tf_text, traced
from kformer.tokenizers.word_ids import WordIds

MODEL_TYPES = ("bpe", "unigram")
MODEL_FILE = "model.spm"
MOST_TEXTS = 1_000_000  # that a vocabulary is learned from
_SMALLEST_VOCABULARY = NUM_SPECIAL_IDS + 256 + 1  # the special ids, one piece for each byte, one character

# SentencePiece writes a blank as U+2581, so a U+2581 in a text would come back as a blank. The first rules replace it
# by the noncharacter U+FDD0 and a digit, the second ones restore it. They consist of code points: source TAB target.
_ESCAPE_RULES = "2581\tFDD0 31\nFDD0\tFDD0 30\n"
_UNESCAPE_RULES = "FDD0 31\t2581\nFDD0 30\tFDD0\n"
_MARK = 0xFDD0
_SPECIAL = re.compile(r"<(pad|s|/s|unk|0x[0-9A-F]{2})>")
_UNKNOWN = " ⁇ "  # how SentencePiece writes the unknown piece


class SentencePieceTokenizer(Tokenizer):
    """Subwords by a SentencePiece model (Kudo and Richardson, 2018).

    A tokenizer that `train` made changes texts only in their Unicode form and their white space: `normalize` returns
    the form NFC, with one blank for each run of white space and no blank at the ends, and without soft hyphens, zero
    width spaces and marks of direction (`kformer.writing_systems.MEANINGLESS`). A text of invisible characters alone
    has no token. Characters outside the vocabulary are written as bytes. Text that looks like a special piece, such as
    "<s>" or "<0x41>", is treated as text.

    Args:
        model_bytes: a serialized SentencePiece model with pad, start (bos), end (eos) and unknown pieces. If it was
            trained elsewhere, its own normalizer may change texts further.

    Raises:
        ValueError: The bytes are not such a model.

    Examples:
        >>> tokenizer = SentencePieceTokenizer.train(["low lower lowest"], vocab_size=271)
        >>> tokenizer.tokenize(["low", "lower"]).row_lengths().numpy().tolist()  # low; low, e, r
        [1, 3]
        >>> tokenizer.normalize(["  slow   ñandú "]).numpy()[0].decode()  # new characters are written as bytes
        'slow ñandú'
    """

    kind: ClassVar[str] = "sentencepiece"

    def __init__(self, model_bytes: bytes) -> None:
        super().__init__(name="sentencepiece_tokenizer")
        processor = read_model(model_bytes)
        special = {"pad": processor.pad_id(), "bos": processor.bos_id(), "eos": processor.eos_id()}
        missing = [name for name, piece_id in special.items() if piece_id < 0]
        if missing:
            raise ValueError(
                f"The SentencePiece model has no {', '.join(missing)} piece. kformer needs pad, bos and eos: train the "
                "model with SentencePieceTokenizer.train, or with --pad_id=0 --bos_id=1 --eos_id=2 --unk_id=3."
            )
        self.pad_id, self.start_id, self.end_id = special.values()
        self.unknown_id = processor.unk_id()
        self.vocab_size = processor.vocab_size()
        self.model_bytes = model_bytes
        # An operation inside these graphs loads the model. A model that is loaded outside belongs to TensorFlow's cache
        # of eager kernels. tf.random.set_seed empties that cache, and the tokenizer would fail from then on.
        self._tokenize, self._detokenize = traced(self._tokenize_in_graph, self._detokenize_in_graph)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.model_bytes,)

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        return self._tokenize(as_texts(text))

    def ids_of(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """See `Tokenizer.ids_of`. A model of byte pairs that `train` made divides each word only once."""
        return super().ids_of(texts) if self._word_ids is None else self._word_ids.ids_of(texts)

    @functools.cached_property
    def _word_ids(self) -> WordIds | None:
        """Remembers the ids of words; None: a text may have other ids than its words.

        `train` divides texts into words before it merges bytes, so no piece of its models reaches beyond a word. The
        pieces of byte pairs then depend on their word alone. Of a unigram model, the scores of a whole text are added
        up, and their rounding may decide between two ways to divide a word.
        """
        return WordIds(super().ids_of) if is_bpe(self.model_bytes) and self._escapes else None

    def detokenize(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """See `Tokenizer.detokenize`. The unknown id, and ids outside the vocabulary, are shown as "⁇"."""
        return self._detokenize(self._content(ids))

    def _tokenize_in_graph(self, text: tf.Tensor) -> tf.RaggedTensor:
        return tf_text.SentencepieceTokenizer(self.model_bytes, out_type=tf.int32).tokenize(read_text(text))

    def _detokenize_in_graph(self, ids: tf.RaggedTensor) -> tf.Tensor:
        values = ids.flat_values
        known = (values >= 0) & (values < self.vocab_size)
        ids = ids.with_flat_values(tf.where(known, values, self.unknown_id))
        text = tf_text.SentencepieceTokenizer(self.model_bytes, out_type=tf.int32).detokenize(ids)
        return normalize_text(text)  # because any sequence of ids may spell double blanks or decomposed characters

    def tokenize_with_offsets(self, text: tf.Tensor) -> Spans:
        tokenizer = tf_text.SentencepieceTokenizer(self.model_bytes, out_type=tf.int32)
        ids, start, end = tokenizer.tokenize_with_offsets(read_text(as_texts(text)))
        start, end = (tf.cast(place, tf.int64) for place in (start, end))
        return Spans(ids, *given_places(read_characters(text), start, end, text))

    def detokenize_with_offsets(self, ids: tf.RaggedTensor) -> tuple[tf.Tensor, Spans]:
        pieces = ids.with_flat_values(tf.gather(tf.constant(self._written_pieces()), ids.flat_values))
        joined, start, end = joined_places(pieces)
        # The same steps as in SentencePiece and `detokenize`, but with the places of all characters.
        valid, first, origin = with_every_bad_byte_replaced(joined)
        if self._escapes:
            valid, first, origin = _unescaped(valid, origin)
        characters = normalized_characters(valid)
        past_end = byte_lengths(joined)
        given = pick(origin, find(first, characters.given_start), past_end)  # places in `joined`
        text = self.detokenize(ids)
        places = (pick(characters.start, find(given, place), byte_lengths(text)) for place in (start, end))
        return text, Spans(ids, *places)

    def _written_pieces(self) -> list[bytes]:
        """The text that each id is written as; for special ids it is empty."""
        processor = sentencepiece.SentencePieceProcessor(model_proto=self.model_bytes)
        written = []
        for piece_id in range(self.vocab_size):
            piece = processor.id_to_piece(piece_id)
            if processor.is_byte(piece_id):
                written.append(bytes([int(piece[1:-1], 16)]))
            elif processor.is_unknown(piece_id):
                written.append(_UNKNOWN.encode())
            else:
                written.append(b"" if processor.is_control(piece_id) else piece.replace(MARK_OF_BLANK, " ").encode())
        return written

    @property
    def _escapes(self) -> bool:
        """Whether the model writes U+2581 as a noncharacter and a digit, as those of `train` do."""
        processor = sentencepiece.SentencePieceProcessor(model_proto=self.model_bytes)
        return MARK_OF_BLANK in processor.decode(processor.encode(MARK_OF_BLANK))

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int,
        model_type: str = "bpe",
        character_coverage: float = 0.9999,
        max_texts: int = MOST_TEXTS,
        user_symbols: Sequence[str] = (),
    ) -> Self:
        """Learns a vocabulary from texts. The same texts always give the same model.

        Args:
            texts: plain texts. Blank ones are ignored. If they tell their number (`len`), and they are no more than
                `max_texts`, they are not held.
            vocab_size: the number of pieces, including the 4 special ids and 256 bytes.
            model_type: "bpe" (byte pair encoding) or "unigram" (a unigram language model).
            character_coverage: the share of the texts' characters that get pieces of their own. The others are written
                as bytes.
            max_texts: if there are more texts, a random sample of this size is used.
            user_symbols: texts without blanks, such as "<2es>", that are one token each wherever they stand.

        Raises:
            ValueError: `vocab_size` does not fit the texts, there is no text, `model_type` is unknown, or a symbol
                cannot be one token.
        """
        if model_type not in MODEL_TYPES:
            raise ValueError(
                f"model_type must be one of {', '.join(MODEL_TYPES)}. Received: model_type={model_type!r}."
            )
        smallest = _SMALLEST_VOCABULARY + len({*user_symbols})
        if vocab_size < smallest:
            raise ValueError(
                f"vocab_size must be at least {smallest}: {NUM_SPECIAL_IDS} special ids, 256 bytes, the user's symbols "
                f"and the characters of the texts. Received: vocab_size={vocab_size}."
            )
        _check_symbols(user_symbols)
        is_few = isinstance(texts, Sized) and len(texts) <= max_texts
        sentences = _sentences(texts if is_few else _sample(texts, max_texts))
        first = next(sentences, None)
        if first is None:
            raise ValueError("There is no text to learn a vocabulary from: every text is blank. Pass some text.")
        try:
            every = itertools.chain([first], sentences)
            model = _train_model(every, vocab_size, model_type, character_coverage, [*dict.fromkeys(user_symbols)])
        except RuntimeError as error:
            raise _explained(error, vocab_size) from error
        return cls(model)

    def fallback_ids(self) -> list[int]:
        processor = sentencepiece.SentencePieceProcessor(model_proto=self.model_bytes)
        ids = range(self.vocab_size)
        return [piece_id for piece_id in ids if processor.is_unknown(piece_id) or processor.is_byte(piece_id)]

    def spellings(self) -> list[tuple[str, ...]]:
        """See `Tokenizer.spellings`. A piece that begins a word is written with SentencePiece's mark, or without it."""
        processor = sentencepiece.SentencePieceProcessor(model_proto=self.model_bytes)
        none = {*self.fallback_ids(), *self.special_ids()}
        pieces = ["" if piece_id in none else processor.id_to_piece(piece_id) for piece_id in range(self.vocab_size)]
        return [tuple(filter(None, dict.fromkeys((piece, piece.removeprefix(MARK_OF_BLANK))))) for piece in pieces]

    def tokens(self) -> list[str]:
        """See `Tokenizer.tokens`. They are SentencePiece's pieces."""
        processor = sentencepiece.SentencePieceProcessor(model_proto=self.model_bytes)
        return [processor.id_to_piece(number) for number in range(self.vocab_size)]

    def word_starts(self) -> np.ndarray:
        """See `Tokenizer.word_starts`. A piece that begins a word begins with SentencePiece's mark of a blank."""
        pieces = [spelling[0] if spelling else "" for spelling in self.spellings()]
        return np.array([begins_word(piece.replace(MARK_OF_BLANK, " ")) for piece in pieces])

    def subwords(self) -> Subwords:
        return Subwords(*read_pieces(self.model_bytes))

    def write_files(self, directory: pathlib.Path) -> dict[str, Any]:
        (directory / MODEL_FILE).write_bytes(self.model_bytes)
        return {}

    @classmethod
    def read_files(cls, directory: pathlib.Path, description: dict[str, Any]) -> Self:
        return cls((directory / MODEL_FILE).read_bytes())


def read_model(model_bytes: bytes) -> sentencepiece.SentencePieceProcessor:
    """Reads a serialized SentencePiece model.

    Raises:
        ValueError: The bytes are no such model.
    """
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=model_bytes)
    except RuntimeError as error:
        raise ValueError(
            f"model_bytes must be a serialized SentencePiece model. Received {len(model_bytes)} bytes that are not "
            f"one: {error}. Pass the content of a .model file."
        ) from error


def _unescaped(text: tf.Tensor, origin: tf.RaggedTensor) -> tuple[tf.Tensor, tf.RaggedTensor, tf.RaggedTensor]:
    """Applies `_UNESCAPE_RULES`. Returns the text, the first bytes of its characters, and their values of `origin`.

    Args:
        text: (B,) string, valid UTF-8.
        origin: (B, None) int64, a place for each character of `text`.
    """
    points, _ = decode(text)
    nothing = tf.zeros([tf.size(text)], tf.int32)
    is_mark = points.values == _MARK
    digit = next_of(points, nothing).values
    is_escape = is_mark & ((digit == ord("0")) | (digit == ord("1")))
    dropped = points.with_values(tf.cast(is_escape, tf.int32))
    stays = previous_of(dropped, nothing).values == 0
    restored = points.with_values(tf.where(is_escape & (digit == ord("1")), ord(MARK_OF_BLANK), points.values))
    restored, origin = kept(restored, stays), kept(origin, stays)
    text = tf.strings.unicode_encode(restored, "UTF-8")
    return text, decode(text)[1], origin


class VocabularyTooLarge(ValueError):
    """The texts are too few for the requested number of pieces.

    Attributes:
        largest: the largest vocabulary that they allow.
    """

    def __init__(self, vocab_size: int, largest: int) -> None:
        super().__init__(
            f"vocab_size={vocab_size} is too large for these texts: they give at most {largest} pieces. "
            f"Lower vocab_size to {largest} or less, or give more text."
        )
        self.largest = largest


def _sample(texts: Iterable[str], limit: int) -> list[str]:
    """At most `limit` of the texts, all with the same probability (reservoir sampling with a fixed seed)."""
    iterator = iter(texts)
    sample = list(itertools.islice(iterator, limit))
    generator = random.Random(0)
    for seen, text in enumerate(iterator, limit + 1):
        place = generator.randrange(seen)
        if place < limit:
            sample[place] = text
    return sample


def _sentences(texts: Iterable[str]) -> Iterator[bytes]:
    for batch in batches_of_bytes(texts, 2048):
        for sentence in read_text(tf.constant(batch, tf.string)).numpy():
            if sentence:
                yield sentence


def _check_symbols(symbols: Sequence[str]) -> None:
    """Refuses symbols that would not come back as they are, or are special pieces.

    Raises:
        ValueError: There is one.
    """
    for symbol in symbols:
        read = read_text(tf.constant([symbol])).numpy()[0].decode()
        if not symbol or read != symbol or re.search(r"\s|" + MARK_OF_BLANK, symbol) or _SPECIAL.fullmatch(symbol):
            raise ValueError(
                "A user symbol must be a text in the form NFC without blanks and invisible characters, and no special "
                f"piece such as <s> or <0x41>. Received: {symbol!r}. Choose another one."
            )


def _train_model(
    sentences: Iterator[bytes], vocab_size: int, model_type: str, character_coverage: float, user_symbols: list[str]
) -> bytes:
    writer = io.BytesIO()
    with temporary_folder() as folder:
        escape, unescape = folder / "escape.tsv", folder / "unescape.tsv"
        escape.write_text(_ESCAPE_RULES, encoding="utf-8")
        unescape.write_text(_UNESCAPE_RULES, encoding="utf-8")
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=sentences,
            model_writer=writer,
            vocab_size=vocab_size,
            model_type=model_type,
            character_coverage=character_coverage,
            byte_fallback=True,
            split_digits=True,
            user_defined_symbols=user_symbols,
            required_chars=MARK_OF_BLANK,  # texts with hardly any blanks would lose it, and have it as bytes
            max_sentence_length=1 << 24,  # in bytes: with the default, texts above 4,192 bytes are silently dropped
            normalization_rule_tsv=str(escape),
            denormalization_rule_tsv=str(unescape),
            pad_id=PAD_ID,
            bos_id=START_ID,
            eos_id=END_ID,
            unk_id=UNKNOWN_ID,
            num_threads=4,  # always the same, because the unigram model's sums depend on it
            minloglevel=2,
        )
    # The model contains the compiled rules, but also the names of the temporary files, which differ from run to run.
    return without_rule_files(writer.getvalue())


def _explained(error: RuntimeError, vocab_size: int) -> Exception:
    small = re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error))
    if small:
        return ValueError(
            f"vocab_size={vocab_size} is too small: special ids, bytes and the characters of these texts alone need "
            f"{small[1]}. Raise vocab_size to more than {small[1]}, or lower character_coverage."
        )
    large = re.search(r"Please set it to a value <= (\d+)", str(error))
    if large:
        return VocabularyTooLarge(vocab_size, int(large[1]))
    return RuntimeError(f"SentencePiece could not learn a vocabulary of {vocab_size} pieces: {error}.")
