"""A small BART with a byte-level vocabulary, its configuration as that of bart-large-cnn: the mask has no row."""

import json
import pathlib

import make_example
import make_language_model
import make_translator
import tokenizers
import torch
import transformers

VOCAB_SIZE = 433  # with the mask, which is the last token
SIZES = {"d_model": 28, "encoder_layers": 3, "decoder_layers": 2, "encoder_ffn_dim": 44, "decoder_ffn_dim": 44}
SIZES |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "max_position_embeddings": 131}
# Beside those of language models: what looks like a special token is text if `split_special_tokens` says so.
ODD_LINES = (
    *("</s>", "a </s> b<s>c", "<mask> is text, <unk> and <pad>too", "x<|endoftext|>", "Ġ Ċ Ā", "s\u00adoft"),
    *("many      blanks     between   words", "tab\tand\t\t\ttabs", "s\u0323\u0307 \u1e69 o\u0308\u0332"),
    *("👩🏿\u200d🚀👩🏿\u200d🚀 🇪🇸🇬🇧 ☺\ufe0f", "日本語のテキスト、한국어 텍스트 และไทย", "ﬁ ﬂ ℃ ㎏"),
    *("\ud7ff\ue000\uffff\U0010ffff", "it'sn't 'LL 'll", "9999999999 1,2.3", "______", "\\n \\t {}[]"),
)


def make(folder: pathlib.Path) -> None:
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    trained = tokenizers.ByteLevelBPETokenizer()
    verses = make_language_model.verses()
    trained.train_from_iterator(verses, VOCAB_SIZE - 1, special_tokens=special, show_progress=False)
    trained.save_model(str(folder))
    vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    vocabulary["<mask>"] = VOCAB_SIZE - 1
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 131}))
    tokenizer = transformers.BartTokenizer.from_pretrained(folder)
    model = random_model()
    model.save_pretrained(folder)
    expected = make_translator.answers(model, tokenizer, lines(), split_special_tokens=True)
    more = {"more_lines": other_lines(), "more_ids": tokenizer(other_lines(), split_special_tokens=True)["input_ids"]}
    make_example.note(folder, {**expected, **more})


def lines() -> list[str]:
    """Single lines that begin and end with a character, because a translator drops white space there."""
    odd = [line for line in (*ODD_LINES, *make_language_model.ODD_LINES) if is_line(line)]
    return [*odd, *make_example.lines()][: make_example.LINES]


def other_lines() -> list[str]:
    """Texts with white space at their ends, or of several lines: a translator reads them in another way."""
    return [" ", "   ", "\n", *(line for line in make_language_model.ODD_LINES if not is_line(line))]


def is_line(text: str) -> bool:
    from kformer.writing_systems import WHITESPACE

    return text == text.strip(WHITESPACE) and "\n" not in text


def random_model() -> transformers.BartForConditionalGeneration:
    """A model with random weights, which searches as bart-large-cnn does."""
    torch.manual_seed(11)
    config = transformers.BartConfig(vocab_size=VOCAB_SIZE - 1, init_std=0.3, **SIZES)
    model = transformers.BartForConditionalGeneration(config).eval()
    model.final_logits_bias.normal_(0, 0.5)
    model.final_logits_bias[0, config.pad_token_id] = -30.0  # a trained model never predicts it
    make_translator.heed_source(model)
    make_translator.favour_end(model, model.model.decoder.layers[-1].final_layer_norm.bias, 4.0)
    model.generation_config.update(
        num_beams=4,
        max_length=29,
        min_length=6,
        no_repeat_ngram_size=3,
        early_stopping=True,
        length_penalty=2.0,
        forced_bos_token_id=0,
        forced_eos_token_id=2,
        decoder_start_token_id=2,
    )
    return model
