"""Translates validation sources during training, to score and show the translations and their attention."""

import pathlib
from collections.abc import Callable, Mapping, Sequence

import keras
import numpy as np
import rich.console
import tensorflow as tf

from kformer.config import MONITORS, DecodingConfig, Monitor, TransformerConfig
from kformer.data import Pair
from kformer.decoding import SearchResult
from kformer.evaluation.evaluate import score_parts
from kformer.export.saved_model import export_saved_model
from kformer.models import attention_scores
from kformer.runs.folder import RunFolder
from kformer.tasks import task_of_run
from kformer.tasks.translator import TEXT
from kformer.text.batches import BATCH_SIZE, Hypothesis, hypotheses
from kformer.text.codec import TextCodec
from kformer.text.parts import Parts, join
from kformer.text.searcher import Searcher, compiled_search, own_values
from kformer.tokenizers import Tokenizer
from kformer.training.callbacks import TensorBoardLog

GREEDY = DecodingConfig(beam_size=1)
_FOUND = SearchResult(
    tokens=tf.TensorSpec([None, None, None], tf.int32),
    scores=tf.TensorSpec([None, None], tf.float32),
    lengths=tf.TensorSpec([None, None], tf.int32),
)
_PADDED_TO = 16  # source lengths are padded to multiples of it
_CELL = 8  # pixels
_GAP = 4


class LiveTranslator:
    """Greedy translations by a model in training, with its current weights, on every backend.

    Args:
        model: From `build_transformer(config)`.
        config: Its configuration.
        tokenizers: Source and target tokenizer.
        decoding: How long the lines may be that are not divided. The rest of it is not used.
    """

    def __init__(
        self,
        model: keras.Model,
        config: TransformerConfig,
        tokenizers: tuple[Tokenizer, Tokenizer],
        decoding: DecodingConfig,
    ) -> None:
        self.model = model
        self.config = config
        self.codec = TextCodec(*tokenizers, config, GREEDY.completed(decoding))
        self._divide = tf.function(self._parts, [TEXT], autograph=False)
        self._encode = tf.function(self._whole, [TEXT], autograph=False)
        self._decode = tf.function(self.codec.decode_best, [_FOUND, tf.TensorSpec([None], tf.int32)], autograph=False)
        self._search = compiled_search(Searcher(model, config, self.codec.decoding, never=self.codec.never))

    def __call__(self, texts: Sequence[bytes]) -> list[list[Hypothesis]]:
        """Translates texts as a `kformer.text.batches.AnswerBatch` does, with one hypothesis per text."""
        parts = self._divide(tf.constant(list(texts), tf.string))
        batches = (slice(first, first + BATCH_SIZE) for first in range(0, len(parts.text), BATCH_SIZE))
        found = [self._of_rows(parts.ids[rows], parts.start[rows]) for rows in batches]
        translation, score, lengths = (np.concatenate(of_rows) for of_rows in zip(*found, strict=True))
        whole = join(parts, len(texts), translation, score, lengths, self.codec.score_norm)
        return hypotheses(whole["translation"].numpy(), whole["score"].numpy())

    def _of_rows(self, ids: tf.RaggedTensor, starts: tf.Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Translations, scores and lengths, each (N, 1), of the ids of N texts, and of what stands before each one."""
        source, limits, starts = self._padded(*self.codec.pad(ids), starts)
        result = self._find(source, limits, starts)
        found, rows = self._decode(result, limits), int(ids.nrows())
        translation, score = (found[name][:rows, tf.newaxis].numpy() for name in ("translation", "score"))
        return translation, score, result.lengths[:rows]

    def attention(self, text: str) -> list[np.ndarray]:
        """Cross-attention weights (H, T, S) of every layer, over the greedy translation of a text."""
        source, limits, starts = self._padded(*self._encode(tf.constant([text])))
        found = self._find(source, limits, starts)
        tokens = found.tokens[:1, 0, : int(found.lengths[0, 0])]  # (1, T)
        target_in = np.concatenate([starts[:1, np.newaxis], tokens[:, :-1]], axis=1)
        source = source[:1, : int(np.sum(source[0] != self.config.pad_id))]
        variables = self.model.variables
        with keras.StatelessScope(state_mapping=list(zip(variables, own_values(variables), strict=True))):
            scores = attention_scores(self.model, source, target_in, self.config.pad_id).cross
        return [keras.ops.convert_to_numpy(keras.ops.cast(of_layer, "float32"))[0] for of_layer in scores]

    def _parts(self, text: tf.Tensor) -> Parts:
        return self.codec.divide(text)

    def _whole(self, text: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Ids, limits and starts of texts that are not divided."""
        return *self.codec.encode(text), self.codec.starts(text)

    def _padded(self, source: tf.Tensor, limits: tf.Tensor, starts: tf.Tensor) -> tuple[np.ndarray, ...]:
        """Ids, limits and starts of texts, padded to few shapes where the search is compiled for every shape."""
        source, limits, starts = source.numpy(), limits.numpy(), starts.numpy()
        if keras.backend.backend() == "tensorflow":
            return source, limits, starts
        length = min(source.shape[1] + -source.shape[1] % _PADDED_TO, self.codec.longest_part + 1)
        more_rows = -len(source) % BATCH_SIZE
        more_tokens = length - source.shape[1]
        source = np.pad(source, [(0, more_rows), (0, more_tokens)], constant_values=self.config.pad_id)
        return source, np.pad(limits, (0, more_rows)), np.pad(starts, (0, more_rows))

    def _find(self, source: np.ndarray, limits: np.ndarray, starts: np.ndarray) -> SearchResult:
        return SearchResult(*(keras.ops.convert_to_numpy(part) for part in self._search(source, limits, starts)))


class ScoreTranslations:
    """Scores translations of validation sources by the metrics of `kformer.config.MONITORS` that suit the corpus.

    Args:
        translate: The translator.
        parts: Validation pairs of each corpus, by its name. Those of several are scored together and each apart.
        symbols: Whether the translations are symbols, not sentences.
        limit: The number of sources to translate.
        bleu_tokenizer: How BLEU splits texts into words, see `kformer.evaluation.bleu_and_chrf`. None: as suits all
            targets together, and those of each corpus.
        monitor: The metric that decides the best weights. Of the slow metrics, only this one is computed.
        on_batch: Called after each batch of translations. It may end the validation by raising an exception.
    """

    def __init__(
        self,
        translate: LiveTranslator,
        parts: Mapping[str, Sequence[Pair]],
        symbols: bool,
        limit: int,
        bleu_tokenizer: str | None,
        monitor: Monitor,
        on_batch: Callable[[], None] = lambda: None,
    ) -> None:
        self.translate = translate
        self.parts = parts
        self.symbols = symbols
        self.limit = limit
        self.bleu_tokenizer = bleu_tokenizer
        self.monitor = monitor
        self.on_batch = on_batch

    def __call__(self) -> dict[str, float]:
        """The scores of the current weights, by their names in the logs, with a corpus's name behind a blank."""
        pairs, on_batch = [*self.parts.values()], lambda done: self.on_batch()
        suitable = [monitor for monitor in MONITORS.values() if monitor.translations and monitor.suits(self.symbols)]
        wanted = [monitor for monitor in suitable if monitor == self.monitor or not monitor.slow]
        ter = MONITORS["ter"] in wanted
        together, *apart = score_parts(
            self.translate, pairs, self.symbols, self.limit, on_batch, self.bleu_tokenizer, ter
        )
        found = {monitor.log_key: together[monitor.metric] for monitor in wanted}
        if len(apart) > 1:
            for name, scores in zip(self.parts, apart, strict=True):
                found |= {f"{monitor.log_key} {name}": scores[monitor.metric] for monitor in wanted}
        return found


class SampleTranslations:
    """Prints translations of a few texts. TensorBoard gets them, too, and an attention image.

    The image has a row for each decoder layer and a column for each head. In each of these parts a row of squares
    stands for a target token and a column for a source token. Darker squares have larger attention weights.

    Args:
        texts: Source texts.
        translate: The translator.
        console: Where to print: the progress bar's console, so that the lines appear above the bar.
        tensorboard: Writes the translations and the image.
    """

    def __init__(
        self,
        texts: Sequence[str],
        translate: LiveTranslator,
        console: rich.console.Console,
        tensorboard: TensorBoardLog,
    ) -> None:
        self.texts = list(texts)
        self.translate = translate
        self.console = console
        self.tensorboard = tensorboard

    def __call__(self) -> None:
        """Translates with the current weights."""
        found = self.translate([text.encode("utf-8") for text in self.texts])
        pairs = [(text, hypotheses[0].text) for text, hypotheses in zip(self.texts, found, strict=True)]
        for text, translation in pairs:
            self.console.print(f"  {text}\n  -> {translation}", markup=False)
        self.tensorboard.write_text("samples", "\n\n".join(f"    {text}\n    -> {found}" for text, found in pairs))
        self.tensorboard.write_image("attention", attention_picture(self.translate.attention(self.texts[0])))


def export_best(run: RunFolder, directory: str | pathlib.Path, console: rich.console.Console) -> None:
    """Exports a run's best weights.

    Args:
        run: The run folder.
        directory: A base folder; gets a new version each time.
        console: Where to print the path of the new version.
    """
    version = export_saved_model(task_of_run(run).load(run.path), directory)
    console.print(f"  exported {version}", markup=False)


def attention_picture(scores: Sequence[np.ndarray]) -> np.ndarray:
    """Attention weights (H, T, S) of every layer as one image: (height, width) uint8, 0 (black) for weight 1."""
    return np.concatenate([np.concatenate([_square(head) for head in layer], axis=1) for layer in scores], axis=0)


def _square(weights: np.ndarray) -> np.ndarray:
    """(T, S) weights as squares of `_CELL` pixels, with a white margin to the right and below."""
    pixels = np.kron(np.round(255 * (1 - weights)).astype("uint8"), np.ones((_CELL, _CELL), "uint8"))
    return np.pad(pixels, [(0, _GAP), (0, _GAP)], constant_values=255)
