"""A small mBART-50, with weights of 16 bits in a file of PyTorch."""

import json
import pathlib

import make_example
import make_m2m100
import make_translator
import torch
import transformers
from transformers.models.mbart50.tokenization_mbart50 import FAIRSEQ_LANGUAGE_CODES

PIECES = 400


def make(folder: pathlib.Path) -> None:
    file = folder / "sentencepiece.bpe.model"
    make_example.sentencepiece_model(file, PIECES, model_type="unigram", character_coverage=0.999)
    tokenizer = transformers.MBart50Tokenizer.from_pretrained(folder, src_lang="en_XX", tgt_lang="es_XX")
    (folder / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": FAIRSEQ_LANGUAGE_CODES}))
    options = {"tokenizer_class": "MBart50Tokenizer", "src_lang": "en_XX", "tgt_lang": "es_XX"}
    (folder / "tokenizer_config.json").write_text(json.dumps(options))
    config = transformers.MBartConfig(
        vocab_size=PIECES + 1 + len(FAIRSEQ_LANGUAGE_CODES) + 1,
        decoder_start_token_id=2,
        scale_embedding=True,
        init_std=0.3,
        **make_m2m100.SIZES,
    )
    torch.manual_seed(10)
    model = transformers.MBartForConditionalGeneration(config).eval()
    model.final_logits_bias.normal_(0, 0.5)
    make_translator.heed_source(model)
    make_translator.favour_end(model, model.model.decoder.layer_norm.bias, 5.0)
    spanish = tokenizer.convert_tokens_to_ids("es_XX")
    assert spanish == PIECES + 1 + FAIRSEQ_LANGUAGE_CODES.index("es_XX")
    model.generation_config.update(
        num_beams=4,
        max_length=20,
        early_stopping=True,
        forced_bos_token_id=spanish,
        forced_eos_token_id=2,
        decoder_start_token_id=2,
    )
    model.half()
    model.config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    make_example.note(folder, make_translator.answers(model.float(), tokenizer, make_example.lines()))
