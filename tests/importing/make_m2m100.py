"""A small M2M100."""

import json
import pathlib

import make_example
import make_translator
import sentencepiece
import torch
import transformers
from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES

SIZES = {"d_model": 24, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40}
SIZES |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "max_position_embeddings": 128}


def make(folder: pathlib.Path) -> None:
    file = folder / "sentencepiece.bpe.model"
    make_example.sentencepiece_model(file, 500, model_type="bpe", character_coverage=0.999)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(file))
    pieces = sorted(processor.id_to_piece(number) for number in range(3, 500))[:-30]
    vocab = {piece: number for number, piece in enumerate(["<s>", "<pad>", "</s>", "<unk>", *pieces])}
    (folder / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False), encoding="utf-8")
    languages = [f"__{code}__" for code in FAIRSEQ_LANGUAGE_CODES["m2m100"]]
    (folder / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": languages}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"src_lang": "en", "tgt_lang": "es"}))
    tokenizer = transformers.M2M100Tokenizer.from_pretrained(folder)
    model = random_model(len(vocab) + len(languages))
    model.generation_config.update(
        num_beams=4, max_length=24, early_stopping=True, forced_bos_token_id=tokenizer.get_lang_id("es")
    )
    model.save_pretrained(folder)
    make_example.note(folder, make_translator.answers(model, tokenizer, make_example.lines()))


def random_model(vocab_size: int) -> transformers.M2M100ForConditionalGeneration:
    """A model with random weights."""
    torch.manual_seed(9)
    config = transformers.M2M100Config(vocab_size=vocab_size, init_std=0.6, **SIZES)
    model = transformers.M2M100ForConditionalGeneration(config).eval()
    make_translator.heed_source(model)
    make_translator.favour_end(model, model.model.decoder.layer_norm.bias, 7.0)
    return model
