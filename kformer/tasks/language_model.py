"""The task of a language model, which continues texts and tells how probable they are.

Shape letters: B texts, F tokens of a prompt, T tokens.
"""

import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import keras
import numpy as np
import tensorflow as tf

from kformer.config import DecodingConfig, TrainingConfig, TransformerConfig
from kformer.data import EncodedPairs, Pair, Pairs
from kformer.data.arrangements import Arrangement, NextToken
from kformer.data.encoded_ids import IdStore
from kformer.data.encoding import Continued, Sequences, encode_with, ended
from kformer.data.pairs import MappedPairs, source_only
from kformer.data.sampled_subwords import with_sampled_subwords
from kformer.data.vocabularies import train_tokenizers
from kformer.decoding import SearchResult
from kformer.models import StepwiseLanguageModel
from kformer.tasks.base import Task
from kformer.tasks.predictor import TEXT, Predictor
from kformer.tasks.text_parts import divided, parts_of, pieces
from kformer.text.codec import TextCodec, longest_source, longest_translation
from kformer.text.model_function import ModelFunction, is_one_text, model_function, text_tensor
from kformer.text.option_tensors import (
    OPTION_SPECS,
    Options,
    asked_lengths,
    batch_seed,
    checks,
    named_options,
    option_tensors,
)
from kformer.text.scoring import next_tokens
from kformer.text.searcher import Searcher
from kformer.text.translate_texts import BATCH_TOKENS, in_batches
from kformer.tokenizers import Tokenizer
from kformer.tokenizers.base import CHARACTERS_PER_TOKEN
from kformer.tokenizers.offsets import byte_lengths
from kformer.tokenizers.ragged import where_true
from kformer.tokenizers.text_ops import ENDS_BLANK, WHITESPACE, replace_invalid


class LanguageModel(Predictor):
    """Continues texts.

    Args:
        model: From `build_language_model(config)`.
        config: The model's configuration.
        tokenizer: Tokenizer of the texts.
        decoding: How to search. `max_extra_length` is the largest number of new tokens, and `max_source_length` the
            largest number of tokens of a prompt, plus one. Of a longer prompt only the last tokens are read.
        samples: Some texts of the kind that the model is made for. An export is checked with them.
        facts: What is known of the model, see `RunFolder.facts`.

    Examples:
        >>> model = LanguageModel.from_preset("bible-english")
        >>> model("In the beginning")
        'In the beginning of the reign of Jehoiakim ...'
    """

    task = "language-model"
    searcher: Searcher

    def __init__(
        self,
        model: keras.Model,
        config: TransformerConfig,
        tokenizer: Tokenizer,
        decoding: DecodingConfig | None = None,
        samples: Sequence[str] = (),
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(model, config, tokenizer, tokenizer, decoding, samples, facts)
        self.codec = TextCodec(tokenizer, tokenizer, config, self.decoding)
        self.searcher = Searcher(model, config, self.decoding, stepwise=StepwiseLanguageModel)

    @classmethod
    def _of(cls, model: keras.Model, config: TransformerConfig, tokenizers: Sequence[Tokenizer], *rest: Any) -> Self:
        return cls(model, config, tokenizers[0], *rest)

    def sample(
        self,
        texts: str | Sequence[str],
        seed: int = 0,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        max_length: int = 0,
        min_length: int = 0,
    ) -> str | list[str]:
        """Draws a continuation of each text at random. The same texts, options and seed give the same continuations.

        Args:
            texts: One text, or a list of texts.
            seed: From -2**63 to 2**63 - 1.
            temperature: Divides the logits: values below 1 make probable tokens more probable.
            top_k: Only the k most probable tokens can be drawn; 0 for all.
            top_p: Only the most probable tokens that together reach this probability can be drawn; 1 for all.
            max_length: Largest number of new tokens; 0 for no limit but `decoding.max_extra_length`.
            min_length: Least number of new tokens before the end; 0 for `decoding.min_length`, which counts the tokens
                of the text, too. It must be less than `max_length` and `decoding.max_extra_length`.

        Raises:
            ValueError: A text is not a string.
            tf.errors.InvalidArgumentError: An option is out of range.
        """
        if is_one_text(texts):
            return self.sample([texts], seed, temperature, top_k, top_p, max_length, min_length)[0]
        options = {
            "max_length": max_length,
            "min_length": min_length,
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "seed": seed,
        }
        found = self.answer_with_options(text_tensor(texts), *option_tensors(self.decoding, options).values())
        return [text.decode("utf-8") for text in found["text"].numpy()]

    def score(self, texts: str | Sequence[str]) -> dict[str, np.ndarray]:
        """Computes how probable texts are.

        A text that is longer than the model reads at once (`decoding.max_source_length`) is read in parts, as in
        training.

        Args:
            texts: One text (then B is 1), or B texts.

        Returns:
            `log_probability` (B,) float32, the natural logarithm of the probability of each text and its end, and
            `tokens` (B,) int32, the number of tokens, the end included. Where a text begins without a start id
            (`Tokenizer.has_start`), its first token, and that of each part, is given and not counted.
        """
        return {name: values.numpy() for name, values in self._score(text_tensor(texts)).items()}

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
        return self._continued(text)

    @model_function([TEXT, *OPTION_SPECS], defaults=lambda decoding: [*option_tensors(decoding).values()])
    def answer_with_options(self, text: tf.Tensor, *options: tf.Tensor) -> dict[str, tf.Tensor]:
        """As `answer`, with options: tensors in the order of `kformer.text.options.OPTIONS`. It is a `tf.function`.

        With a temperature of 0 it searches, otherwise it draws tokens. `min_length` and `max_length` count new tokens.
        """
        chosen = named_options(options)
        with tf.control_dependencies(checks(chosen, self.decoding.max_extra_length)):
            text = tf.identity(text)
        return tf.cond(
            chosen["temperature"] > 0,
            lambda: self._continued(text, chosen, draw=True),
            lambda: self._continued(text, chosen),
        )

    signatures: ClassVar[Mapping[str, ModelFunction]] = {
        "score": _score,
        "generate_with_options": answer_with_options,
    }

    def score_texts(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """See `score`: texts (B,) string to `log_probability` (B,) float32 and `tokens` (B,) int32."""
        ids = self.source_tokenizer.tokenize(text)
        parts = parts_of(ids, self.codec.longest_part)

        def batch(rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            begun = self.source_tokenizer.begun(tf.gather(parts.ids, rows))
            target_in, target_out = next_tokens(self.config, begun)
            logits = self.model({"target_in": target_in}, training=False)
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(target_out, logits)  # (B, T)
            goes_on = tf.expand_dims(~tf.gather(parts.is_last, rows), 1) & (target_out == self.config.end_id)
            counts = ~goes_on & (target_out != self.config.pad_id)
            log_probability = -tf.reduce_sum(tf.where(counts, loss, 0.0), axis=1)
            return log_probability, tf.reduce_sum(tf.cast(counts, tf.int32), axis=1)

        lengths = tf.cast(parts.ids.row_lengths(), tf.int32) + 1
        nothing = (tf.zeros((0,), tf.float32), tf.zeros((0,), tf.int32))
        of_parts = in_batches(lengths, BATCH_TOKENS, batch, nothing)
        sums = (tf.math.unsorted_segment_sum(values, parts.text, ids.nrows()) for values in of_parts)
        return dict(zip(("log_probability", "tokens"), sums, strict=True))

    def _continued(self, text: tf.Tensor, options: Options | None = None, draw: bool = False) -> dict[str, tf.Tensor]:
        text = replace_invalid(text)
        ids = self.source_tokenizer.tokenize(text)
        ids = ids[:, -self._longest_prompt :]

        def batch(rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            prompt = tf.gather(ids, rows)
            begun = self.source_tokenizer.begun(prompt)
            found = self._find(begun, options, batch_seed(options, rows) if options and draw else None)
            tokens, given = found.tokens[:, 0], begun.row_lengths() - 1
            whole = self.source_tokenizer.detokenize(tf.concat([begun[:, :1], tokens], axis=1))
            is_new = tf.logical_not(tf.sequence_mask(given, tf.shape(tokens)[1]))
            new = self.source_tokenizer.detokenize(where_true(tokens, is_new))
            prompt = self.source_tokenizer.detokenize(prompt)
            return behind(tf.gather(text, rows), prompt, new, whole), found.scores[:, 0]

        nothing = [tf.zeros((0,), tf.string), tf.zeros((0,), tf.float32)]
        lengths = tf.cast(ids.row_lengths(), tf.int32) + 1
        texts, score = in_batches(lengths, BATCH_TOKENS, batch, nothing)
        return {"text": texts, "score": score}

    @property
    def _longest_prompt(self) -> int:
        """The largest number of tokens of a prompt that is read whole; of a longer one, so many of the last are read.

        Where positions end, there is room for new tokens behind it, though it takes half of the positions at most.
        """
        longest, positions = longest_source(self.config, self.decoding) - 1, self.config.longest_sequence
        if positions is None:
            return longest
        return max(1, min(longest, positions - min(self.decoding.max_extra_length, positions // 2)))

    def _find(self, begun: tf.RaggedTensor, options: Options | None, seed: tf.Tensor | None) -> SearchResult:
        """Searches for texts that begin so (B, None), or draws them with a seed (2,).

        The result lacks the first id of each text.
        """
        prefix = begun[:, 1:]
        source, _ = self.codec.pad(prefix)  # (B, F + 1)
        lengths = tf.cast(prefix.row_lengths(), tf.int32)
        limits = lengths + self.decoding.max_extra_length
        longest = longest_translation(self.config, self.decoding)
        if longest is not None:
            limits = tf.minimum(limits, longest)
        least, penalty = None, None
        if options:
            limits, least = asked_lengths(options, self.decoding, limits, given=lengths)
            penalty = options["length_penalty"]
        read = tf.reduce_min(tf.minimum(lengths, limits))
        starts = tf.gather(begun.values, begun.row_starts())
        given = {"prefix": prefix.to_tensor(self.config.pad_id), "min_length": least, "read": read, "starts": starts}
        if options and seed is not None:
            drawing = seed, options["temperature"], options["top_k"], options["top_p"]
            return self.searcher.sample(source, limits, *drawing, **given)
        return self.searcher.find(source, limits, length_penalty=penalty, **given)

    def calibration_inputs(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        ids = self.source_tokenizer.tokenize(text)[:, : self.codec.longest_part]
        return {"target_in": self.source_tokenizer.begun(ids).to_tensor(self.config.pad_id)}


def behind(text: tf.Tensor, prompt: tf.Tensor, new: tf.Tensor, whole: tf.Tensor) -> tf.Tensor:
    """Texts with what a model has written behind them; all arguments and the result (R,) string.

    Args:
        text: As it was given.
        prompt: What the model has read of it, as the tokenizer writes it.
        new: What the model has written, alone.
        whole: Both together, with the blank between them, if there is one.
    """
    length = tf.minimum(byte_lengths(prompt), byte_lengths(whole))
    goes_on = tf.strings.substr(whole, tf.zeros_like(length), length) == prompt
    # If the first new token is a mark, such as an accent, the last letter of the prompt is another one with it.
    rest = tf.where(goes_on, tf.strings.substr(whole, length, byte_lengths(whole)), new)
    # Some tokenizers drop a blank at the end of a text, and write it before the next word.
    has_blank = tf.strings.regex_full_match(text, ENDS_BLANK) & ~tf.strings.regex_full_match(prompt, ENDS_BLANK)
    return text + tf.where(has_blank, tf.strings.regex_replace(rest, f"^[{WHITESPACE}]+", ""), rest)


class LanguageModelTask(Task):
    """The task to predict each token of a text from those before it. Of a pair, only the source is used.

    A text that is longer than `max_length` is divided into several training texts, see `kformer.tasks.text_parts`.
    """

    name = "language-model"

    def pairs(self, pairs: Pairs) -> Pairs:
        return MappedPairs(source_only, pairs)

    def adapt(self, transformer: TransformerConfig) -> TransformerConfig:
        return transformer.replace(num_encoder_layers=0)

    def train_tokenizers(self, pairs: Pairs, training: TrainingConfig) -> tuple[Tokenizer, Tokenizer]:
        return train_tokenizers(pairs, training.replace(shared_vocabulary=True))

    def encode(
        self, pairs: Pairs, tokenizers: tuple[Tokenizer, Tokenizer], max_length: int, store: IdStore | None = None
    ) -> EncodedPairs:
        def encode(pairs: Sequence[Pair]) -> tuple[Sequences, Sequences]:
            texts = divided(ended([text for text, _ in pairs], tokenizers[0]), max_length)
            return texts, texts

        longest = CHARACTERS_PER_TOKEN * max_length
        return encode_with(encode, _short(pairs, longest), *tokenizers, max_length, store)

    def arrangement(self, tokenizers: tuple[Tokenizer, Tokenizer], training: TrainingConfig) -> Arrangement:
        return NextToken(tokenizers[0].has_start)

    def training_arrangement(self, tokenizers: tuple[Tokenizer, Tokenizer], training: TrainingConfig) -> Arrangement:
        return with_sampled_subwords(self.arrangement(tokenizers, training), None, tokenizers[0], training)

    def load(self, run: str | pathlib.Path, decoding: DecodingConfig | None = None) -> LanguageModel:
        return LanguageModel.from_run(run, decoding)


def _short(pairs: Iterable[Pair], longest: int) -> Iterator[Pair]:
    """The texts in pieces of at most so many characters."""
    for text, _ in pairs:
        for number, piece in enumerate(pieces(text, longest)):
            yield Continued((piece, piece)) if number else (piece, piece)
