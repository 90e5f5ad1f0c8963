"""A small NLLB."""

import json
import pathlib

import make_example
import make_m2m100
import make_translator
import transformers
from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES

PIECES = 500


def make(folder: pathlib.Path) -> None:
    options = {"model_type": "bpe", "character_coverage": 0.999, "normalization_rule_name": "nfkc"}
    make_example.sentencepiece_model(folder / "sentencepiece.bpe.model", PIECES, **options)
    tokenizer = make_tokenizer(folder)
    (folder / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": FAIRSEQ_LANGUAGE_CODES}))
    model = make_m2m100.random_model(PIECES + 1 + len(FAIRSEQ_LANGUAGE_CODES) + 1)
    spanish = tokenizer.convert_tokens_to_ids("spa_Latn")
    model.generation_config.update(num_beams=4, max_length=24, forced_bos_token_id=spanish, renormalize_logits=True)
    model.save_pretrained(folder)
    make_example.note(folder, make_translator.answers(model, tokenizer, make_example.lines()))


def make_tokenizer(folder: pathlib.Path) -> transformers.NllbTokenizer:
    """The tokenizer with the ids of NLLB's own tokenizer.json: languages behind the pieces, then the mask."""
    plain = transformers.NllbTokenizer.from_pretrained(folder)
    pieces = ["<s>", "<pad>", "</s>", "<unk>"]
    pieces += [piece for piece in sorted(plain._vocab, key=plain._vocab.get) if piece not in pieces][: PIECES - 3]
    vocab = {piece: number for number, piece in enumerate([*pieces, *FAIRSEQ_LANGUAGE_CODES, "<mask>"])}
    languages = {"src_lang": "eng_Latn", "tgt_lang": "spa_Latn"}
    tokenizer = transformers.NllbTokenizer(vocab=vocab, merges=plain._merges, **languages)
    tokenizer._tokenizer.normalizer = plain._tokenizer.normalizer
    assert tokenizer.convert_tokens_to_ids("ace_Arab") == PIECES + 1
    return tokenizer
