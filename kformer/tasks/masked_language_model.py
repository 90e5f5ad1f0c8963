"""Masked language model (Devlin et al. 2019): an encoder learns from plain text.

Classifiers and taggers begin with its weights.
"""

import pathlib
from collections.abc import Sequence

import numpy as np

from kformer.config import DecodingConfig, TrainingConfig, TransformerConfig
from kformer.data import EncodedPairs, Pair
from kformer.data.arrangements import Arrangement, MaskedTokens
from kformer.data.encoding import Sequences, encode_with
from kformer.tasks.base import Task
from kformer.tasks.predictor import Predictor
from kformer.tasks.texts import encoded_texts
from kformer.tokenizers import Tokenizer, train_tokenizers
from kformer.tokenizers.base import NUM_SPECIAL_IDS, UNKNOWN_ID


class ModelMaskedLanguage(Task):
    """From a text with hidden tokens to these tokens. Of a pair, only the source is used.

    The id of unknown tokens hides tokens: a subword tokenizer with bytes never gives it to a text.
    """

    name = "masked-language-model"
    command = ""

    def pairs(self, pairs: Sequence[Pair]) -> Sequence[Pair]:
        return [(text, text) for text, _ in pairs]

    def adapt(self, transformer: TransformerConfig) -> TransformerConfig:
        return transformer.replace(num_decoder_layers=0)

    def train_tokenizers(self, pairs: Sequence[Pair], training: TrainingConfig) -> tuple[Tokenizer, Tokenizer]:
        return train_tokenizers(pairs, training.replace(shared_vocabulary=True))

    def encode(self, pairs: Sequence[Pair], tokenizers: tuple[Tokenizer, Tokenizer], max_length: int) -> EncodedPairs:
        def encode(pairs: Sequence[Pair]) -> tuple[Sequences, Sequences]:
            texts = encoded_texts([text for text, _ in pairs], tokenizers[0])
            return texts, texts

        return encode_with(encode, pairs, *tokenizers, max_length)

    def arrangement(self, tokenizers: tuple[Tokenizer, Tokenizer]) -> Arrangement:
        tokenizer = tokenizers[0]
        return MaskedTokens(tokenizer.vocab_size, NUM_SPECIAL_IDS, UNKNOWN_ID, word_starts(tokenizer))

    def load(self, run: str | pathlib.Path, decoding: DecodingConfig | None = None) -> Predictor:
        raise ValueError(
            f"{run} is a masked language model, which answers nothing by itself. Train a classifier or a tagger that "
            f"begins with its weights: `kformer train --task classify --initialize-from {run}`."
        )


def word_starts(tokenizer: Tokenizer) -> np.ndarray | None:
    """(V,) booleans, True for tokens that begin a word; None if the tokenizer does not tell it."""
    return None
