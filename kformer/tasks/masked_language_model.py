"""The task of a masked language model (Devlin et al. 2019): an encoder learns from plain text.

Classifiers and taggers can begin with its weights.

Shape letters: B texts, S source length.
"""

import pathlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from kformer.config import DecodingConfig, TrainingConfig, TransformerConfig
from kformer.data import EncodedPairs, Pair, Pairs
from kformer.data.arrangements import Arrangement, MaskedTokens
from kformer.data.encoded_ids import IdStore
from kformer.data.encoding import Sequences, encode_with
from kformer.data.pairs import MappedPairs, source_only
from kformer.data.vocabularies import train_tokenizers
from kformer.tasks.base import Task
from kformer.tasks.encoder_inputs import encode_texts, encoded_texts
from kformer.tasks.predictor import Predictor
from kformer.text.codec import longest_source
from kformer.tokenizers import Tokenizer


class MaskedLanguageModel(Predictor):
    """A trained masked language model, which answers nothing by itself. It can leave kformer in some formats.

    Examples:
        >>> model = MaskedLanguageModel.from_run("runs/bert")  # doctest: +SKIP
        >>> kformer.export_safetensors(model, "exported/bert")  # doctest: +SKIP
        PosixPath('exported/bert')
    """

    task = "masked-language-model"

    def answer(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Refuses every text.

        Raises:
            ValueError: Always.
        """
        raise ValueError(
            "A masked language model answers nothing by itself. Train a classifier or a tagger that begins with its "
            "weights."
        )

    def calibration_inputs(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Texts as the model reads them, `source` (B, S) int32, with no token hidden."""
        ids = encode_texts(text, self.source_tokenizer)[:, : longest_source(self.config, self.decoding)]
        return {"source": ids.to_tensor(self.config.pad_id)}


class MaskedLanguageModelTask(Task):
    """The task to predict the hidden tokens of a text. Of a pair, only the source is used.

    An id of the tokenizer stands in place of hidden tokens, see `Tokenizer.mask_id`.
    """

    name = "masked-language-model"

    def pairs(self, pairs: Pairs) -> Pairs:
        return MappedPairs(source_only, pairs)

    def adapt(self, transformer: TransformerConfig) -> TransformerConfig:
        return transformer.replace(num_decoder_layers=0)

    def train_tokenizers(self, pairs: Pairs, training: TrainingConfig) -> tuple[Tokenizer, Tokenizer]:
        return train_tokenizers(pairs, training.replace(shared_vocabulary=True))

    def keep_tokenizers(
        self, tokenizers: tuple[Tokenizer, Tokenizer], earlier: str, pairs: Pairs
    ) -> tuple[Tokenizer, Tokenizer]:
        return tokenizers[0], tokenizers[0]

    def encode(
        self, pairs: Pairs, tokenizers: tuple[Tokenizer, Tokenizer], max_length: int, store: IdStore | None = None
    ) -> EncodedPairs:
        def encode(pairs: Sequence[Pair]) -> tuple[Sequences, Sequences]:
            texts = encoded_texts([text for text, _ in pairs], tokenizers[0])
            return texts, texts

        return encode_with(encode, pairs, *tokenizers, max_length, store)

    def arrangement(self, tokenizers: tuple[Tokenizer, Tokenizer], training: TrainingConfig) -> Arrangement:
        tokenizer = tokenizers[0]
        starts = tokenizer.word_starts() if training.mask_whole_words else None
        ordinary = ~np.isin(np.arange(tokenizer.vocab_size), [*tokenizer.special_ids()])
        return MaskedTokens(ordinary, tokenizer.mask_id, starts)

    def load(self, run: str | pathlib.Path, decoding: DecodingConfig | None = None) -> Predictor:
        raise ValueError(
            f"{run} is a masked language model, which answers nothing by itself. Train a classifier or a tagger that "
            f"begins with its weights: `kformer train --task classify --initialize-from {run}`."
        )

    def load_for_export(self, run: str | pathlib.Path, decoding: DecodingConfig | None = None) -> Predictor:
        return MaskedLanguageModel.from_run(run, decoding)
