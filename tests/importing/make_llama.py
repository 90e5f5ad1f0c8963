"""A small Llama model with grouped heads, an untied softmax and a SentencePiece vocabulary with bytes."""

import json
import pathlib

import make_example
import make_language_model
import sentencepiece
import torch
import transformers

VOCAB_SIZE = 600


def make(folder: pathlib.Path) -> None:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(make_language_model.verses()),
        model_prefix=str(folder / "tokenizer"),
        vocab_size=VOCAB_SIZE,
        model_type="bpe",
        byte_fallback=True,
        split_digits=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        minloglevel=2,
    )
    (folder / "tokenizer.vocab").unlink()
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "LlamaTokenizer", "add_bos_token": True})
    )
    config = transformers.LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=12,
        max_position_embeddings=64,
        rms_norm_eps=1e-5,
        initializer_range=0.3,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
    )
    torch.manual_seed(4)
    model = transformers.LlamaForCausalLM(config).eval()
    make_language_model.vary(model)
    model.save_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    special = [tokenizer.unk_token_id, tokenizer.bos_token_id]
    make_example.note(folder, make_language_model.answers(model, tokenizer, special))
