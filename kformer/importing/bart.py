"""BART (Lewis et al. 2020) as Hugging Face keeps it."""

import pathlib

from kformer.config import TransformerConfig
from kformer.importing.bart_model import UNUSED, find_weights, read_transformer
from kformer.importing.checkpoint import Checkpoint, open_checkpoint
from kformer.importing.fields import Fields
from kformer.importing.generation import read_decoding
from kformer.importing.imported import ImportedModel
from kformer.tokenizers import Tokenizer


def read(folder: pathlib.Path) -> ImportedModel:
    """Refuses a folder of BART: kformer has the model, but not its tokenizer.

    Raises:
        ValueError: Always.
    """
    raise ValueError(
        f"{folder} holds a BART, whose texts are divided by a byte-level BPE with the start token before each source, "
        "which kformer cannot do yet. Import a model with SentencePiece: Marian, M2M100, NLLB or mBART-50."
    )


def read_model(folder: pathlib.Path, tokenizers: tuple[Tokenizer, Tokenizer]) -> ImportedModel:
    """Reads config.json, generation_config.json and weights of a folder.

    Args:
        folder: Of the model.
        tokenizers: Of source and target.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file is damaged, or asks for what kformer cannot represent.
    """
    fields = Fields(folder / "config.json")
    fields.expect("normalize_before", False, default=False)
    fields.expect("add_final_layer_norm", False, default=False)
    checkpoint = open_checkpoint(folder)
    transformer = read_bart_transformer(fields, checkpoint)
    weights = find_weights(fields, checkpoint, transformer)
    decoding = read_decoding(folder, fields, transformer.max_length)
    return ImportedModel(transformer, tokenizers, decoding, checkpoint, weights, UNUSED)


def read_bart_transformer(fields: Fields, checkpoint: Checkpoint) -> TransformerConfig:
    """The configuration of BART, or of mBART but for the place of its norms.

    Raises:
        ValueError: A field asks for what kformer cannot represent.
    """
    fields.expect("normalize_embedding", True, default=True)
    fields.expect("static_position_embeddings", False, default=False)
    return read_transformer(fields, checkpoint, activation="gelu", is_scaled=False).replace(
        normalize_embeddings=True,
        positional_encoding="learned",
        max_length=fields.number("max_position_embeddings"),
    )
