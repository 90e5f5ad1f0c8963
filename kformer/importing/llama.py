"""Llama (Touvron et al. 2023) and Mistral (Jiang et al. 2023), as Hugging Face keeps them."""

import pathlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from kformer.config import TransformerConfig
from kformer.importing.added_tokens import read_added_tokens
from kformer.importing.checkpoint_folder import open_checkpoint
from kformer.importing.decoder_only import embeddings
from kformer.importing.fields import Fields
from kformer.importing.generation import read_continuation
from kformer.importing.imported_model import ImportedModel, Source, same, transposed
from kformer.tokenizers import LlamaTokenizer
from kformer.tokenizers.sentencepiece import read_model

_TOKENIZER = "tokenizer.model"
_MISTRAL_WINDOW = 4096  # positions


def read(folder: pathlib.Path) -> ImportedModel:
    """Reads a folder with config.json, tokenizer.model and weights.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file is damaged, or asks for what kformer cannot represent.
    """
    fields = Fields(folder / "config.json")
    fields.expect("hidden_act", "silu", default="silu")
    fields.expect("attention_bias", False, default=False)
    fields.expect("mlp_bias", False, default=False)
    checkpoint = open_checkpoint(folder)
    tokenizer = _tokenizer(folder, fields)
    tying, weights = embeddings(fields, checkpoint, "model.embed_tokens.weight", is_tied=False)
    heads = fields.number("num_attention_heads")
    longest = fields.number("max_position_embeddings")
    transformer = TransformerConfig(
        source_vocab_size=tokenizer.vocab_size,
        target_vocab_size=tokenizer.vocab_size,
        num_encoder_layers=0,
        num_decoder_layers=fields.layers("num_hidden_layers"),
        d_model=fields.number("hidden_size"),
        d_ff=fields.number("intermediate_size"),
        num_heads=heads,
        head_dim=fields.get("head_dim"),
        num_key_value_heads=fields.get("num_key_value_heads"),
        dropout_rate=0.0,
        attention_dropout_rate=float(fields.get("attention_dropout", 0.0)),
        norm_first=True,
        activation="swiglu",
        normalization="rms_norm",
        layer_norm_epsilon=float(fields.get("rms_norm_eps", 1e-6)),
        use_bias=False,
        attention_window=_window(fields),
        positional_encoding="rotary",
        max_wavelength=_max_wavelength(fields),
        embedding_tying=tying,
        scale_embeddings=False,
        pad_id=tokenizer.pad_id,
        start_id=tokenizer.start_id,
        end_id=tokenizer.end_id,
        task="language-model",
    )
    weights["decoder/final_norm/scale"] = same("model.norm.weight")
    for index in range(transformer.num_decoder_layers):
        weights.update(_layer(f"decoder/layer_{index}", f"model.layers.{index}", transformer.head_size))
    decoding = read_continuation(folder, fields, longest)
    # Older versions of transformers kept the rates of the rotation as tensors.
    unused = frozenset(name for name in checkpoint.names() if name.endswith(".rotary_emb.inv_freq"))
    return ImportedModel(transformer, (tokenizer, tokenizer), decoding, checkpoint, weights, unused)


def _window(fields: Fields) -> int | None:
    """How far positions attend. Llama has no window, whatever the file says; Mistral has one if it says nothing."""
    if fields.get("model_type") != "mistral":
        return None
    return fields.get("sliding_window") if "sliding_window" in fields else _MISTRAL_WINDOW


def _max_wavelength(fields: Fields) -> float:
    """The base of the rotation's rates, which newer files keep beside the kind of the rotation."""
    for name in ("rope_parameters", "rope_scaling"):
        rope = fields.get(name, {})
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind != "default" or rope.get("partial_rotary_factor", 1.0) != 1.0:
            raise ValueError(
                f"{name} in {fields.path} is {rope!r:.200}, which kformer cannot represent. Expected: rotary positions "
                "that are neither scaled nor of a part of the features."
            )
    return float(fields.get("rope_parameters", {}).get("rope_theta", fields.get("rope_theta", 10000.0)))


def _layer(path: str, name: str, head_size: int) -> Iterator[tuple[str, Source]]:
    matrices = {
        "self_attention/value": "self_attn.v_proj",
        "self_attention/output": "self_attn.o_proj",
        "feed_forward/gate": "mlp.gate_proj",
        "feed_forward/inner": "mlp.up_proj",
        "feed_forward/outer": "mlp.down_proj",
    }
    for ours, theirs in matrices.items():
        yield f"{path}/{ours}/kernel", transposed(f"{name}.{theirs}.weight")
    for ours, theirs in (("query", "q_proj"), ("key", "k_proj")):
        weight = Source((f"{name}.self_attn.{theirs}.weight",), partial(paired_features, head_size))
        yield f"{path}/self_attention/{ours}/kernel", weight
    yield f"{path}/self_attention_residual/norm/scale", same(f"{name}.input_layernorm.weight")
    yield f"{path}/feed_forward_residual/norm/scale", same(f"{name}.post_attention_layernorm.weight")


def paired_features(head_size: int, tensor: np.ndarray) -> np.ndarray:
    """The kernel (in, heads x K) of queries or keys, whose features are in another order.

    Transformers rotates feature i of a head together with feature i + K / 2, and kformer rotates neighbours. The
    product of queries and keys stays the same, because both have their features in the same order.

    Examples:
        >>> paired_features(4, np.array([[10, 11, 12, 13]]).T).tolist()
        [[10, 12, 11, 13]]
    """
    halves = np.reshape(tensor, (-1, 2, head_size // 2, tensor.shape[1]))
    return np.reshape(np.swapaxes(halves, 1, 2), tensor.shape).T


def _tokenizer(folder: pathlib.Path, fields: Fields) -> LlamaTokenizer:
    """The tokenizer of tokenizer.model. Ids that it lacks, of tokens that were added, no text has."""
    path = folder / _TOKENIZER
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing. kformer reads only SentencePiece models of Llama, and no tokenizer.json. "
            "Copy the file from the folder of the model that this one was made from, if both have the same vocabulary."
        )
    model = path.read_bytes()
    processor = read_model(model)
    vocab_size = fields.number("vocab_size")
    if processor.vocab_size() > vocab_size:
        raise ValueError(
            f"{path} has {processor.vocab_size()} pieces. Expected: at most vocab_size={vocab_size} of {fields.path}. "
            "The files are of different models."
        )
    pieces = [processor.id_to_piece(number) for number in range(processor.vocab_size())]
    read_added_tokens(folder).check(pieces)
    pieces += [""] * (vocab_size - len(pieces))
    end_id, unknown_id = fields.id("eos_token_id", 2), processor.unk_id()
    pad_id = fields.get("pad_token_id", -1)
    if pad_id in (-1, end_id) or _is_text(processor, pad_id):
        pad_id = _unused_id(path, pieces, unknown_id)
    path, has_start = folder / "tokenizer_config.json", True
    if path.is_file():
        options = Fields(path)
        options.expect("add_prefix_space", True, default=True)
        options.expect("add_eos_token", False, default=False)
        has_start = bool(options.get("add_bos_token", True))
    return LlamaTokenizer(model, pieces, pad_id, fields.id("bos_token_id", 1), end_id, unknown_id, has_start)


def _is_text(processor: Any, number: int) -> bool:
    """Whether texts may have this id. Some files name such a piece as their padding, which here no text may have."""
    inside = 0 <= number < processor.vocab_size()
    return inside and not (processor.is_control(number) or processor.is_unknown(number) or processor.is_unused(number))


def _unused_id(path: pathlib.Path, pieces: list[str], unknown_id: int) -> int:
    """An id that no text has, for the padding: the unknown id, if all bytes have pieces."""
    missing = [piece for piece in (f"<0x{byte:02X}>" for byte in range(256)) if piece not in pieces]
    if missing:
        raise ValueError(
            f"pad_token_id is missing, and the unknown piece of {path} cannot take its place, because texts may have "
            f"it: there is no piece {missing[0]}. Expected: a piece for every byte, or a pad_token_id in config.json."
        )
    return unknown_id
