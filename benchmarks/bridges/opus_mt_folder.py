"""Makes a folder in the form of OPUS-MT's models, with random weights: what `kformer import` reads, without a network.

    python -m benchmarks.bridges.opus_mt_folder opus-mt-en-es

The files are those of such a folder of Hugging Face: config.json, generation_config.json, vocab.json, source.spm,
target.spm, tokenizer_config.json and model.safetensors. The SentencePiece models are trained on the verses of
`bible-en-es`. `--size base` has the sizes of opus-mt-en-es: 65,001 tokens, 6 + 6 layers of d_model 512, 310 MB.
"""

import argparse
import io
import json
import pathlib
from typing import Any

import numpy as np

from kformer.importing.safetensors_file import SAFETENSORS_FILE, write_checkpoint

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"d_model": 64, "layers": 2, "ffn_dim": 128, "heads": 4, "pieces": 1000, "vocab_size": None},
    "base": {"d_model": 512, "layers": 6, "ffn_dim": 2048, "heads": 8, "pieces": 8000, "vocab_size": 65001},
}
SPECIAL = ("</s>", "<unk>")  # they begin a vocabulary of OPUS-MT, and <pad> ends it
POSITIONS = 512


def make(folder: pathlib.Path, size: str = "tiny", dtype: str = "float32", seed: int = 1) -> None:
    """Writes the folder.

    Args:
        folder: A new one.
        size: One of `SIZES`.
        dtype: Of the weights in the file: "float32" or "float16".
        seed: Of the weights.
    """
    folder.mkdir(parents=True)
    sizes = SIZES[size]
    pieces = write_tokenizers(folder, sizes["pieces"])
    fillers = (sizes["vocab_size"] or 0) - len(SPECIAL) - len(pieces) - 1
    vocabulary = [*SPECIAL, *pieces, *(f"▁unused{number}" for number in range(fillers)), "<pad>"]
    ids = {piece: number for number, piece in enumerate(vocabulary)}
    (folder / "vocab.json").write_text(json.dumps(ids, ensure_ascii=False), encoding="utf-8")
    for name, content in configurations(sizes, len(vocabulary)).items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    tensors = random_tensors(sizes, len(vocabulary), np.random.default_rng(seed))
    if dtype == "float32":
        write_checkpoint(folder, tensors)
    else:
        from safetensors.numpy import save_file

        rounded = {name: np.ascontiguousarray(tensor, dtype) for name, tensor in tensors.items()}
        save_file(rounded, folder / SAFETENSORS_FILE, {"format": "pt"})


def write_tokenizers(folder: pathlib.Path, number: int) -> list[str]:
    """Trains both SentencePiece models, and returns the pieces of both without the special ones."""
    import sentencepiece

    from kformer.data import load_corpus

    pieces: list[str] = []
    for side, texts in zip(("source", "target"), zip(*load_corpus("bible-en-es").train, strict=True), strict=True):
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts[::4]), model_writer=model, vocab_size=number, model_type="bpe", minloglevel=2
        )
        (folder / f"{side}.spm").write_bytes(model.getvalue())
        processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        pieces += [processor.id_to_piece(piece) for piece in range(3, processor.vocab_size())]
    return sorted(dict.fromkeys(pieces))


def configurations(sizes: dict[str, Any], vocab_size: int) -> dict[str, dict[str, Any]]:
    """The files of JSON by their names. Texts end early, as random weights seldom find the end."""
    pad = vocab_size - 1
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (
            ("layers", sizes["layers"]),
            ("ffn_dim", sizes["ffn_dim"]),
            ("attention_heads", sizes["heads"]),
        )
    }
    model = {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "activation_function": "swish",
        "d_model": sizes["d_model"],
        **sides,
        "vocab_size": vocab_size,
        "max_position_embeddings": POSITIONS,
        "scale_embedding": True,
        "static_position_embeddings": True,
        "pad_token_id": pad,
        "decoder_start_token_id": pad,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "forced_eos_token_id": 0,
    }
    search = {
        "num_beams": 4,
        "max_length": 16,
        "bad_words_ids": [[pad]],
        "renormalize_logits": True,
        "forced_eos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": pad,
        "decoder_start_token_id": pad,
    }
    languages = {"source_lang": "eng", "target_lang": "spa"}
    return {"config.json": model, "generation_config.json": search, "tokenizer_config.json": languages}


def random_tensors(sizes: dict[str, Any], vocab_size: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """All tensors by the names of MarianMTModel, float32."""
    width, inner = sizes["d_model"], sizes["ffn_dim"]
    shapes: dict[str, tuple[int, ...]] = {
        "model.shared.weight": (vocab_size, width),
        "final_logits_bias": (1, vocab_size),
    }
    for side in ("encoder", "decoder"):
        for layer in range(sizes["layers"]):
            name = f"model.{side}.layers.{layer}"
            attentions = ["self_attn", "encoder_attn"] if side == "decoder" else ["self_attn"]
            for attention in attentions:
                for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    shapes |= _dense(f"{name}.{attention}.{part}", width, width)
            shapes |= _dense(f"{name}.fc1", width, inner) | _dense(f"{name}.fc2", inner, width)
            for norm in (*attentions, "final"):
                norm_name = f"{name}.{norm}_layer_norm"
                shapes |= {f"{norm_name}.weight": (width,), f"{norm_name}.bias": (width,)}
    tensors = {}
    for name, shape in shapes.items():
        tensor = generator.standard_normal(shape, "float32")
        tensor *= np.float32(0.05)
        tensor += np.float32(name.endswith("layer_norm.weight"))
        tensors[name] = tensor
    return tensors


def _dense(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="to make")
    parser.add_argument("--size", default="tiny", choices=SIZES)
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16"], help="of the weights in the file")
    arguments = parser.parse_args()
    make(arguments.folder, arguments.size, arguments.dtype)
    megabytes = (arguments.folder / SAFETENSORS_FILE).stat().st_size / 1e6
    print(f"{arguments.folder}: random weights, {megabytes:,.1f} MB")


if __name__ == "__main__":
    main()
