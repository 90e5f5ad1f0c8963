"""Translation: from a text to a text, by an encoder and a decoder."""

import pathlib

from kformer.config import DecodingConfig, TrainingConfig, TransformerConfig
from kformer.data import EncodedPairs, Pairs, encode_pairs
from kformer.data.arrangements import AlignedTarget, Arrangement, ShiftedTarget
from kformer.data.encoded_ids import IdStore
from kformer.data.sampled_subwords import with_sampled_subwords
from kformer.data.vocabularies import train_tokenizers
from kformer.tasks.base import Task
from kformer.tasks.translator import Translator
from kformer.tokenizers import Tokenizer


class TranslateTask(Task):
    """The task to translate the source of a pair to its target."""

    name = "translate"

    def adapt(self, transformer: TransformerConfig) -> TransformerConfig:
        return transformer

    def train_tokenizers(self, pairs: Pairs, training: TrainingConfig) -> tuple[Tokenizer, Tokenizer]:
        return train_tokenizers(pairs, training)

    def encode(
        self, pairs: Pairs, tokenizers: tuple[Tokenizer, Tokenizer], max_length: int, store: IdStore | None = None
    ) -> EncodedPairs:
        return encode_pairs(pairs, *tokenizers, max_length, store)

    def arrangement(self, tokenizers: tuple[Tokenizer, Tokenizer], training: TrainingConfig) -> Arrangement:
        return ShiftedTarget()

    def training_arrangement(self, tokenizers: tuple[Tokenizer, Tokenizer], training: TrainingConfig) -> Arrangement:
        if training.guided_alignment:
            return AlignedTarget()
        return with_sampled_subwords(self.arrangement(tokenizers, training), *tokenizers, training)

    def load(self, run: str | pathlib.Path, decoding: DecodingConfig | None = None) -> Translator:
        return Translator.from_run(run, decoding)
