"""A kformer model as Hugging Face Marian and as CTranslate2: the same weights, the same arithmetic.

Marian has the same architecture, except that its sinusoids have another order (all sines, then all cosines) and its
layer norms another epsilon. Here it gets kformer's table and epsilon.
"""

import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import kformer

LAYER_NORM_EPSILON = 1e-6
# Positions that the peers' tables have room for.
MAX_POSITIONS = 640


def marian_arrays(model: Any) -> dict[str, np.ndarray]:
    """The weights of a Keras Transformer with one shared embedding, post-norm, under Marian's names."""
    layers = {layer.name: layer for layer in model.layers}
    embeddings = np.asarray(layers["shared_embedding"].embeddings)
    positions = np.asarray(layers["encoder"].positions.table(MAX_POSITIONS))
    arrays = {"model.shared.weight": embeddings, "model.encoder.embed_positions.weight": positions}
    for side in ("encoder", "decoder"):
        for index, layer in enumerate(layers[side].layers):
            name = f"model.{side}.layers.{index}."
            arrays |= _attention(name + "self_attn", layer.self_attention)
            arrays |= _norm(name + "self_attn_layer_norm", layer.self_attention_residual.norm)
            if side == "decoder":
                arrays |= _attention(name + "encoder_attn", layer.cross_attention)
                arrays |= _norm(name + "encoder_attn_layer_norm", layer.cross_attention_residual.norm)
            arrays |= _dense(name + "fc1", layer.feed_forward.inner)
            arrays |= _dense(name + "fc2", layer.feed_forward.outer)
            arrays |= _norm(name + "final_layer_norm", layer.feed_forward_residual.norm)
    return arrays


def new_marian(config: dict[str, Any]) -> Any:
    """A `MarianMTModel` with random weights; `config` is a `TransformerConfig` as a dictionary."""
    from transformers import MarianConfig, MarianMTModel

    return MarianMTModel(
        MarianConfig(
            vocab_size=config["target_vocab_size"],
            decoder_vocab_size=config["target_vocab_size"],
            d_model=config["d_model"],
            encoder_layers=config["num_encoder_layers"],
            decoder_layers=config["num_decoder_layers"],
            encoder_attention_heads=config["num_heads"],
            decoder_attention_heads=config["num_heads"],
            encoder_ffn_dim=config["d_ff"],
            decoder_ffn_dim=config["d_ff"],
            dropout=config["dropout_rate"],
            max_position_embeddings=MAX_POSITIONS,
            pad_token_id=config["pad_id"],
            bos_token_id=config["start_id"],
            decoder_start_token_id=config["start_id"],
            eos_token_id=config["end_id"],
            forced_eos_token_id=None,
            activation_function="relu",
            scale_embedding=True,
            share_encoder_decoder_embeddings=True,
        )
    )


def marian_model(arrays: dict[str, np.ndarray], config: dict[str, Any]) -> Any:
    """A `MarianMTModel` with these weights; `config` is a `TransformerConfig` as a dictionary."""
    import torch

    model = new_marian(config).eval()
    state = {name: torch.from_numpy(np.array(array, "float32")) for name, array in arrays.items()}
    state["model.decoder.embed_positions.weight"] = state["model.encoder.embed_positions.weight"]
    for name in ("lm_head", "model.encoder.embed_tokens", "model.decoder.embed_tokens"):
        state[name + ".weight"] = state["model.shared.weight"]
    missing, unexpected = model.load_state_dict(state, strict=False)
    if unexpected or set(missing) - {"final_logits_bias"}:
        raise ValueError(f"Marian's names have changed. Missing: {missing}. Unexpected: {unexpected}.")
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = LAYER_NORM_EPSILON
    return model


def write_peers(translator: "kformer.Translator", precisions: Sequence[str], folder: pathlib.Path) -> None:
    """Writes the weights of a translator for the peers, and its configuration beside them.

    Args:
        translator: Its model must be one that `marian_arrays` takes.
        precisions: Those of CTranslate2's models, which are written to the folders `ctranslate2-PRECISION`.
        folder: Gets these, and the arrays of Marian: `marian.npz`.
    """
    import kformer  # not above: the processes that run Marian import this module, and must not load TensorFlow

    translator.config.save(folder / "transformer.json")
    np.savez(folder / "marian.npz", **marian_arrays(translator.model))
    for precision in precisions:
        kformer.export_ctranslate2(translator, folder / f"ctranslate2-{precision}", precision)


def _dense(name: str, layer: Any) -> dict[str, np.ndarray]:
    return {name + ".weight": np.asarray(layer.kernel).T, name + ".bias": np.asarray(layer.bias)}


def _norm(name: str, layer: Any) -> dict[str, np.ndarray]:
    return {name + ".weight": np.asarray(layer.gamma), name + ".bias": np.asarray(layer.beta)}


def _attention(name: str, layer: Any) -> dict[str, np.ndarray]:
    return (
        _dense(name + ".q_proj", layer.query_projection)
        | _dense(name + ".k_proj", layer.key_projection)
        | _dense(name + ".v_proj", layer.value_projection)
        | _dense(name + ".out_proj", layer.output_projection)
    )
