"""Tokenizer, model and search behind one TensorFlow function: strings in, strings out.

Shape letters: B sentences, N translations a sentence, S source length, T target length.
"""

import pathlib
from collections.abc import Sequence
from typing import Self

import keras
import tensorflow as tf

from kformer.config import DecodingConfig, TransformerConfig
from kformer.models import build_transformer
from kformer.presets import find_preset
from kformer.runs.folder import RunFolder
from kformer.runs.weights import load_weights
from kformer.tokenizers import Tokenizer, load_tokenizers
from kformer.translation.codec import TextCoder
from kformer.translation.search import Searcher

TEXT = tf.TensorSpec([None], tf.string, name="text")


class Translator(tf.Module):
    """Translates texts.

    Defined for every input: bytes that are not UTF-8 are read as U+FFFD; an empty text, or one of blanks
    alone, gives "" with score 0; of a text that has, with its end id, more than `decoding.max_source_length`
    tokens, or more than a model of learned positions has positions, the rest is left out; an empty batch gives an
    empty batch. A text's translation does not depend on the texts
    beside it.

    Args:
        model: From `build_transformer(config)`.
        config: The model's configuration.
        source_tokenizer: Makes the ids that the model was trained on.
        target_tokenizer: Makes text of the ids that the model gives.
        decoding: How to search; the paper's beam search by default.
        samples: Some texts like those that the model is made for: an export of this translator is tried on them.
    """

    def __init__(
        self,
        model: keras.Model,
        config: TransformerConfig,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        decoding: DecodingConfig | None = None,
        samples: Sequence[str] = (),
    ) -> None:
        super().__init__(name="translator")
        self.model = model
        self.config = config
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.decoding = decoding or DecodingConfig()
        self.samples = tuple(samples)
        self.coder = TextCoder(source_tokenizer, target_tokenizer, config, self.decoding)
        self.searcher = Searcher(model, config, self.decoding)
        _check(config, source_tokenizer, target_tokenizer)

    @classmethod
    def from_preset(cls, preset: str | pathlib.Path, decoding: DecodingConfig | None = None) -> Self:
        """The translator with the weights of a shipped model, in float32; nothing is downloaded.

        Args:
            preset: A name in `kformer.presets.preset_names()`, or the path of a run folder, such as
                `kformer.presets.pack_run` makes.
            decoding: How to search; by default as the preset says, which is how its scores were reached.

        Raises:
            ValueError: There is no such model.
        """
        return cls.from_run(find_preset(preset).path, decoding)

    @classmethod
    def from_run(cls, run: str | pathlib.Path, decoding: DecodingConfig | None = None) -> Self:
        """The translator with the best weights of a training run, in float32.

        Args:
            run: The run folder.
            decoding: How to search; by default as the folder says, which is the paper's beam search if it says nothing.

        Raises:
            FileNotFoundError: The folder is no run folder, or has no weights yet.
        """
        folder = RunFolder(run).check()
        config = folder.transformer_config()
        model = build_transformer(config, dtype="float32")
        load_weights(folder, model)
        tokenizers = load_tokenizers(folder.tokenizer_folder)
        return cls(model, config, *tokenizers, decoding or folder.decoding_config(), folder.samples())

    def __call__(self, texts: str | Sequence[str]) -> str | list[str]:
        """Translates one text, or a list of texts in one batch."""
        if isinstance(texts, str):
            return self([texts])[0]
        translations = self.translate(tf.constant(list(texts), tf.string, shape=[len(texts)]))["translation"]
        return [translation.decode("utf-8") for translation in translations.numpy()]

    @tf.function(input_signature=[TEXT])
    def translate(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """The best translation of each text.

        Args:
            text: (B,) string, UTF-8.

        Returns:
            `translation` (B,) string, and `score` (B,) float32: the log probability of the translation,
            divided by the length penalty of Wu et al. (2016), equation 14, when the beam size exceeds 1.
        """
        return self.search(text)

    @tf.function(input_signature=[TEXT])
    def translate_n_best(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """All `decoding.beam_size` hypotheses of each text, best first: `translation` and `score`, both (B, N)."""
        return self.search_n_best(text, self.decoding.beam_size)

    def search(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """What `translate` computes, for a graph of the caller's own: an export traces it over weights of its own."""
        source, limits = self.coder.encode(text)
        return self.coder.decode_best(self.searcher.find(source, limits), limits)

    def search_n_best(self, text: tf.Tensor, n_best: int) -> dict[str, tf.Tensor]:
        """The `n_best` hypotheses of each text, best first: `translation` and `score`, both (B, n_best)."""
        source, limits = self.coder.encode(text)
        return self.coder.decode(self.searcher.find(source, limits, n_best), limits)

    def sample(
        self,
        texts: Sequence[str],
        seed: int,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
    ) -> list[str]:
        """A random translation of each text; the same seed gives the same ones.

        Args:
            texts: What to translate.
            seed: Of the random choice.
            temperature: Divides the logits; below 1 sharpens, above 1 flattens.
            top_k: Only the k most probable tokens are drawn; 0 for all.
            top_p: Only the most probable tokens that together reach this probability are drawn.
        """
        source, limits = self.coder.encode(tf.constant(list(texts), tf.string, shape=[len(texts)]))
        result = self.searcher.sample(source, limits, seed, temperature, top_k, top_p)
        return [text.decode("utf-8") for text in self.coder.decode(result, limits)["translation"].numpy()[:, 0]]


def require_tensorflow(what: str) -> None:
    """Raises a ValueError under another backend."""
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"{what} runs on Keras's TensorFlow backend. Received: the backend {keras.backend.backend()}. "
            "Start with KERAS_BACKEND=tensorflow; weights trained on another backend load as they are."
        )


def _check(config: TransformerConfig, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer) -> None:
    require_tensorflow("A Translator")
    for side, tokenizer in (("source", source_tokenizer), ("target", target_tokenizer)):
        vocab_size = getattr(config, f"{side}_vocab_size")
        if tokenizer.vocab_size != vocab_size:
            raise ValueError(
                f"The {side} tokenizer and the model differ in their vocabulary. Received: a tokenizer of "
                f"{tokenizer.vocab_size} ids, a model of {side}_vocab_size={vocab_size}. "
                "Pass the tokenizer that the model was trained with."
            )
