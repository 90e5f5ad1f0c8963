"""Classification: one label for a text, or for a pair of texts.

Shape letters: B texts, N labels.
"""

import pathlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from kformer.config import DecodingConfig, TrainingConfig
from kformer.data import EncodedPairs, Pair, Pairs
from kformer.data.arrangements import Arrangement, SourceToLabels
from kformer.data.encoded_ids import IdStore
from kformer.data.encoding import Sequences, encode_with, ended
from kformer.tasks.encoder_inputs import TAB, encode_texts, encoded_texts
from kformer.tasks.label_task import LabelPredictor, LabelTask
from kformer.text.model_function import text_tensor
from kformer.text.translate_texts import BATCH_TOKENS, in_batches
from kformer.tokenizers import Tokenizer
from kformer.tokenizers.base import NUM_SPECIAL_IDS
from kformer.tokenizers.ragged import sums


class Classifier(LabelPredictor):
    """Finds the label of a text, or of a pair of texts with a tab between them.

    A model that has learned from single texts reads a tab as a blank, because it has never seen a second text.

    Examples:
        >>> classifier = Classifier.from_preset("bible-books")
        >>> classifier("In the beginning, God created the heavens and the earth.")
        'law'
    """

    task = "classify"

    @property
    def reads_pairs(self) -> bool:
        """Whether a tab divides a pair of texts: it did in the training corpus, or the corpus is not known."""
        return self.facts.get("corpus", {}).get("tabs_in_sources", True)

    def probabilities(self, texts: str | Sequence[str]) -> np.ndarray:
        """The probability of each label, (B, N) float32 in the order of `labels`, for one text (B is 1) or B texts.

        Raises:
            ValueError: A text is not a string.
        """
        return self.function(text_tensor(texts))["probabilities"].numpy()

    def answer(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Finds the most probable label of each text.

        Args:
            text: (B,) string, UTF-8. A tab divides a pair of texts, if the model `reads_pairs`. Tokens beyond `longest`
                are cut off.

        Returns:
            `label` (B,) string; `probability` (B,) float32, the probability of the label; `probabilities` (B, N)
            float32, those of all labels; and `labels` (B, N) string, these labels in the same order. A text without any
            token has the label "" and only probabilities of 0.
        """
        ids = self._ids(text)

        def batch(rows: tf.Tensor) -> tuple[tf.Tensor]:
            source = tf.gather(ids, rows).to_tensor(self.config.pad_id)
            logits = self.model({"source": source}, training=False)[:, 0, NUM_SPECIAL_IDS:]
            return (tf.nn.softmax(logits),)

        lengths = tf.cast(ids.row_lengths(), tf.int32)
        (probabilities,) = in_batches(lengths, BATCH_TOKENS, batch, [tf.zeros((0, len(self.labels)))])
        label = tf.gather(tf.constant(self.labels), tf.argmax(probabilities, axis=1))
        is_token = (ids.values != self.source_tokenizer.start_id) & (ids.values != self.source_tokenizer.end_id)
        is_text = sums(ids.with_values(tf.cast(is_token, tf.int64))) > 0
        probabilities = tf.where(is_text[:, tf.newaxis], probabilities, 0.0)
        return {
            "label": tf.where(is_text, label, ""),
            "probability": tf.reduce_max(probabilities, axis=1),
            "probabilities": probabilities,
            "labels": tf.repeat([tf.constant(self.labels)], tf.shape(probabilities)[0], axis=0),
        }

    def calibration_inputs(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"source": self._ids(text).to_tensor(self.config.pad_id)}

    def is_cut(self, text: tf.Tensor) -> tf.Tensor:
        return self._all_ids(text).row_lengths() > self.longest

    def _ids(self, text: tf.Tensor) -> tf.RaggedTensor:
        """(B,) string to (B, None) int32, at most `longest` ids of each text."""
        return self._all_ids(text)[:, : self.longest]

    def _all_ids(self, text: tf.Tensor) -> tf.RaggedTensor:
        if not self.reads_pairs:
            text = tf.strings.regex_replace(text, TAB, " ")
        return encode_texts(text, self.source_tokenizer)


class ClassifyTask(LabelTask):
    """The task to give one label to a text, or to two texts with a tab between them."""

    name = "classify"

    def encode(
        self, pairs: Pairs, tokenizers: tuple[Tokenizer, Tokenizer], max_length: int, store: IdStore | None = None
    ) -> EncodedPairs:
        source, labels = tokenizers

        def encode(pairs: Sequence[Pair]) -> tuple[Sequences, Sequences]:
            return encoded_texts([text for text, _ in pairs], source), ended([label for _, label in pairs], labels)

        return encode_with(encode, pairs, source, labels, max_length, store)

    def arrangement(self, tokenizers: tuple[Tokenizer, Tokenizer], training: TrainingConfig) -> Arrangement:
        return SourceToLabels(for_each_token=False)

    def load(self, run: str | pathlib.Path, decoding: DecodingConfig | None = None) -> Classifier:
        return Classifier.from_run(run, decoding)
