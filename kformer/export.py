"""The translator as a SavedModel for TensorFlow Serving, or for anything else that loads SavedModels."""

import math
import pathlib
import tempfile

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from kformer.freezing import FrozenScope, with_precision
from kformer.translator import TEXT, Translator

# A graph is a protocol buffer, which ends at 2 GiB.
MAX_WEIGHT_BYTES = 2**31 - 2**26

# Operations that a stock TensorFlow Serving refuses: Python callbacks cannot leave this process, and the
# XLA bridge is not part of core TensorFlow.
_PYTHON_OPERATIONS = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})


def export_saved_model(
    translator: Translator,
    directory: str | pathlib.Path,
    version: int | None = None,
    precision: str = "float32",
    variant: str = "portable",
) -> pathlib.Path:
    """Writes `directory/<version>/`, a SavedModel with the signature `serving_default`.

    The signature takes `text` and gives `translation` and `score`, all of shape (B,), so that TensorFlow
    Serving may batch requests. The folder appears whole or not at all: it is written under a name
    that TensorFlow Serving does not look at, checked, and renamed.

    The weights are constants of the graph, so that no loader has to find and restore variables: Keras's, saved
    as such, reach a Python loader but not TensorFlow's C API.

    Args:
        translator: What to export.
        directory: The model's base folder; made if missing.
        version: Number of the new version; by default one more than the last one in `directory`.

    Returns:
        The path of the new version.

    Raises:
        FileExistsError: The version exists already.
        ValueError: `version` is negative, the weights exceed 2 GB, or the graph holds an operation that
            cannot be served.
    """
    directory = pathlib.Path(directory)
    target = directory / str(_next_version(directory) if version is None else _checked_version(version))
    if target.exists():
        raise FileExistsError(f"{target} exists already. Choose another version, or leave it out to get the next one.")
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".export-", dir=directory) as beside:
        fresh = pathlib.Path(beside, "saved_model")
        served = _Frozen(_prepared(translator, precision))
        tf.saved_model.save(served, str(fresh), signatures={"serving_default": served.translate})
        check_operations(fresh)
        fresh.rename(target)
    return target


def _prepared(translator: Translator, precision: str) -> Translator:
    model = with_precision(translator.model, translator.config, precision)
    tokenizers = (translator.source_tokenizer, translator.target_tokenizer)
    return Translator(model, translator.config, *tokenizers, translator.decoding)


class _Frozen(tf.Module):
    """What is saved: the translator's function over constant weights, and the tokenizers' resources."""

    def __init__(self, translator: Translator) -> None:
        super().__init__(name="kformer")
        size = sum(math.prod(variable.shape) * 4 for variable in translator.model.variables)
        if size > MAX_WEIGHT_BYTES:
            raise ValueError(
                f"A SavedModel of constants holds at most {MAX_WEIGHT_BYTES:,} bytes of weights. Received: {size:,}. "
                "Export a smaller model."
            )
        self.source_tokenizer = translator.source_tokenizer
        self.target_tokenizer = translator.target_tokenizer
        frozen = FrozenScope(translator.model.variables)

        @tf.function(input_signature=[TEXT])
        def translate(text: tf.Tensor) -> dict[str, tf.Tensor]:
            with frozen:
                return translator.search(text)

        self.translate = translate


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


def _next_version(directory: pathlib.Path) -> int:
    if not directory.is_dir():
        return 1
    versions = [int(entry.name) for entry in directory.iterdir() if entry.name.isdigit()]
    return max(versions, default=0) + 1


def _checked_version(version: int) -> int:
    if version < 0:
        raise ValueError(f"version must be at least 0. Received: version={version}.")
    return version
