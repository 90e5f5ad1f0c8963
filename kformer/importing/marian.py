"""Marian's translators as Hugging Face keeps them, such as those of OPUS-MT (Junczys-Dowmunt et al. 2018)."""

import json
import pathlib

import numpy as np

from kformer.config import TransformerConfig
from kformer.importing.activations import ACTIVATIONS
from kformer.importing.bart_layers import bart_layers
from kformer.importing.checkpoint import Checkpoint, open_checkpoint
from kformer.importing.fields import Fields
from kformer.importing.generation import read_decoding
from kformer.importing.imported import ImportedModel, Source, same, transposed
from kformer.tokenizers import PieceVocabularyTokenizer, Tokenizer

_EPSILON = 1e-5  # of PyTorch's layer norm
_SHARED, _SOURCE, _TARGET = (
    "model.shared.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
)
_SOFTMAX, _BIAS = "lm_head.weight", "final_logits_bias"
_POSITIONS = frozenset({"model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"})


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
    tied = _Ties(fields, checkpoint)
    source_vocab_size = fields.number("vocab_size")
    target_vocab_size = fields.get("decoder_vocab_size", source_vocab_size)
    transformer = TransformerConfig(
        source_vocab_size=source_vocab_size,
        target_vocab_size=target_vocab_size,
        num_encoder_layers=fields.number("encoder_layers"),
        num_decoder_layers=fields.number("decoder_layers"),
        d_model=fields.number("d_model"),
        d_ff=fields.same("encoder_ffn_dim", "decoder_ffn_dim"),
        num_heads=fields.same("encoder_attention_heads", "decoder_attention_heads"),
        dropout_rate=float(fields.get("dropout", 0.1)),
        attention_dropout_rate=float(fields.get("attention_dropout", 0.0)),
        activation=fields.choice("activation_function", ACTIVATIONS, default="gelu"),
        layer_norm_epsilon=_EPSILON,
        positional_encoding="sinusoidal_halves",
        embedding_tying=tied.tying,
        scale_embeddings=bool(fields.get("scale_embedding", False)),
        softmax_bias=_BIAS in checkpoint and bool(np.any(checkpoint.read(_BIAS))),
        pad_id=fields.id("pad_token_id"),
        start_id=fields.id("decoder_start_token_id"),
        end_id=fields.id("eos_token_id"),
    )
    weights = {
        **tied.weights,
        **bart_layers("encoder", transformer.num_encoder_layers),
        **bart_layers("decoder", transformer.num_decoder_layers),
    }
    if transformer.softmax_bias:
        weights["logits/bias"] = Source((_BIAS,), np.ravel)
    unused = _POSITIONS | {_BIAS, _SHARED, _SOURCE, _TARGET, _SOFTMAX}
    decoding = read_decoding(folder, fields)
    return ImportedModel(transformer, _tokenizers(folder, transformer), decoding, checkpoint, weights, unused)


class _Ties:
    """Which of a model's three matrices of embeddings are one. The tensors say so, not the configuration.

    Args:
        fields: Of config.json.
        checkpoint: The tensors.

    Attributes:
        tying: The value of `TransformerConfig.embedding_tying`.
        weights: Of the embeddings.
    """

    def __init__(self, fields: Fields, checkpoint: Checkpoint) -> None:
        is_shared = bool(fields.get("share_encoder_decoder_embeddings", True))
        source, target = (
            name if name in checkpoint and not (is_shared and _SHARED in checkpoint) else _SHARED
            for name in (_SOURCE, _TARGET)
        )
        softmax = _SOFTMAX if _SOFTMAX in checkpoint else target
        target_is_softmax = softmax == target or checkpoint.are_equal(target, softmax)
        if target_is_softmax and (source == target or checkpoint.are_equal(source, target)):
            self.tying = "all"
            self.weights = {"shared_embedding/embeddings": same(source)}
            return
        self.tying = "target" if target_is_softmax else "none"
        self.weights = {"source_embedding/embeddings": same(source), "target_embedding/embeddings": same(target)}
        if not target_is_softmax:
            self.weights["target_embedding/reverse_embeddings"] = transposed(softmax)


def _tokenizers(folder: pathlib.Path, transformer: TransformerConfig) -> tuple[Tokenizer, Tokenizer]:
    """Source and target tokenizer. They are never one object: each has a SentencePiece model of its own."""
    target_file = folder / "target_vocab.json"
    source = _tokenizer(folder / "source.spm", folder / "vocab.json", transformer, transformer.source_vocab_size, True)
    vocabulary = target_file if target_file.is_file() else folder / "vocab.json"
    target = _tokenizer(folder / "target.spm", vocabulary, transformer, transformer.target_vocab_size, False)
    return source, target


def _tokenizer(
    model: pathlib.Path, vocabulary: pathlib.Path, transformer: TransformerConfig, vocab_size: int, reads_codes: bool
) -> PieceVocabularyTokenizer:
    if not model.is_file():
        raise FileNotFoundError(f"{model} is missing. Copy the whole folder.")
    pieces = read_pieces(vocabulary, vocab_size)
    if "<unk>" not in pieces:
        raise ValueError(f"{vocabulary} has no piece <unk>, which stands for what the vocabulary lacks.")
    special = (transformer.pad_id, transformer.start_id, transformer.end_id, pieces.index("<unk>"))
    return PieceVocabularyTokenizer(model.read_bytes(), pieces, *special, reads_language_codes=reads_codes)


def read_pieces(path: pathlib.Path, vocab_size: int) -> list[str]:
    """The pieces of a vocabulary in a JSON file, in the order of their ids; "" for an id without a piece.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is no vocabulary, or has ids beyond `vocab_size`.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing. Copy the whole folder.")
    pieces = [""] * vocab_size
    try:
        for piece, number in json.loads(path.read_text(encoding="utf-8")).items():
            pieces[range(vocab_size)[number]] = piece
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(f"{path} is no vocabulary of pieces and their ids: {error!r}. Copy it again.") from error
    except IndexError as error:
        raise ValueError(
            f"{path} gives {piece!r} the id {number}. Expected: ids below vocab_size={vocab_size} of config.json. "
            "The files are of different models."
        ) from error
    return pieces
