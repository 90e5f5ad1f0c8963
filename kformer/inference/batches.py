"""Many texts through one model, whether it is a run folder or an exported SavedModel."""

import concurrent.futures
import os
import pathlib
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from kformer.config import DecodingConfig
from kformer.export.graph import n_best_function
from kformer.export.saved_model import description
from kformer.export.variables import Weights
from kformer.hardware import cpu_multiplies_bfloat16
from kformer.runs.folder import RunFolder
from kformer.translation.translator import Translator

BATCH_SIZE = 32


class Hypothesis(NamedTuple):
    """One translation of one text."""

    text: str
    score: float


# A batch of texts to the hypotheses of each, best first.
TranslateBatch = Callable[[Sequence[bytes]], list[list[Hypothesis]]]


def load_model(path: str | pathlib.Path, decoding: DecodingConfig | None = None, n_best: int = 1) -> TranslateBatch:
    """A function that translates batches.

    Args:
        path: A run folder, a SavedModel, or a folder of numbered SavedModel versions (the last one is taken).
        decoding: How a run folder's model searches. A SavedModel carries its own search, so it must be None.
        n_best: Hypotheses a text, at most the beam size.

    Raises:
        FileNotFoundError: There is no model at `path`.
        ValueError: `decoding` or `n_best` was given for a SavedModel, or `n_best` exceeds the beam size.
    """
    path = pathlib.Path(path)
    saved_model = find_saved_model(path)
    if saved_model is None:
        return _from_run(path, decoding or DecodingConfig(), n_best)
    if decoding is not None or n_best != 1:
        raise ValueError(
            f"{path} is a SavedModel: its search was fixed when it was exported, and it gives one translation a text. "
            "Leave out the beam size and n-best, or name the run folder."
        )
    return _from_saved_model(saved_model)


def translate_all(
    translate: TranslateBatch,
    texts: Sequence[bytes],
    batch_size: int = BATCH_SIZE,
    on_batch: Callable[[int], None] = lambda done: None,
) -> list[list[Hypothesis]]:
    """Translates any number of texts, those of about the same length together; the order is kept.

    As many batches are under way at once as there are cores: the small operations of one batch do not fill them.

    Args:
        translate: From `load_model`.
        texts: UTF-8.
        batch_size: Texts a batch.
        on_batch: Called after each batch with the number of texts in it.
    """
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]), reverse=True)
    batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    results: list[list[Hypothesis]] = [[] for _ in texts]
    pool = concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count())
    try:
        for batch, found in zip(
            batches, pool.map(lambda batch: translate([texts[index] for index in batch]), batches), strict=True
        ):
            for index, hypotheses in zip(batch, found, strict=True):
                results[index] = hypotheses
            on_batch(len(batch))
    finally:
        pool.shutdown(cancel_futures=True)  # after an error or Ctrl-C: no more than the batches under way
    return results


def find_saved_model(path: pathlib.Path) -> pathlib.Path | None:
    """`path` if it is a SavedModel, else its last numbered version, else None."""
    versions = [entry for entry in path.iterdir() if entry.name.isdigit()] if path.is_dir() else []
    for candidate in (path, *sorted(versions, key=lambda entry: int(entry.name), reverse=True)):
        if (candidate / "saved_model.pb").is_file():
            return candidate
    return None


def _from_run(path: pathlib.Path, decoding: DecodingConfig, n_best: int) -> TranslateBatch:
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist. Name a run folder or a SavedModel.")
    if n_best > decoding.beam_size:
        raise ValueError(
            f"A search finds as many hypotheses as its beam is wide. Received: n_best={n_best}, "
            f"beam_size={decoding.beam_size}. Widen the beam."
        )
    RunFolder(path).check()
    weights = Weights()
    function = n_best_function(Translator.from_run(path, decoding), weights, n_best)

    def translate(texts: Sequence[bytes]) -> list[list[Hypothesis]]:
        found = function(tf.constant(list(texts), tf.string, shape=[len(texts)]))
        rows = zip(found["translation"].numpy(), found["score"].numpy(), strict=True)
        return [_hypotheses(translations, scores) for translations, scores in rows]

    translate.weights = weights  # keeps the variables alive as long as the function
    return translate


def _from_saved_model(path: pathlib.Path) -> TranslateBatch:
    import tensorflow_text  # noqa: F401  (its operations are in the graph)

    if description(path).get("precision") == "bfloat16" and not cpu_multiplies_bfloat16():
        warnings.warn(
            f"{path} computes in bfloat16, which this CPU only emulates: it will be slow. "
            "Export with --precision float32 for this machine.",
            stacklevel=2,
        )
    loaded = tf.saved_model.load(str(path))
    signature = loaded.signatures["serving_default"]

    def translate(texts: Sequence[bytes]) -> list[list[Hypothesis]]:
        found = signature(text=tf.constant(list(texts), tf.string, shape=[len(texts)]))
        rows = zip(found["translation"].numpy(), found["score"].numpy(), strict=True)
        return [_hypotheses([translation], [score]) for translation, score in rows]

    translate.loaded = loaded  # keeps the variables alive as long as the function
    return translate


def _hypotheses(translations: Sequence[bytes], scores: Sequence[float]) -> list[Hypothesis]:
    return [
        Hypothesis(translation.decode("utf-8"), float(score))
        for translation, score in zip(translations, scores, strict=True)
    ]
