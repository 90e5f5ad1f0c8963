"""WordPiece (Wu et al. 2016) as in BERT: words and punctuation marks, divided into the longest parts of a vocabulary.

Shapes: B batch, T tokens, W words.
"""

import json
import pathlib
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import tensorflow as tf

from kformer.tokenizers.base import Tokenizer, begins_word
from kformer.tokenizers.piece_vocabulary import PIECES_FILE, check_ids
from kformer.tokenizers.ragged import join
from kformer.tokenizers.symbols import UNKNOWN_MARK
from kformer.tokenizers.text_ops import as_texts, lower, replace_invalid, tf_text

CONTINUES = "##"  # before the parts that continue a word
_LONGEST_WORD = 100  # in characters
_BYTES_PER_CHARACTER = 4  # at most, in UTF-8
_NOTHING = "\ue000"  # of private use: no text has it after `_clean`

# Within brackets. Control characters but tabs and line ends, format characters, and those of private use.
_REMOVED = r"\x00-\x08\x0B\x0C\x0E-\x1F\x7F-\x9F\x{FFFD}\p{Cf}\p{Co}"
_BLANKS = r"\t\n\r\p{Z}"
_CHINESE = (
    r"\x{3400}-\x{4DBF}\x{4E00}-\x{9FFF}\x{F900}-\x{FAFF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}"
    r"\x{2B920}-\x{2CEAF}\x{2F800}-\x{2FA1F}"
)
_MARK = r"[!-/:-@\[-`{-~\p{P}]"  # all signs of ASCII, and what Unicode calls punctuation


class WordPieceTokenizer(Tokenizer):
    """Splits texts at blanks and punctuation marks, and each word into the longest pieces of a vocabulary.

    Control characters are removed. A word of more than 100 characters, and one with a part that the vocabulary lacks,
    gets the unknown id, which is shown as "⁇". Text that looks like a special piece, such as "[MASK]", is treated as
    text. `detokenize` puts a blank before each word, and before marks, too.

    Args:
        pieces: the vocabulary, in the order of the ids. Parts that continue a word begin with "##"; "" stands for an id
            without a piece.
        pad_id, start_id, end_id, unknown_id, mask_id: the special ids, in BERT those of "[PAD]", "[CLS]", "[SEP]",
            "[UNK]" and "[MASK]".
        lowercase: whether texts become lower case.
        strip_accents: whether accents are removed from letters.
        split_chinese: whether each Chinese character is a word.

    Raises:
        ValueError: A special id is outside the vocabulary, or a piece occurs twice.

    Examples:
        >>> pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "fox", "##es", "!"]
        >>> tokenizer = WordPieceTokenizer(pieces, 0, 2, 3, 1, 4)
        >>> tokenizer.tokenize(["Foxes!", "dogs fox"]).to_list()
        [[5, 6, 7], [1, 5]]
        >>> tokenizer.normalize(["Foxes!", "dogs fox"]).numpy()[1].decode()
        '⁇ fox'
    """

    kind: ClassVar[str] = "wordpiece"

    def __init__(
        self,
        pieces: Sequence[str],
        pad_id: int,
        start_id: int,
        end_id: int,
        unknown_id: int,
        mask_id: int,
        lowercase: bool = True,
        strip_accents: bool = True,
        split_chinese: bool = True,
    ) -> None:
        super().__init__(name="wordpiece_tokenizer")
        self.pieces = tuple(pieces)
        self.vocab_size = len(self.pieces)
        self.pad_id, self.start_id, self.end_id, self.unknown_id = pad_id, start_id, end_id, unknown_id
        self._mask_id = mask_id
        self.lowercase, self.strip_accents, self.split_chinese = lowercase, strip_accents, split_chinese
        check_ids(self.special_ids(), self.vocab_size)
        _check_pieces(self.pieces)
        # Pieces that no text may become are replaced by some that no text has.
        known = [piece or f"{_NOTHING}{number}" for number, piece in enumerate(self._text_pieces())]
        self._wordpiece = tf_text.FastWordpieceTokenizer(
            known,
            max_bytes_per_word=_LONGEST_WORD * _BYTES_PER_CHARACTER,
            token_out_type=tf.int32,
            unknown_token=known[unknown_id],
            no_pretokenization=True,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.pieces, *self._options().values())

    def _options(self) -> dict[str, Any]:
        names = ("pad_id", "start_id", "end_id", "unknown_id", "mask_id", "lowercase", "strip_accents", "split_chinese")
        return {name: getattr(self, name) for name in names}

    @property
    def mask_id(self) -> int:
        return self._mask_id

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        words = tf_text.regex_split(self._clean(as_texts(text)), rf"{_MARK}| +", _MARK)  # (B, W)
        is_too_long = tf.strings.length(words.flat_values, "UTF8_CHAR") > _LONGEST_WORD
        words = words.with_flat_values(tf.where(is_too_long, _NOTHING, words.flat_values))
        return self._wordpiece.tokenize(words).merge_dims(1, 2)

    def _clean(self, text: tf.Tensor) -> tf.Tensor:
        """(B,) texts with blanks around the words that are to be split, in the form that the vocabulary has."""
        text = tf.strings.regex_replace(replace_invalid(text), f"[{_REMOVED}]", "")
        text = tf.strings.regex_replace(text, f"[{_BLANKS}]", " ")
        if self.split_chinese:
            text = tf.strings.regex_replace(text, f"([{_CHINESE}])", r" \1 ")
        if self.strip_accents:
            text = tf.strings.regex_replace(tf_text.normalize_utf8(text, "NFD"), r"\p{Mn}", "")
        return lower(text) if self.lowercase else text

    def detokenize(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """See `Tokenizer.detokenize`. The unknown id, and ids outside the vocabulary, are shown as "⁇"."""
        ids = self._content(ids)
        known = (ids.flat_values >= 0) & (ids.flat_values < self.vocab_size)
        written = tf.gather(tf.constant(self._written()), tf.where(known, ids.flat_values, self.unknown_id))
        return tf.strings.strip(replace_invalid(join(ids.with_flat_values(written))))

    def _text_pieces(self) -> list[str]:
        """The piece of each id; for special ids it is empty."""
        special = self.special_ids()
        return ["" if number in special else piece for number, piece in enumerate(self.pieces)]

    def _written(self) -> list[str]:
        """The text that each id is written as, with the blank before it; for special ids it is empty."""
        words = [f" {piece}" if piece else "" for piece in self._text_pieces()]
        words[self.unknown_id] = f" {UNKNOWN_MARK}"
        return [word.removeprefix(f" {CONTINUES}") for word in words]

    def spellings(self) -> list[tuple[str, ...]]:
        """See `Tokenizer.spellings`. A piece that continues a word is written with its mark, or without it."""
        return [
            tuple(filter(None, dict.fromkeys((piece, piece.removeprefix(CONTINUES))))) for piece in self._text_pieces()
        ]

    def word_starts(self) -> np.ndarray:
        """See `Tokenizer.word_starts`. Words and punctuation marks begin without the mark "##"."""
        return np.array([begins_word(written) for written in self._written()])

    def write_files(self, directory: pathlib.Path) -> dict[str, Any]:
        text = json.dumps(self.pieces, ensure_ascii=False, indent=0) + "\n"
        (directory / PIECES_FILE).write_text(text, encoding="utf-8")
        return self._options()

    @classmethod
    def read_files(cls, directory: pathlib.Path, description: dict[str, Any]) -> Self:
        options = {name: value for name, value in description.items() if name != "kind"}
        return cls(json.loads((directory / PIECES_FILE).read_text(encoding="utf-8")), **options)


def _check_pieces(pieces: Sequence[str]) -> None:
    seen: set[str] = set()
    for piece in filter(None, pieces):
        if piece in seen:
            raise ValueError(
                f'A piece must occur only once. Received twice: {piece!r}. Put "" in place of one of them.'
            )
        seen.add(piece)
