"""A small Marian model with a shared vocabulary, as OPUS-MT's are converted."""

import json
import pathlib

import make_example
import make_translator
import sentencepiece
import torch
import transformers

SIZES = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}


def make(folder: pathlib.Path) -> None:
    make_example.sentencepiece_model(folder / "source.spm", 600, character_coverage=0.999)
    make_example.sentencepiece_model(folder / "target.spm", 700, model_type="unigram", character_coverage=0.9995)
    pieces = []
    for side in ("source", "target"):
        processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm"))
        pieces += [processor.id_to_piece(number) for number in range(3, processor.vocab_size())]
    # Some pieces are missing, so that some text is unknown.
    vocabulary = ["</s>", "<unk>", *sorted(dict.fromkeys(pieces))[:-40], ">>fra<<", ">>spa<<", "<pad>"]
    write(folder, vocabulary)


def write(folder: pathlib.Path, vocabulary: list[str]) -> None:
    """Writes weights, configurations and answers of a model with this vocabulary."""
    vocab = {piece: number for number, piece in enumerate(vocabulary)}
    (folder / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"source_lang": "eng", "target_lang": "mul"}))
    pad = vocab["<pad>"]
    config = transformers.MarianConfig(
        vocab_size=len(vocab),
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        max_position_embeddings=128,
        pad_token_id=pad,
        decoder_start_token_id=pad,
        eos_token_id=0,
        bos_token_id=0,
        forced_eos_token_id=0,
        activation_function="swish",
        scale_embedding=True,
        init_std=0.3,
        **SIZES,
    )
    torch.manual_seed(7)
    model = transformers.MarianMTModel(config).eval()
    model.final_logits_bias.normal_(0, 0.5)
    model.final_logits_bias[0, 0] += 3  # so that texts end
    model.generation_config.update(
        num_beams=4, max_length=24, forced_eos_token_id=0, bad_words_ids=[[pad]], renormalize_logits=True
    )
    model.save_pretrained(folder)
    tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    lines = make_example.lines()
    lines[20], lines[21] = f">>spa<< {lines[20]}", f">>xyz<<{lines[21]}"
    make_example.note(folder, make_translator.answers(model, tokenizer, lines))
