"""Combines tokenizers, model and search into one TensorFlow function from strings to strings.

Shape letters: B sentences, N hypotheses for each sentence.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import keras
import tensorflow as tf

from kformer.config import DecodingConfig, TransformerConfig
from kformer.decoding import SearchResult
from kformer.decoding.sampling import check_sampling_options
from kformer.tasks.predictor import TEXT, Predictor
from kformer.text.attention import read_attention
from kformer.text.attention_maps import Attention
from kformer.text.batches import BatchSeeds
from kformer.text.beam_tree import BeamTree
from kformer.text.codec import TextCodec, best
from kformer.text.detailed import translate_detailed
from kformer.text.model_function import ModelFunction, is_one_text, model_function, text_tensor
from kformer.text.option_tensors import OPTION_SPECS, named_options, option_tensors
from kformer.text.scoring import score_pairs, target_batch
from kformer.text.searcher import Searcher
from kformer.text.tracing import trace_text
from kformer.text.translate_texts import translate_texts
from kformer.text.with_options import translate_with_options
from kformer.tokenizers import Tokenizer

TRANSLATION = tf.TensorSpec([None], tf.string, name="translation")
TARGET_PREFIX = tf.TensorSpec([None], tf.string, name="target_prefix")
TAG = tf.TensorSpec([None], tf.string, name="tag")


class Translator(Predictor):
    """Translates texts.

    Every text has a translation. Bytes that are not UTF-8 are read as U+FFFD. A text that is empty or has only blanks
    gets the translation "" with score 0. An empty batch gives an empty batch.

    A model that learned several corpora has tags (`decoding.tags`), which say what is wanted of it, such as "<2es>". A
    text begins with its tag, or else it is read with the first of them; or as it is, if some of the corpora had no tag
    (`decoding.untagged`). All lines of a text have its tag.

    The lines of a text are translated one by one. A line of more than `decoding.max_source_length` tokens, the end id
    included, is divided into its sentences, and a sentence of more than `decoding.max_sentence_length` tokens into
    parts of similar length. With learned positions, no part is longer than the model has positions. The translations
    of the parts are joined with the white space that stood between the parts.

    The translation of a text does not depend on the other texts of its batch, except for rounding: the order of sums
    depends on the shape of the batch. Rounding can decide between two hypotheses with almost equal scores.

    Args:
        model: From `build_transformer(config)`.
        config: The model's configuration.
        source_tokenizer: Tokenizer of the source texts that the model was trained on.
        target_tokenizer: Tokenizer of the target texts that the model was trained on.
        decoding: How to search; by default with the beam search of the paper. Name the lengths of the texts that the
            model was trained on, `max_source_length` and `max_sentence_length`: only a run folder knows them by itself.
        samples: Some texts of the kind that the model is made for. An export of this translator is checked with them.
        facts: What is known of the model, see `RunFolder.facts`. An export of this translator states it.

    Raises:
        ValueError: A tokenizer has another vocabulary size than the model, or the backend is not TensorFlow.

    Examples:
        >>> pronounce = Translator.from_preset("cmudict")  # from letters to sounds
        >>> pronounce(["c a t", "s h o e"])
        ['K AE T', 'SH UW']
    """

    task = "translate"
    searcher: Searcher

    def __init__(
        self,
        model: keras.Model,
        config: TransformerConfig,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        decoding: DecodingConfig | None = None,
        samples: Sequence[str] = (),
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(model, config, source_tokenizer, target_tokenizer, decoding, samples, facts)
        _check(config, source_tokenizer, target_tokenizer)
        self.codec = TextCodec(source_tokenizer, target_tokenizer, config, self.decoding)
        self.searcher = Searcher(model, config, self.decoding, never=self.codec.never)

    @model_function([TEXT])
    def translate(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Finds the best translation of each text.

        Args:
            text: (B,) string, UTF-8.

        Returns:
            `translation` (B,) string, and `score` (B,) float32: the natural logarithm of the translation's probability,
            divided by the length penalty of Wu et al. (2016), equation 14, when the beam size exceeds 1.
        """
        return self.answer(text)

    function = translate

    def answer(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """As `translate`, but not a `tf.function`."""
        return best(translate_texts(self.codec, self.searcher.find, text, n_best=1))

    def calibration_inputs(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Sources and their translations as inputs of the model, `source` (B, S) and `target_in` (B, T) int32."""
        source, _ = self.codec.encode(text)
        target = self.target_tokenizer.tokenize(self.translate(text)["translation"])
        if self.config.longest_sequence is not None:  # the translations of several sentences may be longer together
            target = target[:, : self.config.longest_sequence - 1]
        return {"source": source, "target_in": target_batch(self.codec, target, self.codec.starts(text))[0]}

    @model_function([TEXT])
    def translate_n_best(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Finds N = `decoding.beam_size` hypotheses of each text, best first.

        Args:
            text: (B,) string, UTF-8.

        Returns:
            `translation` (B, N) string, and `score` (B, N) float32 as in `translate`.
        """
        return self.find_n_best(text, self.decoding.beam_size)

    def find_n_best(self, text: tf.Tensor, n_best: int) -> dict[str, tf.Tensor]:
        """As `translate_n_best`, but not a `tf.function`, and N is `n_best`."""
        return translate_texts(self.codec, functools.partial(self.searcher.find, n_best=n_best), text, n_best)

    @model_function([TEXT, TRANSLATION])
    def score(self, text: tf.Tensor, translation: tf.Tensor) -> dict[str, tf.Tensor]:
        """Computes the probability that the model gives to translations.

        Args:
            text: (B,) string, UTF-8.
            translation: (B,) string, UTF-8: a translation of each text. Another number of translations is an error.

        Returns:
            `log_probability` (B,) float32, the natural logarithm of the probability of the translation and its end;
            `score` (B,) float32 as in `translate`; `tokens` (B,) int32, the number of tokens of the translation, its
            end included; `truncated` (B,) bool, True where a text has more tokens than the model reads: the rest does
            not count.
        """
        return score_pairs(self.codec, self.model, text, translation)

    @model_function([TEXT])
    def translate_detailed(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Translates texts, and gives the places, probabilities and alignments of the tokens.

        Places count bytes of UTF-8. A text of several parts (lines; or sentences, if a line is too long for the model)
        has the tokens of all its parts, one part after the other. S, T and L are the largest numbers in the batch;
        shorter rows are padded with "" or 0.

        Args:
            text: (B,) string, UTF-8.

        Returns:
            `translation` (B,) string and `score` (B,) float32 as in `translate`;
            `source_token` (B, S) string, `source_start` and `source_end` (B, S) int32, the tokens of the text and their
            places in the original text, and `source_length` (B,) int32, the number of these tokens;
            `target_token`, `target_start`, `target_end` (B, T) and `target_length` (B,), the same for the translation.
            The last token of each part is its end token, which has no bytes;
            `log_probability` (B, T) float32, the natural logarithm of each target token's probability given the tokens
            before it. The sum, divided by the length penalty, is the score;
            `alignment` (B, T, L) float32, how much each target token attends to the source tokens of its part, which
            begin at number `alignment_start` (B, T) int32. The rest up to a sum of 1 is the attention to the end of the
            source. It is the mean of the heads of one decoder layer (section 3.2.3 of the paper);
            `divided` (B,) bool, True for a text that was translated in several parts; `overlong` (B,) bool, True where
            a single sentence was too long for the model and was divided; `truncated` (B,) bool, True where the
            translation of a part reached its largest length without an end token; `short` (B,) bool, True where the
            translation of a part is so short for its source that something may be missing, see
            `DecodingConfig.short_ratio`.
        """
        return translate_detailed(self.codec, self.model, self.searcher.find, text)

    def attention(self, text: str, translation: str | None = None) -> Attention:
        """The attention weights between the tokens of one text and those of its translation, of all layers and heads.

        `kformer.visualization` draws them.

        Args:
            text: One sentence.
            translation: The text that the decoder reads; by default the model's translation. It is tokenized again, so
                its tokens may differ from those that a search found.

        Raises:
            ValueError: A text has no token, or more than the model reads at once; or a tokenizer cannot give the
                offsets of its tokens.
        """
        if translation is None:
            translation = self([text])[0]
        return read_attention(self.codec, self.model, text, translation)

    def beam_tree(self, text: str, beam_size: int | None = None, length_penalty: float | None = None) -> BeamTree:
        """All hypotheses that a beam search considers for one text, each with its outcome.

        `kformer.visualization.plot_beam` draws them. The search runs step by step in Python, which is slow.

        Args:
            text: One sentence.
            beam_size: At least 2; by default `decoding.beam_size`.
            length_penalty: From 0 to 10; by default `decoding.length_penalty`.

        Raises:
            ValueError: An option is out of range, or the text has no token or more than the model reads at once.
        """
        given = {"beam_size": beam_size, "length_penalty": length_penalty}
        search = self.decoding.replace(**{name: value for name, value in given.items() if value is not None})
        return trace_text(self.codec, self.model, text, search.beam_size, search.length_penalty)

    def translate_with_options(
        self,
        text: tf.Tensor | Sequence[str],
        target_prefix: str | Sequence[str] | tf.Tensor = "",
        length_penalty: float | None = None,
        max_length: int = 0,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        min_length: int = 0,
        tag: str | Sequence[str] | tf.Tensor = "",
    ) -> dict[str, tf.Tensor]:
        """Translates texts with options for this call. Without options, the result is that of `translate`.

        Args:
            text: (B,) string, UTF-8.
            target_prefix: The beginning of each translation: one for all texts, or (B,) strings. The model continues
                after it, so it should end with a whole word. Its tokens count for length and score. The translation of
                a text of several parts begins with it once; that of an empty text stays empty. A word or a symbol that
                is not in the vocabulary is refused.
            length_penalty: Exponent of a beam search's length penalty, from 0 to 10; None: `decoding.length_penalty`.
            max_length: Largest number of tokens of a part's translation, its end included; 0 for no limit but those of
                `decoding`, which always apply.
            temperature: 0 for the search of `translate`. Above 0, each token is drawn at random, with `top_k`, `top_p`
                and `seed`. The probabilities are those of `sample`, but the same seed gives other translations. The
                score is then the log probability of the drawn tokens.
            top_k: Only the k most probable tokens can be drawn; 0 for all.
            top_p: Only the most probable tokens that together reach this probability can be drawn; 1 for all.
            seed: The same texts, options and seed give the same translations; from -2**63 to 2**63 - 1.
            min_length: Least number of tokens of a part's translation before its end; 0 for `decoding.min_length`. It
                must be less than `max_length`. Where the limits of `decoding` allow fewer tokens, it is their number.
            tag: What is wanted of a model that learned several corpora, such as "<2es>": one for all texts, or (B,)
                strings, each one of `decoding.tags`. "" leaves a text as it is: it may begin with its tag itself.

        Returns:
            `translation` (B,) string and `score` (B,) float32 as in `translate`.

        Raises:
            ValueError: An argument is of another type or rank.
            tf.errors.InvalidArgumentError: An option is out of range.
        """
        options = {
            "length_penalty": length_penalty,
            "max_length": max_length,
            "min_length": min_length,
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "seed": seed,
        }
        prefixes, tags = ([value] if is_one_text(value) else value for value in (target_prefix, tag))
        return self._with_options(text, prefixes, tags, *option_tensors(self.decoding, options).values())

    @model_function(
        [TEXT, TARGET_PREFIX, TAG, *OPTION_SPECS],
        defaults=lambda decoding: [tf.constant([""]), tf.constant([""]), *option_tensors(decoding).values()],
    )
    def _with_options(
        self, text: tf.Tensor, target_prefix: tf.Tensor, tag: tf.Tensor, *options: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        return translate_with_options(self.codec, self.searcher, text, target_prefix, tag, named_options(options))

    @model_function([TEXT])
    def known_tags(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """The tags that the model knows, for a program that lets a user choose.

        Args:
            text: (B,) string, of any content.

        Returns:
            `tags` (B, K) string: in each row the words of `decoding.tags`, and "" before them if a text may have none.
        """
        words = (self.decoding.tags or "").split()
        known = tf.constant(["", *words] if words and self.decoding.untagged else words, tf.string)
        return {"tags": tf.tile(known[tf.newaxis], [tf.size(text), 1])}

    signatures: ClassVar[Mapping[str, ModelFunction]] = {
        "n_best": translate_n_best,
        "score": score,
        "known_tags": known_tags,
        "translate_detailed": translate_detailed,
        "translate_with_options": _with_options,
    }

    def sample(
        self,
        texts: str | Sequence[str],
        seed: int,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
    ) -> str | list[str]:
        """Draws a translation of each text at random. The same texts and seed give the same translations.

        Args:
            texts: One text, or a list of texts.
            seed: Decides what is drawn; from -2**63 to 2**64 - 1.
            temperature: Divides the logits: values below 1 make probable tokens more probable, values above 1 less.
            top_k: Only the k most probable tokens can be drawn; 0 for all.
            top_p: Only the most probable tokens that together reach this probability can be drawn; 1 for all.

        Returns:
            One translation, or a list of translations.

        Raises:
            ValueError: An option is out of range, or a text is not a string. It is raised before the model runs.
        """
        if is_one_text(texts):
            return self.sample([texts], seed, temperature, top_k, top_p)[0]
        check_sampling_options(seed, temperature, top_k, top_p)
        seeds = BatchSeeds(int(seed))

        def draw(source: tf.Tensor, limits: tf.Tensor, starts: tf.Tensor) -> SearchResult:
            of_batch = seeds.next(len(source)) % 2**64
            return self.searcher.sample(source, limits, of_batch, temperature, top_k, top_p, starts)

        found = best(translate_texts(self.codec, draw, text_tensor(texts), n_best=1))
        return [text.decode("utf-8") for text in found["translation"].numpy()]


def _check(config: TransformerConfig, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer) -> None:
    for side, tokenizer in (("source", source_tokenizer), ("target", target_tokenizer)):
        vocab_size = getattr(config, f"{side}_vocab_size")
        if tokenizer.vocab_size != vocab_size:
            raise ValueError(
                f"The {side} tokenizer and the model differ in the size of their vocabulary. Received: a tokenizer of "
                f"{tokenizer.vocab_size} ids, a model of {side}_vocab_size={vocab_size}. "
                f"Pass the tokenizer that the model was trained with. A new model is built with {side}_vocab_size="
                f"{tokenizer.vocab_size}, from a configuration that has the vocab_size of the tokenizers."
            )
