"""mBART-50 (Tang et al. 2020) as Hugging Face keeps it: a translator between many languages."""

import pathlib

from kformer.importing.bart import read_bart_transformer
from kformer.importing.checkpoint_folder import open_checkpoint
from kformer.importing.fields import Fields
from kformer.importing.imported_model import ImportedModel
from kformer.importing.languages import Languages
from kformer.importing.multilingual import fairseq_vocabulary, of_two_languages
from kformer.importing.pieces import read_model_file

_CODE = r"([a-z]{2}_[A-Z]{2})"


def read(folder: pathlib.Path, languages: Languages) -> ImportedModel:
    """Reads a folder with config.json, sentencepiece.bpe.model and weights.

    Args:
        folder: Of the model.
        languages: From and to which the run translates.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file is damaged, or asks for what kformer cannot represent; or a language is missing or unknown.
    """
    fields = Fields(folder / "config.json")
    fields.expect("normalize_before", True, default=True)
    fields.expect("add_final_layer_norm", True, default=True)
    _refuse_older(folder, fields)
    checkpoint = open_checkpoint(folder)
    transformer = read_bart_transformer(fields, checkpoint).replace(norm_first=True)
    model_bytes = read_model_file(folder / "sentencepiece.bpe.model")
    vocabulary = fairseq_vocabulary(model_bytes, folder, _CODE, transformer.source_vocab_size)
    return of_two_languages(folder, fields, checkpoint, transformer, vocabulary, languages)


def _refuse_older(folder: pathlib.Path, fields: Fields) -> None:
    """Refuses the first mBART, which puts the language behind the end of a source.

    Raises:
        ValueError: tokenizer_config.json names its tokenizer, or the decoder begins with a language.
    """
    path = folder / "tokenizer_config.json"
    kind = Fields(path).get("tokenizer_class", "") if path.is_file() else ""
    start_id, end_id = (fields.get(name) for name in ("decoder_start_token_id", "eos_token_id"))
    if kind.startswith("MBartTokenizer") or start_id != end_id:
        raise ValueError(
            f"{folder} is an mBART that puts the token of the language behind the end of a source, as mbart-large-cc25 "
            f"does (decoder_start_token_id={start_id}, eos_token_id={end_id}). kformer can import mBART-50, which puts "
            "it before the source."
        )
