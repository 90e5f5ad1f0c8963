"""A small GPT-2 model with a byte-level vocabulary."""

import json
import pathlib

import make_example
import make_language_model
import tokenizers
import torch
import transformers

VOCAB_SIZE = 600


def make(folder: pathlib.Path) -> None:
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    verses = make_language_model.verses()
    tokenizer.train_from_iterator(verses, VOCAB_SIZE, special_tokens=["<|endoftext|>"], show_progress=False)
    tokenizer.save_model(str(folder))
    config = transformers.GPT2Config(
        vocab_size=VOCAB_SIZE,
        n_positions=64,
        n_embd=32,
        n_layer=2,
        n_head=4,
        initializer_range=0.3,
        bos_token_id=0,
        eos_token_id=0,
    )
    torch.manual_seed(3)
    model = transformers.GPT2LMHeadModel(config).eval()
    make_language_model.vary(model)
    model.save_pretrained(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer"}))
    reference = transformers.GPT2Tokenizer.from_pretrained(folder)
    unused = [reference.convert_tokens_to_ids("ÿ")]
    make_example.note(folder, make_language_model.answers(model, reference, unused))
