"""The translator as a SavedModel for TensorFlow Serving, or for anything else that loads SavedModels."""

import json
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from kformer import files
from kformer.export.graph import served_function
from kformer.export.variables import Weights
from kformer.tokenizers import Tokenizer
from kformer.tokenizers.base import NUM_SPECIAL_IDS
from kformer.translation.translator import Translator

# Beside the graph: TensorFlow Serving leaves this folder alone.
DESCRIPTION_FILE = "assets.extra/kformer.json"

# How far scores may be apart, as a share of their mean.
SCORE_TOLERANCE = {"float32": 1e-3, "bfloat16": 0.05, "int8": 0.1}

# Operations that a stock TensorFlow Serving refuses: Python callbacks cannot leave this process, and the
# XLA bridge is not part of core TensorFlow.
_PYTHON_OPERATIONS = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})


def export_saved_model(
    translator: Translator,
    directory: str | pathlib.Path,
    version: int | None = None,
    precision: str = "float32",
    variant: str = "portable",
    probes: Sequence[str] = (),
) -> pathlib.Path:
    """Writes `directory/<version>/`, a SavedModel with the signature `serving_default`, and tries it out.

    The signature takes `text` and gives `translation` and `score`, all of shape (B,), so that TensorFlow
    Serving may batch requests. The folder appears whole or not at all: it is written under a name
    that TensorFlow Serving does not look at, checked, and renamed.

    The weights are variables of the export's own: Keras's, saved as such, reach a Python loader but not
    TensorFlow's C API.

    Before it gets its name, the export translates some texts beside `translator` itself. `DESCRIPTION_FILE` in it says
    how it was made and how far the two were apart.

    Args:
        translator: What to export.
        directory: The model's base folder; made if missing.
        version: Number of the new version; by default one more than the last one in `directory`.
        precision: Of the matrix products: "float32"; "bfloat16", half the size, and faster where the CPU multiplies it
            (AVX512-BF16 or AMX), but slow elsewhere; "int8", a quarter of the size, on x86 alone.
        variant: "portable": core operations, runs everywhere; "xla": the search is compiled for each shape that it
            meets, in float32 only, which TensorFlow Serving does only with `--xla_cpu_compilation_enabled`.
        probes: The texts to try it out on; by default random ones, which say little of how a trained model behaves.

    Returns:
        The path of the new version.

    Raises:
        FileExistsError: The version exists already.
        ValueError: `version` is negative, `precision` or `variant` is unknown, the graph holds an operation that
            cannot be served, or the export scores its translations otherwise than the translator does.
    """
    directory = pathlib.Path(directory)
    if version is not None:
        _check_version(directory, version)
    with files.staging_folder(directory, "export") as fresh:
        served = _Served(translator, precision, variant)
        tf.saved_model.save(served, str(fresh), signatures={"serving_default": served.translate})
        check_operations(fresh)
        agreement = check_agreement(fresh, translator, probes or random_texts(translator.source_tokenizer), precision)
        _describe(fresh, {"precision": precision, "variant": variant, **translator.decoding.to_dict(), **agreement})
        files.sync_tree(fresh)
        return _named(fresh, directory, version)


class _Served(tf.Module):
    """What is saved: the function, its weights, and the tokenizers' resources."""

    def __init__(self, translator: Translator, precision: str, variant: str) -> None:
        super().__init__(name="kformer")
        self.source_tokenizer = translator.source_tokenizer
        self.target_tokenizer = translator.target_tokenizer
        self.weights = Weights()
        self.translate = served_function(translator, self.weights, precision, variant)


def operations(saved_model: str | pathlib.Path) -> set[str]:
    """Names of all operations in a SavedModel's graph and in its functions."""
    proto = saved_model_pb2.SavedModel()
    proto.ParseFromString(pathlib.Path(saved_model, "saved_model.pb").read_bytes())
    names: set[str] = set()
    for meta_graph in proto.meta_graphs:
        names.update(node.op for node in meta_graph.graph_def.node)
        for function in meta_graph.graph_def.library.function:
            names.update(node.op for node in function.node_def)
    return names


def check_operations(saved_model: str | pathlib.Path) -> None:
    """Refuses a SavedModel that a stock TensorFlow Serving could not run.

    Raises:
        ValueError: There is a Python callback or an operation of the XLA bridge in it.
    """
    refused = sorted(name for name in operations(saved_model) if name in _PYTHON_OPERATIONS or name.startswith("Xla"))
    if refused:
        raise ValueError(
            f"The graph holds operations that TensorFlow Serving does not run: {', '.join(refused)}. "
            "Use a tokenizer that is made of TensorFlow operations."
        )


def check_agreement(
    saved_model: str | pathlib.Path, translator: Translator, texts: Sequence[str], precision: str
) -> dict[str, float]:
    """Translates `texts` with both: the share of identical translations, and how far the scores are apart.

    Raises:
        ValueError: Their scores differ by more than rounding to `precision` explains.
    """
    function = tf.saved_model.load(str(saved_model)).signatures["serving_default"]
    expected, found = translator.translate(tf.constant(list(texts))), function(text=tf.constant(list(texts)))
    same = expected["translation"].numpy() == found["translation"].numpy()
    distance = np.abs(expected["score"].numpy() - found["score"].numpy()).mean()
    share = float(distance / max(np.abs(expected["score"].numpy()).mean(), 1e-9))
    if not share <= SCORE_TOLERANCE[precision]:  # nan is not, either
        raise ValueError(
            f"The export does not compute what the translator does. Its scores on {len(texts)} texts differ by "
            f"{share:.2%} of their mean; {precision} explains at most {SCORE_TOLERANCE[precision]:.2%}. "
            "Export in float32."
        )
    return {"probes": len(texts), "identical_translations": float(same.mean()), "score_difference": share}


def random_texts(tokenizer: Tokenizer, number: int = 16) -> list[str]:
    """Texts of random pieces, of one to `number` of them; always the same ones."""
    pieces = np.random.default_rng(0).integers(NUM_SPECIAL_IDS, tokenizer.vocab_size, (number, number))
    ids = tf.RaggedTensor.from_tensor(pieces.astype("int32"), lengths=range(1, number + 1))
    return [text.decode("utf-8", "replace") for text in tokenizer.detokenize(ids).numpy()]


def description(saved_model: str | pathlib.Path) -> dict[str, Any]:
    """How an export was made; empty for a SavedModel that kformer did not write."""
    path = pathlib.Path(saved_model, DESCRIPTION_FILE)
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _describe(saved_model: pathlib.Path, description: dict[str, Any]) -> None:
    path = saved_model / DESCRIPTION_FILE
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")


def _next_version(directory: pathlib.Path) -> int:
    if not directory.is_dir():
        return 1
    versions = [int(entry.name) for entry in directory.iterdir() if entry.name.isdigit()]
    return max(versions, default=0) + 1


def _check_version(directory: pathlib.Path, version: int) -> None:
    if version < 0:
        raise ValueError(f"version must be at least 0. Received: version={version}.")
    if (directory / str(version)).exists():
        raise FileExistsError(
            f"{directory / str(version)} exists already. Choose another version, or leave it out to get the next one."
        )


def _named(fresh: pathlib.Path, directory: pathlib.Path, version: int | None) -> pathlib.Path:
    """Gives a finished export its name: the next version, also where another export has just taken one."""
    while True:
        target = directory / str(_next_version(directory) if version is None else version)
        try:
            fresh.rename(target)  # Refused by the system where the version exists, as it is not empty.
            return target
        except OSError:
            if version is not None or not target.exists():
                raise
