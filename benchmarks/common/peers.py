"""A kformer model as Hugging Face Marian and as CTranslate2: the same weights, the same arithmetic.

Marian has the same architecture, except that its sinusoids have another order (all sines, then all cosines) and its
layer norms another epsilon. Here it gets kformer's table and epsilon.
"""

import argparse
import json
import pathlib
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

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


def write_peers(model: Any, config: dict[str, Any], precisions: Sequence[str], folder: pathlib.Path) -> None:
    """Writes the weights of a Keras Transformer for the peers, and its configuration beside them.

    CTranslate2's converter needs PyTorch, whose newer versions crash in a process that has loaded TensorFlow. So it
    runs in a process of its own.

    Args:
        model: See `marian_arrays`.
        config: A `TransformerConfig` as a dictionary: `transformer.json`.
        precisions: Of CTranslate2's models: the folders `ctranslate2-PRECISION`.
        folder: Gets these, and the arrays of Marian: `marian.npz`.
    """
    (folder / "transformer.json").write_text(json.dumps(config))
    np.savez(folder / "marian.npz", **marian_arrays(model))
    subprocess.run([sys.executable, "-m", "benchmarks.common.peers", str(folder), *precisions], check=True)


def write_ctranslate2(
    arrays: dict[str, np.ndarray], config: dict[str, Any], precision: str, directory: pathlib.Path
) -> None:
    """Writes a CTranslate2 model, as its own converters do: quantized to `precision`, equal matrices stored once."""
    from ctranslate2.converters.transformers import MarianMTLoader
    from ctranslate2.specs import TransformerSpec, common_spec

    model = marian_model(arrays, config)
    spec = TransformerSpec.from_config(
        (config["num_encoder_layers"], config["num_decoder_layers"]),
        config["num_heads"],
        pre_norm=False,
        activation=common_spec.Activation.RELU,
    )
    loader = MarianMTLoader()
    loader.set_encoder(spec.encoder, model.model.encoder)
    loader.set_decoder(spec.decoder, model.model.decoder)
    spec.decoder.start_from_zero_embedding = False  # the original Marian does so; our start token has an embedding
    loader.set_linear(spec.decoder.projection, model.lm_head)
    names = {config["pad_id"]: "<pad>", config["start_id"]: "<s>", config["end_id"]: "</s>", 3: "<unk>"}
    tokens = [names.get(index, str(index)) for index in range(config["target_vocab_size"])]
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.decoder_start_token = "<s>"
    spec.config.layer_norm_epsilon = LAYER_NORM_EPSILON
    spec.validate()
    spec.optimize(quantization=precision)
    directory.mkdir(parents=True, exist_ok=True)
    spec.save(str(directory))


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


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes CTranslate2's models beside the arrays of `write_peers`.")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("precisions", nargs="+")
    arguments = parser.parse_args()
    with np.load(arguments.folder / "marian.npz") as stored:
        found = {name: stored[name] for name in stored.files}
    sizes = json.loads((arguments.folder / "transformer.json").read_text())
    for precision in arguments.precisions:
        write_ctranslate2(found, sizes, precision, arguments.folder / f"ctranslate2-{precision}")


if __name__ == "__main__":
    main()
