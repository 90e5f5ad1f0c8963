"""A small BERT with the heads of its pre-training, without upper case."""

import json
import pathlib

import make_example
import numpy as np
import tokenizers
import torch
import transformers

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
SPECIAL = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
EVERY = 10  # of the logits of a position, only those of every tenth token are noted
ODD = [
    "naïve ☃ café ÉCOLE a\u0301b",
    "two  blanks\tand a tab",
    "1,024.5% of $3.50 = ~3",
    "ÑANDÚ, ñandú; Ångström",
    "...",
    "𝒳y 𝔘𝔫𝔦",
    "“quoted” – dash — and ‹more›",
    "ΣΊΣΥΦΟΣ ΟΔΟΣ ς σ",
    "İstanbul ISPARTA ılık",
    "Straße ﬁn ẞ Ǆ ǅ ǆ",
    "人人生而自由，在尊严和权利上一律平等。",
    "すべての人間は、コンピューター ﾟ",
    "모든 인간은 태어날 때부터",
    "ส\u0e34ทธ\u0e34มน\u0e38ษยชน",
    "يولد جميع الناس أحرارا",
    "כל בני ה\u05b8א\u05b8ד\u05b8ם",
    "सभ\u0940 मन\u0941ष\u094dय\u094b\u0902 क\u094b",
    "Все люди Ёлка Й",
    "zero\u200bwidth soft\xadhyphen\ufeff",
    "no\xa0break\u2003em\u3000wide\u2028line",
    "bell\x07nul\x00del\x7fnel\x85!",
    "replaced � character",
    "x" * 100,
    "x" * 101,
    "é" * 100 + " " + "é" * 101,
    "don't we'll o'clock",
    "under_score #hash @at ^ ` | <b>",
    "private \ue000\U000f0000 use",
    "emoji 👍🏽 👩\u200d👩\u200d👧 🇪🇸",
    "ⅠⅡ ⅷ ² ½ ℌ ™",
    "\u0301\u0302",
    "a\u0307\u0323 ṩ",
    "  ",
    "##s ## # [ MASK ]",
    "𝟘𠮷𪚥㐀豈",
    "ᏣᎳᎩ ꭰꭱ ᲐᲑ აბ Ⴀ",
    "ÀÈÌÒÙ àèìòù Ǘ ǘ",
    "K Å Ω ſt",
    "¿Qué? ¡Sí! «no»",
    "tab\there\nline\r\nend",
]


def lines(number: int = make_example.LINES) -> list[str]:
    """Verses, and lines that tokenizers may stumble over."""
    return [*ODD, *make_example.lines()][:number]


def make(folder: pathlib.Path) -> None:
    config = write_tokenizer(folder, lowercase=True)
    model = random_model(transformers.BertForPreTraining, config)
    model.save_pretrained(folder)
    tokenizer = transformers.BertTokenizer.from_pretrained(folder)
    pairs = [["The first text.", "And the second one!"], ["In the beginning", "the heavens"]]
    masked = tokenizer("the [MASK] of god", return_tensors="pt")
    with torch.no_grad():
        found = [model(**tokenizer(*pair, return_tensors="pt")).prediction_logits for pair in pairs]
        found.append(model(**masked).prediction_logits)
    pooled = [model.bert(**tokenizer(*pair, return_tensors="pt")).pooler_output.detach().numpy() for pair in pairs]
    expected = {
        "lines": lines(),
        "ids": tokenizer(lines()).input_ids,
        "pairs": pairs,
        "pair_ids": tokenizer([pair[0] for pair in pairs], [pair[1] for pair in pairs]).input_ids,
        "every": EVERY,
        "masked": masked.input_ids.tolist(),
        "logits": [make_example.sample_logits(logits.numpy()[..., ::EVERY]) for logits in found],
        "pooled": np.round(np.concatenate(pooled), 5).tolist(),
    }
    make_example.note(folder, expected)


def write_tokenizer(folder: pathlib.Path, lowercase: bool, **options: object) -> transformers.BertConfig:
    """Writes vocab.txt and tokenizer_config.json, and returns the configuration of a model of this vocabulary."""
    trainer = tokenizers.BertWordPieceTokenizer(lowercase=lowercase)
    # Of half of the odd lines, so that something is unknown.
    texts = [*(line for line in ODD[::2] for _ in range(3)), *make_example.lines()]
    trainer.train_from_iterator(texts, vocab_size=555, min_frequency=3, special_tokens=SPECIAL, show_progress=False)
    by_id = sorted(trainer.get_vocab().items(), key=lambda item: item[1])
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece, _ in by_id), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lowercase}) + "\n")
    vocab_size = -(-len(by_id) // 8) * 8  # rounded up, so that some ids have no piece
    return transformers.BertConfig(vocab_size=vocab_size, max_position_embeddings=128, **SIZES, **options)


def random_model(kind: type, config: transformers.BertConfig) -> torch.nn.Module:
    """A model in which every number is random, also those that begin as 0 or 1."""
    torch.manual_seed(7)
    model = kind(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
    return model
