"""Marian's translators as Hugging Face keeps them, such as those of OPUS-MT (Junczys-Dowmunt et al. 2018).

Where their weights lie is in `bart_weights`; what config.json says of BART and its relatives, in `bart_family`.
"""

import pathlib

from kformer.config import TransformerConfig
from kformer.importing.added_tokens import read_added_tokens
from kformer.importing.bart_family import read_transformer
from kformer.importing.bart_weights import UNUSED, find_weights
from kformer.importing.checkpoint_folder import open_checkpoint
from kformer.importing.fields import Fields
from kformer.importing.generation import read_decoding
from kformer.importing.imported_model import ImportedModel
from kformer.importing.pieces import read_model_file, read_pieces, unknown_id, warn_of_cleaning
from kformer.tokenizers import PieceVocabularyTokenizer, Tokenizer


def read(folder: pathlib.Path) -> ImportedModel:
    """Reads a folder with config.json, vocab.json, source.spm, target.spm and weights.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file is damaged, or asks for what kformer cannot represent.
    """
    fields = Fields(folder / "config.json")
    fields.expect("normalize_before", False, default=False)
    fields.expect("normalize_embedding", False, default=False)
    fields.expect("static_position_embeddings", True, default=True)
    checkpoint = open_checkpoint(folder)
    transformer = read_transformer(fields, checkpoint, activation="gelu", is_scaled=False)
    transformer = transformer.replace(positional_encoding="sinusoidal_halves")
    weights = find_weights(fields, checkpoint, transformer)
    decoding = read_decoding(folder, fields)
    return ImportedModel(transformer, _tokenizers(folder, transformer), decoding, checkpoint, weights, UNUSED)


def _tokenizers(folder: pathlib.Path, transformer: TransformerConfig) -> tuple[Tokenizer, Tokenizer]:
    """Source and target tokenizer. They are never one object: each has a SentencePiece model of its own."""
    target_file = folder / "target_vocab.json"
    source = _tokenizer(folder / "source.spm", folder / "vocab.json", transformer, transformer.source_vocab_size, True)
    vocabulary = target_file if target_file.is_file() else folder / "vocab.json"
    target = _tokenizer(folder / "target.spm", vocabulary, transformer, transformer.target_vocab_size, False)
    read_added_tokens(folder).check([*source.pieces, *target.pieces])
    warn_of_cleaning(folder)
    return source, target


def _tokenizer(
    model: pathlib.Path, vocabulary: pathlib.Path, transformer: TransformerConfig, vocab_size: int, reads_codes: bool
) -> PieceVocabularyTokenizer:
    pieces = read_pieces(vocabulary, vocab_size)
    special = (transformer.pad_id, transformer.start_id, transformer.end_id, unknown_id(pieces))
    return PieceVocabularyTokenizer(read_model_file(model), pieces, *special, reads_language_codes=reads_codes)
