"""M2M100 (Fan et al. 2020) and NLLB (NLLB team 2022) as Hugging Face keeps them: translators between many languages."""

import pathlib

from kformer.importing.added_tokens import read_added_tokens
from kformer.importing.bart_family import read_transformer
from kformer.importing.checkpoint_folder import open_checkpoint
from kformer.importing.fields import Fields
from kformer.importing.imported_model import ImportedModel
from kformer.importing.languages import Languages, read_languages
from kformer.importing.multilingual import Vocabulary, fairseq_vocabulary, of_two_languages
from kformer.importing.pieces import read_model_file, read_pieces, warn_of_cleaning

_FIRST_POSITION = 2  # the number that fairseq gives to the first position
_NLLB_CODE = r"([a-z]{3}_[A-Z][a-z]{3})"
_M2M100_CODE = r"__([a-z]{2,3})__"
_MODEL = "sentencepiece.bpe.model"


def read(folder: pathlib.Path, languages: Languages) -> ImportedModel:
    """Reads a folder with config.json, sentencepiece.bpe.model, for M2M100 also vocab.json, and weights.

    Args:
        folder: Of the model.
        languages: From and to which the run translates.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file is damaged, or asks for what kformer cannot represent; or a language is missing or unknown.
    """
    fields = Fields(folder / "config.json")
    checkpoint = open_checkpoint(folder)
    transformer = read_transformer(fields, checkpoint, activation="relu", is_scaled=True)
    # The last wavelength is 10000, not the next one as in the paper.
    longer = transformer.max_wavelength ** (transformer.d_model / (transformer.d_model - 2))
    transformer = transformer.replace(
        norm_first=True,
        positional_encoding="sinusoidal_halves",
        first_position=_FIRST_POSITION,
        max_wavelength=longer,
    )
    vocabulary = _vocabulary(folder, transformer.source_vocab_size)
    return of_two_languages(folder, fields, checkpoint, transformer, vocabulary, languages)


def _vocabulary(folder: pathlib.Path, vocab_size: int) -> Vocabulary:
    """Pieces and languages: those of M2M100 if there is a vocab.json, else those of NLLB."""
    model_bytes = read_model_file(folder / _MODEL)
    if not (folder / "vocab.json").is_file():
        if (folder / "tokenizer_config.json").is_file():  # which may put the language behind the end of a source
            Fields(folder / "tokenizer_config.json").expect("legacy_behaviour", False, default=False)
        return fairseq_vocabulary(model_bytes, folder, _NLLB_CODE, vocab_size)
    pieces = read_pieces(folder / "vocab.json", vocab_size)
    read_added_tokens(folder).check(pieces, _M2M100_CODE)
    warn_of_cleaning(folder)
    first = sum(1 for piece in pieces if piece)
    return Vocabulary(model_bytes, pieces, read_languages(folder, _M2M100_CODE, first))
