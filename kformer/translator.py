"""Tokenizer, model and search behind one TensorFlow function: strings in, strings out.

Shape letters: B sentences, N translations a sentence, S source length, T target length.
"""

import pathlib
from collections.abc import Sequence
from typing import Any, Self

import keras
import tensorflow as tf

from kformer.config import DecodingConfig, TransformerConfig
from kformer.decoding import SearchResult, SearchSpace, beam_search, greedy_search, sample
from kformer.models import build_transformer, reorder_rows, start_decoding
from kformer.run import RunFolder
from kformer.tokenizers import Tokenizer, load_tokenizers

FIRST_LENGTH = 8  # tokens that the caches have room for at first, see `start_decoding`
TEXT = tf.TensorSpec([None], tf.string, name="text")


class Translator(tf.Module):
    """Translates texts.

    Defined for every input: bytes that are not UTF-8 are read as U+FFFD; an empty text, or one of blanks
    alone, gives "" with score 0; of a text longer than `decoding.max_source_length` tokens the rest is
    left out; an empty batch gives an empty batch. A text's translation does not depend on the texts
    beside it.

    Args:
        model: From `build_transformer(config)`.
        config: The model's configuration.
        source_tokenizer: Makes the ids that the model was trained on.
        target_tokenizer: Makes text of the ids that the model gives.
        decoding: How to search; the paper's beam search by default.
    """

    def __init__(
        self,
        model: keras.Model,
        config: TransformerConfig,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        decoding: DecodingConfig | None = None,
    ) -> None:
        super().__init__(name="translator")
        self.model = model
        self.config = config
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.decoding = decoding or DecodingConfig()
        _check(config, self.decoding, source_tokenizer, target_tokenizer)

    @classmethod
    def from_run(cls, run: str | pathlib.Path, decoding: DecodingConfig | None = None) -> Self:
        """The translator with the best weights of a training run, in float32.

        Raises:
            FileNotFoundError: The folder is no run folder, or has no weights yet.
        """
        folder = RunFolder(run).check()
        config = folder.transformer_config()
        model = build_transformer(config, dtype="float32")
        model.load_weights(folder.best_weights_file)
        return cls(model, config, *load_tokenizers(folder.tokenizer_folder), decoding)

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
        source, limits = self.encode(text)
        return self.decode_best(self.find(source, limits), limits)

    def search_n_best(self, text: tf.Tensor, n_best: int) -> dict[str, tf.Tensor]:
        """The `n_best` hypotheses of each text, best first: `translation` and `score`, both (B, n_best)."""
        source, limits = self.encode(text)
        return self._decode(self.find(source, limits, n_best), limits)

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
        source, limits = self.encode(tf.constant(list(texts), tf.string, shape=[len(texts)]))
        next_logits, state = self._start(source, 1, FIRST_LENGTH)
        result = sample(
            next_logits,
            state,
            self._space(source, limits),
            seed=seed,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
        )
        return [text.decode("utf-8") for text in self._decode(result, limits)["translation"].numpy()[:, 0]]

    def find(
        self, source: tf.Tensor, limits: tf.Tensor, n_best: int = 1, first_length: int | None = FIRST_LENGTH
    ) -> SearchResult:
        """The search between `encode` and `decode_best`: numbers alone, no strings.

        Args:
            source: (B, S) int32 ids.
            limits: (B,) int32, most tokens of each translation.
            n_best: Hypotheses a sentence.
            first_length: Of the caches, see `start_decoding`; None for XLA, whose shapes do not grow.
        """
        beam_size = self.decoding.beam_size
        next_logits, state = self._start(source, beam_size, first_length)
        if beam_size == 1:
            return greedy_search(next_logits, state, self._space(source, limits))
        return beam_search(
            next_logits,
            state,
            self._space(source, limits),
            beam_size=beam_size,
            length_penalty=self.decoding.length_penalty,
            n_best=n_best,
            reorder=reorder_rows,
        )

    def _start(self, source: tf.Tensor, rows_per_source: int, first_length: int | None) -> tuple[Any, Any]:
        return start_decoding(
            self.model, source, self._buffer_length(source), self.config.pad_id, rows_per_source, first_length
        )

    def _space(self, source: tf.Tensor, limits: tf.Tensor) -> SearchSpace:
        config = self.config
        return SearchSpace(
            start_id=config.start_id,
            end_id=config.end_id,
            pad_id=config.pad_id,
            max_lengths=limits,
            buffer_length=self._buffer_length(source),
            min_length=self.decoding.min_length,
        )

    def _buffer_length(self, source: tf.Tensor) -> tf.Tensor:
        """Room for the longest translation. It follows from the shape alone, as XLA needs it."""
        return self._bounded(tf.shape(source)[1] - 1 + self.decoding.max_extra_length)

    def _bounded(self, lengths: tf.Tensor) -> tf.Tensor:
        """Lengths under the bounds that hold for every source."""
        bounds = [self.decoding.max_length] if self.decoding.max_length is not None else []
        if self.config.positional_encoding == "learned":
            bounds.append(self.config.max_length)
        return tf.minimum(lengths, min(bounds)) if bounds else lengths

    def encode(self, text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Source ids (B, S) int32 with end ids, and the most tokens of each translation (B,) int32."""
        ids = self.source_tokenizer.tokenize(text)[:, : self.decoding.max_source_length - 1]
        lengths = tf.cast(ids.row_lengths(), tf.int32)
        ends = tf.fill([ids.nrows(), 1], tf.constant(self.config.end_id, tf.int32))
        source = tf.concat([ids, ends], axis=1).to_tensor(default_value=self.config.pad_id)  # (B, S)
        limits = self._bounded(lengths + self.decoding.max_extra_length)
        return source, tf.where(lengths > 0, limits, 0)  # nothing to say where nothing was said

    def decode_best(self, result: SearchResult, limits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Text (B,) string and score (B,) float32 of the best hypothesis of each sentence."""
        found = self._decode(result, limits)
        return {"translation": found["translation"][:, 0], "score": found["score"][:, 0]}

    def _decode(self, result: SearchResult, limits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Text (B, N) string and scores (B, N) float32 of the tokens found."""
        shape = tf.shape(result.scores)
        tokens = tf.reshape(result.tokens, [-1, tf.shape(result.tokens)[2]])  # (B x N, T)
        translation = tf.reshape(self.target_tokenizer.detokenize(tokens), shape)
        said = limits[:, tf.newaxis] > 0
        return {
            "translation": tf.where(said, translation, ""),
            "score": tf.where(said, result.scores, 0.0),
        }


def _check(
    config: TransformerConfig, decoding: DecodingConfig, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer
) -> None:
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"A Translator runs on Keras's TensorFlow backend. Received: the backend {keras.backend.backend()}. "
            "Start with KERAS_BACKEND=tensorflow; weights trained on another backend load as they are."
        )
    for side, tokenizer in (("source", source_tokenizer), ("target", target_tokenizer)):
        vocab_size = getattr(config, f"{side}_vocab_size")
        if tokenizer.vocab_size != vocab_size:
            raise ValueError(
                f"The {side} tokenizer and the model differ in their vocabulary. Received: a tokenizer of "
                f"{tokenizer.vocab_size} ids, a model of {side}_vocab_size={vocab_size}. "
                "Pass the tokenizer that the model was trained with."
            )
    if config.positional_encoding == "learned" and decoding.max_source_length > config.max_length:
        raise ValueError(
            f"The model's learned positions end at max_length={config.max_length}. Received: "
            f"max_source_length={decoding.max_source_length}. Choose a max_source_length of at most that."
        )
