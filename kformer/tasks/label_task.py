"""What classifiers and taggers share: an encoder over texts, and labels to choose from.

Shape letters: B texts, N labels.
"""

from kformer.config import TrainingConfig, TransformerConfig
from kformer.data import Pairs
from kformer.data.label_checks import labels_of
from kformer.data.pairs import MappedPairs, Pair, source_only
from kformer.data.vocabularies import train_tokenizers
from kformer.tasks.base import Task
from kformer.tasks.predictor import Predictor
from kformer.text.codec import longest_source
from kformer.tokenizers import SymbolTokenizer, Tokenizer

NO_LABEL = b"\xe2\x81\x87"  # "⁇" in UTF-8


class LabelPredictor(Predictor):
    """A trained encoder-only model that answers texts with labels.

    Args:
        model: From `kformer.models.build_model`.
        config: The model's configuration.
        source_tokenizer: Tokenizer of the texts.
        target_tokenizer: The labels.
        decoding: `max_source_length` is the largest number of tokens that the model reads; the rest is cut off.
        samples: Some texts of the kind that the model is made for. An export is checked with them.
        facts: What is known of the model, see `RunFolder.facts`.
    """

    @property
    def labels(self) -> tuple[str, ...]:
        """All labels, in the order of their probabilities in `answer`."""
        return self.target_tokenizer.symbols

    @property
    def longest(self) -> int:
        """The largest number of tokens that the model reads."""
        return longest_source(self.config, self.decoding)


class LabelTask(Task):
    """A task whose targets are labels: symbols without blanks."""

    def pairs(self, pairs: Pairs) -> Pairs:
        return MappedPairs(_with_labels, pairs)

    def adapt(self, transformer: TransformerConfig) -> TransformerConfig:
        return transformer.replace(num_decoder_layers=0, embedding_tying="none")

    def train_tokenizers(self, pairs: Pairs, training: TrainingConfig) -> tuple[Tokenizer, Tokenizer]:
        source, _ = train_tokenizers(MappedPairs(source_only, pairs), training.replace(shared_vocabulary=True))
        return source, self._labels(pairs)

    def keep_tokenizers(
        self, tokenizers: tuple[Tokenizer, Tokenizer], earlier: str, pairs: Pairs
    ) -> tuple[Tokenizer, Tokenizer]:
        """The labels of an earlier run of this task are kept if they include all labels of the pairs."""
        labels = self._labels(pairs)
        kept = tokenizers[1]
        if earlier == self.name and isinstance(kept, SymbolTokenizer) and set(labels.symbols) <= set(kept.symbols):
            return tokenizers
        return tokenizers[0], labels

    def _labels(self, pairs: Pairs) -> SymbolTokenizer:
        return SymbolTokenizer.train(label for _, label in pairs)


def _with_labels(pair: Pair) -> Pair:
    """The pair with its labels in the form in which labels are compared."""
    return pair[0], " ".join(labels_of(pair[1]))
