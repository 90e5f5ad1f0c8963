"""A small BART: its weights and logits. kformer has no tokenizer for it."""

import pathlib

import make_example
import make_m2m100
import numpy as np
import torch
import transformers


def make(folder: pathlib.Path) -> None:
    config = transformers.BartConfig(vocab_size=60, init_std=0.3, **make_m2m100.SIZES)
    torch.manual_seed(11)
    model = transformers.BartForConditionalGeneration(config).eval()
    model.final_logits_bias.normal_(0, 0.5)
    model.save_pretrained(folder)
    random = np.random.default_rng(0)
    sources = [[0, *random.integers(4, 60, size).tolist(), 2] for size in (7, 4)]
    target_in = [[2, 0, *random.integers(4, 60, 4).tolist()] for _ in sources]
    padded = torch.tensor([ids + [1] * (9 - len(ids)) for ids in sources])
    with torch.no_grad():
        logits = model(
            input_ids=padded, attention_mask=(padded != 1).long(), decoder_input_ids=torch.tensor(target_in)
        ).logits.numpy()
    expected = {"ids": sources, "target_in": target_in, "logits": make_example.sample_logits(logits)}
    make_example.note(folder, expected)
