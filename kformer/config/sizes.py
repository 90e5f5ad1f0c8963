"""Sizes of models, and the options of training that suit each size."""

from typing import Any

from kformer.wording import did_you_mean

# Table 3 of the paper for base and big; tiny and small are sized for a laptop.
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"d_model": 128, "d_ff": 512, "num_heads": 4, "num_encoder_layers": 3, "num_decoder_layers": 3},
    "small": {"d_model": 256, "d_ff": 1024, "num_heads": 4, "num_encoder_layers": 3, "num_decoder_layers": 3},
    "base": {"d_model": 512, "d_ff": 2048, "num_heads": 8, "num_encoder_layers": 6, "num_decoder_layers": 6},
    "big": {
        "d_model": 1024,
        "d_ff": 4096,
        "num_heads": 16,
        "num_encoder_layers": 6,
        "num_decoder_layers": 6,
        "dropout_rate": 0.3,
    },
    # About as many parameters as `small` and `base`, most of them in the encoder, which runs once (Kasai et al. 2021).
    "small-shallow-decoder": {
        "d_model": 256,
        "d_ff": 1024,
        "num_heads": 4,
        "num_encoder_layers": 6,
        "num_decoder_layers": 1,
    },
    # For a student of another model: see docs/distillation.md.
    "tiny-shallow-decoder": {
        "d_model": 192,
        "d_ff": 768,
        "num_heads": 3,
        "num_encoder_layers": 4,
        "num_decoder_layers": 1,
    },
    "base-shallow-decoder": {
        "d_model": 512,
        "d_ff": 2048,
        "num_heads": 8,
        "num_encoder_layers": 12,
        "num_decoder_layers": 1,
    },
}
_TEN_THOUSANDS_OF_PAIRS = {
    "vocab_size": 4000,
    "tokens_per_batch": 4096,
    "warmup_steps": 800,
    "learning_rate_scale": 1.2,
    "ema_decay": 0.999,
    "fit_warmup": True,
}
_PAPERS_DATA = {"vocab_size": 37000, "tokens_per_batch": 25000, "max_length": 256, "fit_warmup": True}
# Training options for each size. Those of "tiny" and "small" are for corpora of tens of thousands of pairs, those of
# "base" and "big" follow section 5.
TRAINING_OF_SIZE: dict[str, dict[str, Any]] = {
    "tiny": _TEN_THOUSANDS_OF_PAIRS,
    "small": _TEN_THOUSANDS_OF_PAIRS,
    "base": _PAPERS_DATA,
    "big": _PAPERS_DATA,
    "small-shallow-decoder": _TEN_THOUSANDS_OF_PAIRS,
    "tiny-shallow-decoder": _TEN_THOUSANDS_OF_PAIRS,
    "base-shallow-decoder": _PAPERS_DATA,
}


def values_of_size(sizes: dict[str, dict[str, Any]], name: str) -> dict[str, Any]:
    if name not in sizes:
        raise ValueError(f"There is no size {name!r}. Choose one of {', '.join(sizes)}.{did_you_mean([name], sizes)}")
    return sizes[name]
