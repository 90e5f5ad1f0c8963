"""BART (Lewis et al. 2020) as Hugging Face keeps it."""

import pathlib

from kformer.config import TransformerConfig
from kformer.importing.bart_family import read_transformer
from kformer.importing.bart_tokenizer import read_tokenizer
from kformer.importing.bart_weights import UNUSED, find_weights
from kformer.importing.checkpoint import Checkpoint, PrefixedCheckpoint
from kformer.importing.checkpoint_folder import open_checkpoint
from kformer.importing.fields import Fields
from kformer.importing.generation import read_decoding
from kformer.importing.imported_model import ImportedModel


def read(folder: pathlib.Path) -> ImportedModel:
    """Reads a folder with config.json, vocab.json and merges.txt (or tokenizer.json), and weights.

    A source is read as a whole up to the largest number of positions, because a summary needs all of its text.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file is damaged, or asks for what kformer cannot represent.
    """
    fields = Fields(folder / "config.json")
    fields.expect("normalize_before", False, default=False)
    fields.expect("add_final_layer_norm", False, default=False)
    checkpoint = _with_softmax(open_checkpoint(folder))
    transformer = read_bart_transformer(fields, checkpoint)
    tokenizer = read_tokenizer(folder, fields, transformer)
    weights = find_weights(fields, checkpoint, transformer)
    longest = transformer.max_length
    decoding = read_decoding(folder, fields, longest).replace(max_source_length=longest)
    return ImportedModel(transformer, (tokenizer, tokenizer), decoding, checkpoint, weights, UNUSED)


def _with_softmax(checkpoint: Checkpoint) -> Checkpoint:
    """The tensors by the names of a model with its softmax. Files of a `BartModel`, as bart-base, lack their beginning.

    Its softmax is the matrix of the embeddings.
    """
    return PrefixedCheckpoint("model.", checkpoint) if "encoder.layers.0.fc1.weight" in checkpoint else checkpoint


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
