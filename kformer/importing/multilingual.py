"""Models that translate between many languages: a token for each language stands before a text."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kformer.config import TransformerConfig
from kformer.importing.added_tokens import read_added_tokens
from kformer.importing.bart_weights import UNUSED, find_weights
from kformer.importing.checkpoint import Checkpoint
from kformer.importing.fields import Fields
from kformer.importing.generation import read_decoding
from kformer.importing.imported_model import ImportedModel
from kformer.importing.languages import Languages, choose_languages, read_languages
from kformer.importing.pieces import fairseq_pieces, unknown_id, warn_of_cleaning
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


def fairseq_vocabulary(model_bytes: bytes, folder: pathlib.Path, form: str, vocab_size: int) -> Vocabulary:
    """Pieces with the ids of fairseq, and languages behind them, as in NLLB and mBART.

    Args:
        model_bytes: A serialized SentencePiece model.
        folder: Of the model.
        form: A regular expression of the tokens of languages, see `read_languages`.
        vocab_size: The number of ids.

    Raises:
        ValueError: The model is of another kind, or has too many pieces; or no file lists the languages.
    """
    pieces, first = fairseq_pieces(model_bytes, vocab_size)
    read_added_tokens(folder).check(pieces, form)
    warn_of_cleaning(folder)
    return Vocabulary(model_bytes, pieces, read_languages(folder, form, first))


def of_two_languages(
    folder: pathlib.Path,
    fields: Fields,
    checkpoint: Checkpoint,
    transformer: TransformerConfig,
    vocabulary: Vocabulary,
    languages: Languages,
) -> ImportedModel:
    """The model as a translator from one language to one other.

    Args:
        folder: Of the model.
        fields: Of config.json.
        checkpoint: The tensors.
        transformer: The configuration.
        vocabulary: The tokens.
        languages: From and to which the run translates.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A language is missing or unknown, or a file asks for what kformer cannot represent.
    """
    source, target = choose_languages(folder, vocabulary.languages, languages)
    tokenizers = vocabulary.tokenizers(transformer, source, target)
    decoding = read_decoding(folder, fields, transformer.longest_sequence).replace(first_id=target)
    weights = find_weights(fields, checkpoint, transformer)
    return ImportedModel(transformer, tokenizers, decoding, checkpoint, weights, UNUSED)
