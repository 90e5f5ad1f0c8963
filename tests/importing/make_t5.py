"""A small T5 of version 1.0: one matrix for all embeddings, ReLU."""

import json
import pathlib

import make_example
import make_translator
import torch
import transformers

PIECES, SENTINELS, WIDTH = 400, 100, 24


def make(folder: pathlib.Path) -> None:
    model = random_model(12, feed_forward_proj="relu")
    model.get_output_embeddings().weight.data[1] *= 2  # so that texts end
    write(folder, model)


def random_model(seed: int, **options: object) -> transformers.T5ForConditionalGeneration:
    """A model with random weights."""
    sizes = {"d_model": WIDTH, "d_kv": 7, "d_ff": 40, "num_layers": 2, "num_heads": 4}
    config = transformers.T5Config(
        vocab_size=PIECES + SENTINELS + 8, decoder_start_token_id=0, initializer_factor=1.0, **sizes, **options
    )
    torch.manual_seed(seed)
    model = transformers.T5ForConditionalGeneration(config).eval()
    for stack in (model.encoder, model.decoder):  # distances matter
        stack.block[0].layer[0].SelfAttention.relative_attention_bias.weight.data.normal_(0, 1.0)
    for block in model.decoder.block:  # so that texts differ
        block.layer[1].EncDecAttention.o.weight.data *= 10
    # A trained model never predicts the padding. This one calls for the same token again and again.
    model.generation_config.update(num_beams=4, max_length=20, bad_words_ids=[[0]], no_repeat_ngram_size=2)
    return model


def write(folder: pathlib.Path, model: transformers.T5ForConditionalGeneration) -> None:
    """Writes tokenizer, weights and answers of a model."""
    ids = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    file = folder / "spiece.model"
    make_example.sentencepiece_model(file, PIECES, character_coverage=0.999, normalization_rule_name="nfkc", **ids)
    (folder / "tokenizer_config.json").write_text(json.dumps({"extra_ids": SENTINELS}))
    tokenizer = transformers.T5Tokenizer.from_pretrained(folder)
    model.save_pretrained(folder)
    make_example.note(folder, make_translator.answers(model, tokenizer, make_example.lines()))
