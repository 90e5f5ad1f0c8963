"""T5 (Raffel et al. 2020), versions 1.0 and 1.1, as Hugging Face keeps it."""

import pathlib
from collections.abc import Iterator

import numpy as np

from kformer.config import TransformerConfig
from kformer.importing.added_tokens import read_added_tokens
from kformer.importing.checkpoint_folder import open_checkpoint
from kformer.importing.fields import Fields
from kformer.importing.generation import read_decoding
from kformer.importing.imported_model import ImportedModel, Source, same, transposed
from kformer.importing.pieces import read_model_file, warn_of_cleaning
from kformer.tokenizers import PieceVocabularyTokenizer
from kformer.tokenizers.sentencepiece import read_model

_ACTIVATIONS = {"relu": "relu", "gated-gelu": "geglu_tanh"}
_PROJECTIONS = {"query": "q", "key": "k", "value": "v", "output": "o"}
_SHARED, _SOFTMAX = "shared.weight", "lm_head.weight"
# Tensors that repeat others, and a bias that older files hold and no version of T5 uses.
_UNUSED = frozenset(
    {
        _SOFTMAX,
        "encoder.embed_tokens.weight",
        "decoder.embed_tokens.weight",
        "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",
    }
)


def read(folder: pathlib.Path) -> ImportedModel:
    """Reads a folder with config.json, spiece.model and weights.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file is damaged, or asks for what kformer cannot represent.
    """
    fields = Fields(folder / "config.json")
    fields.expect("relative_attention_num_buckets", 32, default=32)
    fields.expect("relative_attention_max_distance", 128, default=128)
    checkpoint = open_checkpoint(folder)
    is_tied = _SOFTMAX not in checkpoint or checkpoint.are_equal(_SOFTMAX, _SHARED)
    layers = fields.layers("num_layers")
    vocab_size, pad_id = fields.number("vocab_size"), fields.id("pad_token_id", 0)
    transformer = TransformerConfig(
        source_vocab_size=vocab_size,
        target_vocab_size=vocab_size,
        num_encoder_layers=layers,
        num_decoder_layers=fields.layers("num_decoder_layers", layers),
        d_model=fields.number("d_model"),
        d_ff=fields.number("d_ff"),
        num_heads=fields.number("num_heads"),
        head_dim=fields.number("d_kv"),
        dropout_rate=float(fields.get("dropout_rate", 0.1)),
        attention_dropout_rate=float(fields.get("dropout_rate", 0.1)),
        norm_first=True,
        activation=fields.choice("feed_forward_proj", _ACTIVATIONS, "relu"),
        normalization="rms_norm",
        layer_norm_epsilon=float(fields.get("layer_norm_epsilon", 1e-6)),
        use_bias=False,
        positional_encoding="relative_buckets",
        embedding_tying="all" if is_tied else "none",
        scale_embeddings=False,
        pad_id=pad_id,
        start_id=fields.id("decoder_start_token_id", pad_id),
        end_id=fields.id("eos_token_id", 1),
    )
    # Version 1.0 multiplies the last vectors by d_model ** -0.5.
    scaled = fields.get("scale_decoder_outputs", fields.get("tie_word_embeddings", True))
    factor = transformer.d_model**-0.5 if scaled else 1.0
    weights = {
        **_embeddings(is_tied),
        **_stack("encoder", transformer.num_encoder_layers, transformer, 1.0),
        **_stack("decoder", transformer.num_decoder_layers, transformer, factor),
    }
    tokenizer = _tokenizer(folder, transformer)
    decoding = read_decoding(folder, fields)
    return ImportedModel(transformer, (tokenizer, tokenizer), decoding, checkpoint, weights, _UNUSED)


def _embeddings(is_tied: bool) -> dict[str, Source]:
    if is_tied:
        return {"shared_embedding/embeddings": same(_SHARED)}
    return {
        "source_embedding/embeddings": same(_SHARED),
        "target_embedding/embeddings": same(_SHARED),
        "target_embedding/reverse_embeddings": transposed(_SOFTMAX),
    }


def _stack(side: str, layers: int, transformer: TransformerConfig, factor: float) -> dict[str, Source]:
    """The weights of an encoder or decoder, whose last norm multiplies by `factor`, too."""
    bias = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    weights = {
        f"{side}/positions/biases": same(bias),
        f"{side}/final_norm/scale": _scaled(f"{side}.final_layer_norm.weight", factor),
    }
    for index in range(layers):
        weights |= dict(_layer(side, index, transformer))
    return weights


def _layer(side: str, index: int, transformer: TransformerConfig) -> Iterator[tuple[str, Source]]:
    path, name = f"{side}/layer_{index}", f"{side}.block.{index}.layer"
    kinds = {"self_attention": "SelfAttention", "cross_attention": "EncDecAttention"}
    parts = list(kinds)[: 1 if side == "encoder" else 2]
    for number, part in enumerate(parts):
        for ours, theirs in _PROJECTIONS.items():
            tensor = f"{name}.{number}.{kinds[part]}.{theirs}.weight"
            # kformer divides queries by the root of their size, and T5 does not.
            factor = transformer.head_size**0.5 if ours == "query" else 1.0
            yield f"{path}/{part}/{ours}/kernel", _scaled(tensor, factor)
        yield f"{path}/{part}_residual/norm/scale", same(f"{name}.{number}.layer_norm.weight")
    inner = {"inner": "wi"} if transformer.activation == "relu" else {"gate": "wi_0", "inner": "wi_1"}
    for ours, theirs in {**inner, "outer": "wo"}.items():
        yield f"{path}/feed_forward/{ours}/kernel", transposed(f"{name}.{len(parts)}.DenseReluDense.{theirs}.weight")
    yield f"{path}/feed_forward_residual/norm/scale", same(f"{name}.{len(parts)}.layer_norm.weight")


def _scaled(name: str, factor: float) -> Source:
    """A tensor times a number; a matrix is kept as (out, in)."""
    return Source((name,), lambda tensor: np.transpose(tensor) * np.float32(factor))


def _tokenizer(folder: pathlib.Path, transformer: TransformerConfig) -> PieceVocabularyTokenizer:
    """Ids behind those of the pieces, such as those of <extra_id_0>, stand for no text."""
    path = folder / "spiece.model"
    model_bytes = read_model_file(path)
    processor = read_model(model_bytes)
    pieces = [processor.id_to_piece(number) for number in range(processor.vocab_size())]
    read_added_tokens(folder).check(pieces)
    warn_of_cleaning(folder)
    more = transformer.source_vocab_size - len(pieces)
    if more < 0:
        raise ValueError(
            f"{path} has {len(pieces)} pieces. Expected: at most vocab_size={transformer.source_vocab_size} of "
            "config.json. The files are of different models."
        )
    special = (transformer.pad_id, transformer.start_id, transformer.end_id, processor.unk_id())
    return PieceVocabularyTokenizer(model_bytes, [*pieces, *[""] * more], *special)
