"""A small translator of kformer in the shape of the paper, with random weights. transformers answers for its export."""

import pathlib

import numpy as np

import kformer
from kformer.models.building import build_model
from kformer.tokenizers import SentencePieceTokenizer

SIZES = {"d_model": 22, "d_ff": 37, "num_heads": 2, "num_encoder_layers": 2, "num_decoder_layers": 1}
# As transformers searches, so that both find the same.
DECODING = kformer.DecodingConfig(beam_rules="transformers", length_penalty=1.0, max_length=19, max_extra_length=19)


def translator(tokenizer: SentencePieceTokenizer, seed: int = 3, **fields: object) -> kformer.Translator:
    """A translator with weights that are large enough to give many answers, some of which end by themselves.

    Args:
        tokenizer: Of sources and targets.
        seed: Of the weights.
        **fields: Of the configuration, in place of the paper's.
    """
    size = tokenizer.vocab_size
    config = kformer.TransformerConfig(size, size, **{**SIZES, **fields})
    model = build_model(config)
    generator = np.random.default_rng(seed)
    for weight in model.weights:
        scale = 0.2 if weight.path.endswith("embeddings") else 0.4
        array = scale * generator.standard_normal(weight.shape) + (1.0 if weight.path.endswith("gamma") else 0.0)
        weight.assign(array)
    return kformer.Translator(model, config, tokenizer, tokenizer, DECODING)


def example(folder: pathlib.Path) -> kformer.Translator:
    """The translator of the example `marian_of_kformer`, whose SentencePiece model the folder holds."""
    return translator(SentencePieceTokenizer((folder / "source.spm").read_bytes()))
