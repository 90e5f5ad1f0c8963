"""One version of a model that is loaded and answers requests."""

import contextlib
import itertools
import pathlib
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from kformer.export.operations import read
from kformer.export.warmup import WARMUP_FILE
from kformer.runtime.c_api import SavedModel, SavedModelError
from kformer.runtime.export_check import check_export
from kformer.runtime.signature_names import DEFAULT_SIGNATURE
from kformer.runtime.status_codes import Code
from kformer.serving.batching import Answer, Batcher
from kformer.serving.errors import ServingError
from kformer.serving.model_settings import Batching
from kformer.serving.signatures import Signature

OnBatch = Callable[[str, int, float], None]
_RECORD_HEADER = struct.Struct("<QI")
_CHECKSUM_BYTES = 4


class Servable:
    """A version that is loaded, with the threads that compute its batches.

    TensorFlow's C API runs it, without Python's TensorFlow.

    Args:
        name: The model's name.
        version: The version's number.
        path: Its folder.
        batching: How requests share batches.
        on_batch: Called after each batch with its signature, its rows and the seconds it took.
        trust: Load it whatever operations it has; see `SavedModel`.

    Raises:
        ValueError: The folder is damaged, the model could do more than compute and `trust` is not set, or a request of
            its warm-up file is wrong.
        SavedModelError: TensorFlow cannot load it.
        OSError: A file cannot be read.
    """

    def __init__(
        self,
        name: str,
        version: int,
        path: pathlib.Path,
        batching: Batching,
        on_batch: OnBatch,
        trust: bool = False,
    ) -> None:
        check_export(path, trust)
        self.name = name
        self.version = version
        meta_graph = read(path).meta_graphs[0]
        _check_variables(path, meta_graph)
        definitions = meta_graph.signature_def
        self.signatures = {
            key: Signature(key, value) for key, value in sorted(definitions.items()) if not key.startswith("__")
        }
        requests = _warmup_requests(path)
        try:
            # One thread for an operation, as each core computes a batch of its own.
            self._model = SavedModel(path, threads_per_operation=1, trust=trust)
            self._batcher = Batcher(self._model.run, batching, on_batch)
            with contextlib.ExitStack() as on_error:
                on_error.callback(self._model.close)
                self._batcher.start([(name, self.signature(name).complete(inputs)) for name, inputs in requests])
                on_error.pop_all()
        except SavedModelError as error:
            raise SavedModelError(f"{path} cannot be served: {str(error).splitlines()[0]}", error.code) from error
        except ServingError as error:
            raise ValueError(f"{path} cannot be served: {error}") from error

    def signature(self, name: str) -> Signature:
        """A signature by its name.

        Raises:
            ServingError: There is none of this name.
        """
        if name not in self.signatures:
            raise ServingError(
                Code.FAILED_PRECONDITION,
                f'Serving signature name: "{name}" not found in signature def. The model {self.name} has: '
                f"{', '.join(self.signatures)}.",
            )
        return self.signatures[name]

    def submit(self, signature: Signature, inputs: Mapping[str, np.ndarray], client: str, seconds: float) -> Answer:
        """Puts a request into its queue; see `Batcher.submit`."""
        return self._batcher.submit(signature.name, inputs, signature.is_shared, client, seconds)

    def waiting(self) -> int:
        """How many texts wait for their batch."""
        return self._batcher.waiting()

    def close(self) -> None:
        """Answers the requests that wait, takes no more, and frees the memory of the model."""
        self._batcher.close()
        self._model.close()


def _check_variables(path: pathlib.Path, meta_graph: Any) -> None:
    """Refuses a version that is still being copied: TensorFlow loads a graph without its variables as if it had none.

    Raises:
        ValueError: The graph has variables, and their file is missing.
    """
    functions = (node for function in meta_graph.graph_def.library.function for node in function.node_def)
    nodes = itertools.chain(meta_graph.graph_def.node, functions)
    index = path / "variables" / "variables.index"
    if any(node.op == "VarHandleOp" for node in nodes) and not index.is_file():
        raise ValueError(
            f"{index} is missing. If the version is being copied, it is tried again when its files change."
        )


def _warmup_requests(path: pathlib.Path) -> list[tuple[str, dict[str, np.ndarray]]]:
    """The signature and the inputs of each request in the warm-up file; none where there is no such file.

    Raises:
        ValueError: The file is damaged.
        OSError: It cannot be read.
    """
    file = path / WARMUP_FILE
    if not file.is_file():
        return []
    requests = []
    try:
        for record in _records(file):
            request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
            inputs = {name: tf.make_ndarray(value) for name, value in request.inputs.items()}
            requests.append((request.model_spec.signature_name or DEFAULT_SIGNATURE, inputs))
    except OSError:
        raise
    except Exception as error:  # of TensorFlow or of protobuf, whose class depends on how it was built
        raise ValueError(f"{file} is damaged: {error}. Export the model again.") from error
    return requests


def _records(file: pathlib.Path) -> Iterator[bytes]:
    """The records of a TFRecord file: each has its length, a checksum of that, its bytes, and a checksum of these.

    `tf.data` would read them, too, but it computes. Where Python's TensorFlow computes before the first model is
    loaded, it decides how many threads share an operation, and a server's models become half as fast. The checksums are
    left out: the file is among those of `check_export`.
    """
    with file.open("rb") as opened:
        left = file.stat().st_size
        while header := opened.read(_RECORD_HEADER.size):
            length, _ = _RECORD_HEADER.unpack(header)
            left -= len(header) + length + _CHECKSUM_BYTES
            if left < 0:
                raise ValueError("its last record is not whole")
            yield opened.read(length)
            opened.read(_CHECKSUM_BYTES)
