"""The vocabularies of models that translate between many languages: a token for each language stands before a text."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kformer.config import TransformerConfig
from kformer.importing.pieces import fairseq_pieces, unknown_id
from kformer.tokenizers import PieceVocabularyTokenizer, Tokenizer


class Vocabulary(NamedTuple):
    """What the tokens of a model are.

    Attributes:
        model_bytes: A serialized SentencePiece model.
        pieces: In the order of their ids; "" for ids that text does not get, such as those of languages.
        languages: The ids of the languages, by their codes.
    """

    model_bytes: bytes
    pieces: Sequence[str]
    languages: Mapping[str, int]

    def tokenizers(self, transformer: TransformerConfig, source: int, target: int) -> tuple[Tokenizer, Tokenizer]:
        """The tokenizers of source and target, for the ids of their languages.

        Raises:
            ValueError: The vocabulary has no unknown piece, or a language's id is outside of it.
        """
        special = (transformer.pad_id, transformer.start_id, transformer.end_id, unknown_id(self.pieces))
        return (
            PieceVocabularyTokenizer(self.model_bytes, self.pieces, *special, first_ids=[source]),
            PieceVocabularyTokenizer(self.model_bytes, self.pieces, *special, first_ids=[target]),
        )


def fairseq_vocabulary(model_bytes: bytes, codes: Sequence[str], vocab_size: int) -> Vocabulary:
    """Pieces with the ids of fairseq, and languages behind them, as in NLLB and mBART.

    Args:
        model_bytes: A serialized SentencePiece model.
        codes: Of the languages, in the order of their ids.
        vocab_size: The number of ids.

    Raises:
        ValueError: The model is of another kind, or has too many pieces.
    """
    pieces, first = fairseq_pieces(model_bytes, vocab_size)
    return Vocabulary(model_bytes, pieces, {code: first + number for number, code in enumerate(codes)})
