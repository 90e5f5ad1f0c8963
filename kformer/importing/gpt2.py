"""GPT-2 (Radford et al. 2019) and models of its form, as Hugging Face keeps them."""

import pathlib
from collections.abc import Iterator
from functools import partial

import numpy as np

from kformer.config import TransformerConfig
from kformer.importing.activations import ACTIVATIONS
from kformer.importing.byte_vocabulary import read_byte_bpe
from kformer.importing.checkpoint import Checkpoint
from kformer.importing.checkpoint_folder import open_checkpoint
from kformer.importing.decoder_only import embeddings, places_of_embeddings
from kformer.importing.fields import Fields
from kformer.importing.generation import read_continuation
from kformer.importing.imported_model import ImportedModel, Source, as_it_is, norm, same

_PARTS = ("query", "key", "value")  # of the one matrix `c_attn`, in their order
_EMBEDDINGS = "wte.weight"
_PREFIX = "transformer."  # before all names but that of the softmax, if the file is of a model that predicts tokens


def read(folder: pathlib.Path) -> ImportedModel:
    """Reads a folder with config.json, vocab.json and merges.txt (or tokenizer.json), and weights.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file is damaged, or asks for what kformer cannot represent.
    """
    fields = Fields(folder / "config.json")
    fields.expect("scale_attn_weights", True, default=True)
    fields.expect("scale_attn_by_inverse_layer_idx", False, default=False)
    fields.expect("reorder_and_upcast_attn", False, default=False)
    fields.expect("add_cross_attention", False, default=False)
    checkpoint = open_checkpoint(folder)
    tokenizer = read_byte_bpe(folder, fields)
    prefix = _PREFIX if f"{_PREFIX}{_EMBEDDINGS}" in checkpoint else ""
    tying, weights = embeddings(fields, checkpoint, f"{prefix}{_EMBEDDINGS}", is_tied=True)
    width, longest = fields.number("n_embd"), fields.number("n_positions")
    transformer = TransformerConfig(
        source_vocab_size=tokenizer.vocab_size,
        target_vocab_size=tokenizer.vocab_size,
        num_encoder_layers=0,
        num_decoder_layers=fields.layers("n_layer"),
        d_model=width,
        d_ff=fields.get("n_inner", 4 * width),
        num_heads=fields.number("n_head"),
        dropout_rate=float(fields.get("resid_pdrop", 0.1)),
        attention_dropout_rate=float(fields.get("attn_pdrop", 0.1)),
        norm_first=True,
        activation=fields.choice("activation_function", ACTIVATIONS, default="gelu_new"),
        layer_norm_epsilon=float(fields.get("layer_norm_epsilon", 1e-5)),
        positional_encoding="learned",
        max_length=longest,
        embedding_tying=tying,
        scale_embeddings=False,
        pad_id=tokenizer.pad_id,
        start_id=tokenizer.start_id,
        end_id=tokenizer.end_id,
        task="language-model",
    )
    weights.update(_all_but_embeddings(transformer, prefix))
    decoding = read_continuation(folder, fields, longest)
    unused = _unused(checkpoint)
    return ImportedModel(transformer, (tokenizer, tokenizer), decoding, checkpoint, weights, unused)


def places_of_weights(transformer: TransformerConfig) -> dict[str, Source]:
    """Where each weight lies in the files that transformers writes."""
    of_embeddings = places_of_embeddings(transformer.embedding_tying, f"{_PREFIX}{_EMBEDDINGS}")
    return {**of_embeddings, **_all_but_embeddings(transformer, _PREFIX)}


def _all_but_embeddings(transformer: TransformerConfig, prefix: str) -> dict[str, Source]:
    weights = {"decoder/positions/embeddings": same(f"{prefix}wpe.weight")}
    weights.update(norm("decoder/final_norm", f"{prefix}ln_f"))
    for index in range(transformer.num_decoder_layers):
        weights.update(_layer(f"decoder/layer_{index}", f"{prefix}h.{index}"))
    return weights


def _layer(path: str, name: str) -> Iterator[tuple[str, Source]]:
    """The weights of a layer. GPT-2 keeps matrices as (in, out)."""
    for part, ours in enumerate(_PARTS):
        for ending, theirs in (("kernel", "weight"), ("bias", "bias")):
            third = Source((f"{name}.attn.c_attn.{theirs}",), partial(_third, part), as_it_is)
            yield f"{path}/self_attention/{ours}/{ending}", third
    denses = {
        "self_attention/output": "attn.c_proj",
        "feed_forward/inner": "mlp.c_fc",
        "feed_forward/outer": "mlp.c_proj",
    }
    for ours, theirs in denses.items():
        yield f"{path}/{ours}/kernel", same(f"{name}.{theirs}.weight")
        yield f"{path}/{ours}/bias", same(f"{name}.{theirs}.bias")
    yield from norm(f"{path}/self_attention_residual/norm", f"{name}.ln_1").items()
    yield from norm(f"{path}/feed_forward_residual/norm", f"{name}.ln_2").items()


def _third(part: int, tensor: np.ndarray) -> np.ndarray:
    """A third of the columns of the matrix that gives queries, keys and values together."""
    return np.split(tensor, len(_PARTS), axis=-1)[part]


def _unused(checkpoint: Checkpoint) -> frozenset[str]:
    """The causal masks, which older versions of transformers kept as tensors."""
    return frozenset(name for name in checkpoint.names() if name.endswith((".attn.bias", ".attn.masked_bias")))
