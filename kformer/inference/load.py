"""A run folder or an exported SavedModel as one function that translates batches."""

import pathlib
import warnings
from collections.abc import Callable, Sequence

import tensorflow as tf

from kformer.checksums import SUMS_FILE, check_folder
from kformer.config import DecodingConfig
from kformer.export.graph import n_best_function
from kformer.export.variables import Weights
from kformer.export.versions import DESCRIPTION_FILE, description
from kformer.files import DAMAGE
from kformer.hardware import cpu_multiplies_bfloat16
from kformer.inference.find import check_search, find_model
from kformer.runs.folder import RunFolder
from kformer.translation.batches import Hypothesis, TranslateBatch
from kformer.translation.translator import Translator


def load_model(path: str | pathlib.Path, decoding: DecodingConfig | None = None, n_best: int = 1) -> TranslateBatch:
    """A function that translates batches.

    Args:
        path: A run folder, a SavedModel, or a folder of numbered SavedModel versions (the last one is taken).
        decoding: How a run folder's model searches; by default as the folder says (`RunFolder.decoding_config`).
            A SavedModel carries its own search, so it must be None.
        n_best: Hypotheses per text, at most the beam size.

    Raises:
        FileNotFoundError: There is no model at `path`, or a run folder without weights.
        ValueError: `decoding` or `n_best` was given for a SavedModel, `n_best` exceeds the beam size, or a file of the
            model is damaged.
    """
    model = find_model(path)
    check_search(model, decoding, n_best)
    return _from_run(model, decoding, n_best) if isinstance(model, RunFolder) else _from_saved_model(model)


class _Translate:
    """A `TranslateBatch` over a TensorFlow function from (B,) strings to `translation` and `score`.

    Args:
        function: Its results have the shape (B,) or (B, N).
        owner: The owner of its variables, which must stay alive as long as the function.
        n_best: N.
    """

    def __init__(self, function: Callable[..., dict[str, tf.Tensor]], owner: object, n_best: int) -> None:
        self.function = function
        self.owner = owner
        self.n_best = n_best

    def __call__(self, texts: Sequence[bytes]) -> list[list[Hypothesis]]:
        found = self.function(text=tf.constant(list(texts), tf.string, shape=[len(texts)]))
        shape = (len(texts), self.n_best)
        rows = zip(found["translation"].numpy().reshape(shape), found["score"].numpy().reshape(shape), strict=True)
        return [
            [Hypothesis(text.decode("utf-8"), float(score)) for text, score in zip(*row, strict=True)] for row in rows
        ]


def _from_run(run: RunFolder, decoding: DecodingConfig | None, n_best: int) -> TranslateBatch:
    weights = Weights()
    function = n_best_function(Translator.from_run(run.path, decoding), weights, n_best)
    return _Translate(function, weights, n_best)


def _from_saved_model(path: pathlib.Path) -> TranslateBatch:
    import tensorflow_text  # noqa: F401  (its operations are in the graph)

    sums = (path / DESCRIPTION_FILE).parent
    if (sums / SUMS_FILE).is_file():
        check_folder(sums, remedy="Export the model again.")
    if description(path).get("precision") == "bfloat16" and not cpu_multiplies_bfloat16():
        warnings.warn(
            f"{path} computes in bfloat16, which this CPU only emulates: it will be slow. "
            "Export with --precision float32 for this machine.",
            stacklevel=2,
        )
    try:
        loaded = tf.saved_model.load(str(path))
        signature = loaded.signatures["serving_default"]
    except (tf.errors.OpError, *DAMAGE) as error:
        raise ValueError(f"{path} cannot be loaded: {error}. Export the model again.") from error
    return _Translate(signature, loaded, 1)
