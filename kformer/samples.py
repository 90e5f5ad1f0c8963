"""Translations shown while a model learns."""

from collections.abc import Sequence

import keras
import rich.console

from kformer.config import DecodingConfig, TransformerConfig
from kformer.tokenizers import Tokenizer
from kformer.translator import Translator


class SampleTranslations(keras.callbacks.Callback):
    """Prints the model's greedy translations of a few texts after every validation.

    Args:
        texts: Source texts.
        model: The model in training.
        config: Its configuration.
        tokenizers: Source and target tokenizer.
        console: Where to print; the progress bar's, so that the lines appear above it.
    """

    def __init__(
        self,
        texts: Sequence[str],
        model: keras.Model,
        config: TransformerConfig,
        tokenizers: tuple[Tokenizer, Tokenizer],
        console: rich.console.Console,
    ) -> None:
        super().__init__()
        self.texts = list(texts)
        self.console = console
        self.translator = Translator(model, config, *tokenizers, DecodingConfig(beam_size=1))

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        for text, translation in zip(self.texts, self.translator(self.texts), strict=True):
            self.console.print(f"  {text}\n  -> {translation}", markup=False)
