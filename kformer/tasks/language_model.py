"""The task of a language model, which continues texts and tells how probable they are.

Shape letters: B texts, F tokens of a prompt, T tokens.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from kformer.config import DecodingConfig, TrainingConfig, TransformerConfig
from kformer.data import EncodedPairs, Pair
from kformer.data.arrangements import Arrangement, NextToken
from kformer.data.encoding import Sequences, encode_with, ended
from kformer.decoding import SearchResult
from kformer.layers import Cache
from kformer.models import StepwiseLanguageModel, build_language_model
from kformer.presets import find_preset
from kformer.process.forks import check_process
from kformer.runs.folder import RunFolder
from kformer.runs.weights import load_weights
from kformer.tasks.base import Task
from kformer.tasks.text_parts import divided, parts_of, pieces
from kformer.tasks.translator import TEXT
from kformer.text.codec import TextCodec, longest_source, longest_translation
from kformer.text.options import Options, batch_seed, checks_of_options, default_options
from kformer.text.scoring import target_batch
from kformer.text.search import Searcher
from kformer.text.text_model import TextModel, is_one_text, model_function, text_tensor
from kformer.text.texts import BATCH_TOKENS, in_batches
from kformer.tokenizers import Tokenizer, load_tokenizers, train_tokenizers
from kformer.tokenizers.base import CHARACTERS_PER_TOKEN
from kformer.tokenizers.offsets import byte_lengths
from kformer.tokenizers.text_ops import replace_invalid

OPTIONS = [
    TEXT,
    tf.TensorSpec([], tf.float32, name="length_penalty"),
    tf.TensorSpec([], tf.int32, name="max_length"),
    tf.TensorSpec([], tf.float32, name="temperature"),
    tf.TensorSpec([], tf.int32, name="top_k"),
    tf.TensorSpec([], tf.float32, name="top_p"),
    tf.TensorSpec([], tf.int64, name="seed"),
]


class LanguageModel(TextModel):
    """Continues texts.

    Args:
        model: From `build_language_model(config)`.
        config: The model's configuration.
        tokenizer: Tokenizer of the texts.
        decoding: How to search. `max_extra_length` is the largest number of new tokens, and `max_source_length` the
            largest number of tokens of a prompt, plus one. Of a longer prompt only the last tokens are read.
        samples: Some texts of the kind that the model is made for. An export is checked with them.
        origin: Where the weights come from, see `RunFolder.origin`.

    Examples:
        >>> model = LanguageModel.from_preset("bible-english")
        >>> model("In the beginning")
        'In the beginning of the reign of Jehoiakim ...'
    """

    task = "language-model"
    signatures = ("generate_with_options",)
    labels = ()

    def __init__(
        self,
        model: keras.Model,
        config: TransformerConfig,
        tokenizer: Tokenizer,
        decoding: DecodingConfig | None = None,
        samples: Sequence[str] = (),
        origin: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__("language_model", model, config, tokenizer, tokenizer, decoding, samples, origin)
        self.codec = TextCodec(tokenizer, tokenizer, config, self.decoding)
        self.searcher = Searcher(model, config, self.decoding, stepwise=StepwiseLanguageModel)

    def _arguments(self) -> tuple[Any, ...]:
        model, config, tokenizer, _, *others = super()._arguments()
        return model, config, tokenizer, *others

    @classmethod
    def from_preset(cls, preset: str | pathlib.Path, decoding: DecodingConfig | None = None) -> Self:
        """Reads a trained model that comes with kformer, or a packed run folder, in float32.

        Args:
            preset: A name in `kformer.presets.preset_names()`, or the path of a run folder.
            decoding: See `from_run`.

        Raises:
            ValueError: There is no such model, or it is of another task.
        """
        return cls.from_run(find_preset(preset).path, decoding)

    @classmethod
    def from_run(cls, run: str | pathlib.Path, decoding: DecodingConfig | None = None) -> Self:
        """Reads the best weights of a training run, in float32.

        Args:
            run: The path of the run folder.
            decoding: How to search; by default as the folder says, or beam search if it says nothing.

        Raises:
            FileNotFoundError: The folder is no run folder, or has no weights yet.
            ValueError: The run is of another task.
        """
        check_process()
        folder = RunFolder(pathlib.Path(run)).check()
        folder.check_task(cls.task)
        config = folder.transformer_config()
        model = build_language_model(config, "float32")
        load_weights(folder, model)
        tokenizer, _ = load_tokenizers(folder.tokenizer_folder)
        return cls(model, config, tokenizer, folder.decoding_config(decoding), folder.samples(), folder.origin())

    def __call__(self, texts: str | Sequence[str]) -> str | list[str]:
        """The most probable continuation of one text, or of each text of a list, with the text before it.

        Raises:
            ValueError: A text is not a string.
        """
        if is_one_text(texts):
            return self([texts])[0]
        return [text.decode("utf-8") for text in self.function(text_tensor(texts))["text"].numpy()]

    def sample(
        self,
        texts: str | Sequence[str],
        seed: int = 0,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        max_length: int = 0,
    ) -> str | list[str]:
        """Draws a continuation of each text at random. The same texts, options and seed give the same continuations.

        Args:
            texts: One text, or a list of texts.
            seed: From -2**63 to 2**63 - 1.
            temperature: Divides the logits: values below 1 make probable tokens more probable.
            top_k: Only the k most probable tokens can be drawn; 0 for all.
            top_p: Only the most probable tokens that together reach this probability can be drawn; 1 for all.
            max_length: Largest number of new tokens; 0 for no limit but `decoding.max_extra_length`.

        Raises:
            ValueError: A text is not a string.
            tf.errors.InvalidArgumentError: An option is out of range.
        """
        if is_one_text(texts):
            return self.sample([texts], seed, temperature, top_k, top_p, max_length)[0]
        found = self._with_options(
            text_tensor(texts),
            tf.constant(self.decoding.length_penalty, tf.float32),
            tf.constant(max_length, tf.int32),
            tf.constant(temperature, tf.float32),
            tf.constant(top_k, tf.int32),
            tf.constant(top_p, tf.float32),
            tf.constant(seed, tf.int64),
        )
        return [text.decode("utf-8") for text in found["text"].numpy()]

    def score(self, texts: str | Sequence[str]) -> dict[str, np.ndarray]:
        """Computes how probable texts are.

        A text that is longer than the model reads at once (`decoding.max_source_length`) is read in parts, as in
        training.

        Args:
            texts: One text (then B is 1), or B texts.

        Returns:
            `log_probability` (B,) float32, the natural logarithm of the probability of each text and its end, and
            `tokens` (B,) int32, the number of tokens, the end included.
        """
        return {name: values.numpy() for name, values in self._score(text_tensor(texts)).items()}

    @model_function([TEXT])
    def function(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """`answer` as a `tf.function`."""
        return self.answer(text)

    @model_function(OPTIONS)
    def _with_options(self, text: tf.Tensor, *options: tf.Tensor) -> dict[str, tf.Tensor]:
        return self.answer_with_options(text, *options)

    @model_function([TEXT])
    def _score(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        return self.score_texts(text)

    def answer(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Continues each text, by the search of `decoding`.

        Args:
            text: (B,) string, UTF-8; other bytes are replaced by "\ufffd". An empty text gives a new text.

        Returns:
            `text` (B,) string, each text with its continuation; and `score` (B,) float32, the natural logarithm of the
            probability of the whole text, divided by the length penalty of a beam search. Both count the tokens of the
            given text, too. So with the same exponent a less probable beginning gives a longer text. With an exponent
            of 0 the beginning does not matter.
        """
        return self._continued(text, default_options(self.codec), draw=False)

    def answer_with_options(self, text: tf.Tensor, *options: tf.Tensor) -> dict[str, tf.Tensor]:
        """As `answer`, with options: the tensors of `kformer.text.options.Options`.

        With a temperature of 0 it searches, otherwise it draws tokens; `max_length` limits the new tokens.
        """
        chosen = Options(*options)
        with tf.control_dependencies(checks_of_options(chosen)):
            text = tf.identity(text)
        return tf.cond(
            chosen.temperature > 0,
            lambda: self._continued(text, chosen, draw=True),
            lambda: self._continued(text, chosen, draw=False),
        )

    def score_texts(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """See `score`: texts (B,) string to `log_probability` (B,) float32 and `tokens` (B,) int32."""
        ids = self.source_tokenizer.tokenize(text)
        parts = parts_of(ids, self.codec.longest_part)

        def batch(rows: tf.Tensor) -> tuple[tf.Tensor]:
            target_in, target_out = target_batch(self.codec, tf.gather(parts.ids, rows))
            logits = self.model({"target_in": target_in}, training=False)
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(target_out, logits)  # (B, T)
            goes_on = tf.expand_dims(~tf.gather(parts.is_last, rows), 1) & (target_out == self.config.end_id)
            return (-tf.reduce_sum(tf.where(goes_on | (target_out == self.config.pad_id), 0.0, loss), axis=1),)

        lengths = tf.cast(parts.ids.row_lengths(), tf.int32) + 1
        (of_parts,) = in_batches(lengths, BATCH_TOKENS, batch, (tf.zeros((0,), tf.float32),))
        log_probability = tf.math.unsorted_segment_sum(of_parts, parts.text, ids.nrows())
        return {"log_probability": log_probability, "tokens": tf.cast(ids.row_lengths(), tf.int32) + 1}

    def _continued(self, text: tf.Tensor, options: Options, draw: bool) -> dict[str, tf.Tensor]:
        text = replace_invalid(text)
        ids = self.source_tokenizer.tokenize(text)
        ids = ids[:, -(longest_source(self.config, self.decoding) - 1) :]
        new = tf.where(options.max_length > 0, options.max_length, self.decoding.max_extra_length)
        new = tf.minimum(new, self.decoding.max_extra_length)

        def batch(rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            prompt = tf.gather(ids, rows)
            found = self._find(prompt, new, options, batch_seed(options, rows) if draw else None)
            whole = self.source_tokenizer.detokenize(found.tokens[:, 0])
            begun = byte_lengths(self.source_tokenizer.detokenize(prompt))
            rest = tf.strings.substr(whole, tf.minimum(begun, byte_lengths(whole)), byte_lengths(whole))
            return tf.gather(text, rows) + rest, found.scores[:, 0]

        nothing = [tf.zeros((0,), tf.string), tf.zeros((0,), tf.float32)]
        lengths = tf.cast(ids.row_lengths(), tf.int32) + 1
        texts, score = in_batches(lengths, BATCH_TOKENS, batch, nothing)
        return {"text": texts, "score": score}

    def _find(self, prompt: tf.RaggedTensor, new: tf.Tensor, options: Options, seed: tf.Tensor | None) -> SearchResult:
        """Searches for texts that begin with the prompts (B, None), or draws them with a seed (2,)."""
        source, _ = self.codec.pad(prompt)  # (B, F + 1)
        prefix = prompt.to_tensor(self.config.pad_id)  # (B, F)
        limits = tf.cast(prompt.row_lengths(), tf.int32) + new
        longest = longest_translation(self.config, self.decoding)
        if longest is not None:
            limits = tf.minimum(limits, longest)
        read = tf.reduce_min(tf.minimum(tf.cast(prompt.row_lengths(), tf.int32), limits))
        if seed is None:
            return self.searcher.find(source, limits, prefix=prefix, length_penalty=options.length_penalty, read=read)
        return self.searcher.sample(
            source, limits, seed, options.temperature, options.top_k, options.top_p, prefix=prefix, read=read
        )

    def build(self, dtype: Any) -> keras.Model:
        """See `Predictor.build`."""
        return build_language_model(self.config, dtype)

    def twin(self, model: keras.Model, cache: type[Cache]) -> Self:
        """See `Predictor.twin`."""
        other = type(self)(model, *self._arguments()[1:])
        other.searcher = Searcher(model, self.config, self.decoding, cache, stepwise=StepwiseLanguageModel)
        return other

    def calibration_inputs(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """See `Predictor.calibration_inputs`."""
        ids = self.source_tokenizer.tokenize(text)[:, : self.codec.longest_part]
        return {"target_in": target_batch(self.codec, ids)[0]}


class LanguageModelTask(Task):
    """The task to predict each token of a text from those before it. Of a pair, only the source is used.

    A text that is longer than `max_length` is divided into several training texts, see `kformer.tasks.text_parts`.
    """

    name = "language-model"

    def pairs(self, pairs: Sequence[Pair]) -> Sequence[Pair]:
        return [(text, text) for text, _ in pairs]

    def adapt(self, transformer: TransformerConfig) -> TransformerConfig:
        return transformer.replace(num_encoder_layers=0)

    def train_tokenizers(self, pairs: Sequence[Pair], training: TrainingConfig) -> tuple[Tokenizer, Tokenizer]:
        return train_tokenizers(pairs, training.replace(shared_vocabulary=True))

    def encode(self, pairs: Sequence[Pair], tokenizers: tuple[Tokenizer, Tokenizer], max_length: int) -> EncodedPairs:
        def encode(pairs: Sequence[Pair]) -> tuple[Sequences, Sequences]:
            texts = divided(ended([text for text, _ in pairs], tokenizers[0]), max_length)
            return texts, texts

        short = [part for text, _ in pairs for part in pieces(text, CHARACTERS_PER_TOKEN * max_length)]
        return encode_with(encode, [(part, part) for part in short], *tokenizers, max_length)

    def arrangement(self, tokenizers: tuple[Tokenizer, Tokenizer], training: TrainingConfig) -> Arrangement:
        return NextToken()

    def load(self, run: str | pathlib.Path, decoding: DecodingConfig | None = None) -> LanguageModel:
        return LanguageModel.from_run(run, decoding)
