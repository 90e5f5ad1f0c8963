"""Runs SavedModels through TensorFlow's C API, as TensorFlow Serving does: without Python's TensorFlow.

Python's TensorFlow takes seconds to import, and its functions run the operations of all callers on shared threads. Here
a model is ready in about a second, and a call's operations run on the thread that calls.

    echo '[["a text", {"b64": "/w=="}], ["a second batch"]]' | python -m kformer.runtime.c_api SAVED_MODEL_DIRECTORY

reads a JSON list of batches of texts from standard input ({"b64": ...} for bytes that are not UTF-8) and prints the
list of their outputs. In place of a batch, {"signature": NAME, "inputs": {NAME: texts, or {"float32": 0.5}}} calls
another signature, and the shapes of its outputs are printed.
"""

import base64
import ctypes
import json
import pathlib
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kformer.process.forks import check_process
from kformer.runtime.confinement import check_confined
from kformer.runtime.file_limits import check_files
from kformer.runtime.libtensorflow import (
    FAILED_PRECONDITION,
    INVALID_ARGUMENT,
    Output,
    SavedModelError,
    call,
    tensorflow,
)
from kformer.runtime.paths import readable_path
from kformer.runtime.signature_names import DEFAULT_SIGNATURE
from kformer.runtime.tensors import delete_tensor, new_tensor, text_array, to_array

# Serialized protobuf messages. RunOptions.inter_op_thread_pool (field 3) is -1: the thread that calls.
ON_CALLING_THREAD = b"\x18" + b"\xff" * 9 + b"\x01"


class SignatureTensors(NamedTuple):
    """The names of a signature's inputs and outputs, each with the name of its tensor in the graph."""

    inputs: dict[str, str]
    outputs: dict[str, str]


class SavedModel:
    """A SavedModel and its signatures. Several threads may call it at the same time.

    Args:
        directory: The SavedModel.
        threads_per_operation: Threads that share the work of one operation; None: as many as there are cores. The first
            model of a process decides for all, or Python's TensorFlow, if it computed something before.
        trust: Load it whatever operations it has; otherwise, only if it can do no more than compute
            (`kformer.runtime.confinement`).

    Attributes:
        signatures: The signatures by their names.

    Raises:
        SavedModelError: TensorFlow cannot load it.
        ValueError: It could do more than compute, and `trust` is not set; or its files are not those of a SavedModel.
        OSError: Its files cannot be read.
        RuntimeError: This process was forked from one that had a model already; a call raises it, too.
    """

    def __init__(
        self, directory: str | pathlib.Path, threads_per_operation: int | None = None, trust: bool = False
    ) -> None:
        check_process()
        if trust:
            check_files(directory)
        else:
            check_confined(directory)
        tf = self._tf = tensorflow()
        graph, meta_graph, options = tf.TF_NewGraph(), tf.TF_NewBuffer(), tf.TF_NewSessionOptions()
        if threads_per_operation is not None:
            # ConfigProto.intra_op_parallelism_threads is field 2, an int32.
            config = bytes([2 << 3, *_varint(threads_per_operation)])
            call(tf.TF_SetConfig, options, config, len(config))
        tags = (ctypes.c_char_p * 1)(b"serve")
        load = tf.TF_LoadSessionFromSavedModel
        with readable_path(directory) as path:
            self._session = call(load, options, None, path.encode(), tags, 1, graph, meta_graph)
        self._graph = graph
        self._free = weakref.finalize(self, _close, tf, self._session, graph)
        self.signatures = _signatures(ctypes.string_at(meta_graph.contents.data, meta_graph.contents.length))
        tf.TF_DeleteBuffer(meta_graph)
        tf.TF_DeleteSessionOptions(options)
        self._options = tf.TF_NewBufferFromString(ON_CALLING_THREAD, len(ON_CALLING_THREAD))

    def __call__(self, texts: Sequence[bytes]) -> dict[str, np.ndarray]:
        """The outputs of `serving_default` for these texts.

        Raises:
            SavedModelError: TensorFlow cannot compute them, or the signature has other inputs.
        """
        return self.run(DEFAULT_SIGNATURE, {self.text_input: text_array(texts)})

    @property
    def text_input(self) -> str:
        """The name of the only input of `serving_default`.

        Raises:
            SavedModelError: The signature has more inputs, or there is no such signature.
        """
        inputs = self._signature(DEFAULT_SIGNATURE).inputs
        if len(inputs) != 1:
            raise SavedModelError(f"Expected a signature with one input, the texts. Received: {sorted(inputs)}.")
        return next(iter(inputs))

    def run(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs of a signature.

        Args:
            signature: Its name.
            inputs: An array for each of its inputs; strings are arrays of objects that are bytes.

        Returns:
            An array for each of its outputs.

        Raises:
            SavedModelError: There is no such signature, it has other inputs, TensorFlow cannot compute the outputs, or
                the model was closed.
        """
        check_process()
        if not self._free.alive:
            raise SavedModelError("The model was closed. Load it again.", FAILED_PRECONDITION)
        tensors = self._signature(signature)
        if {*inputs} != {*tensors.inputs}:
            raise SavedModelError(
                f"Expected the inputs {', '.join(sorted(tensors.inputs))} of the signature {signature}. Received: "
                f"{', '.join(sorted(inputs))}.",
                INVALID_ARGUMENT,
            )
        feeds = self._outputs([tensors.inputs[name] for name in inputs])
        fetches = self._outputs(list(tensors.outputs.values()))
        results = (ctypes.c_void_p * len(fetches))()
        given = [new_tensor(array) for array in inputs.values()]
        try:
            call(
                self._tf.TF_SessionRun,
                *(self._session, self._options, feeds, (ctypes.c_void_p * len(given))(*given), len(given)),
                *(fetches, results, len(fetches), None, 0, None),
            )
            return {name: to_array(tensor) for name, tensor in zip(tensors.outputs, results, strict=True)}
        finally:
            for tensor in given:
                delete_tensor(tensor)
            for tensor in filter(None, results):
                self._tf.TF_DeleteTensor(tensor)

    def close(self) -> None:
        """Frees the memory of the model at once, when no call runs and none will follow.

        Otherwise it is freed with this object. An error of a call keeps the object: its traceback and the call's answer
        know each other until Python looks for such circles, which it seldom does where many objects live.
        """
        self._free()

    def _signature(self, name: str) -> SignatureTensors:
        if name not in self.signatures:
            known = ", ".join(sorted(self.signatures))
            raise SavedModelError(f"There is no signature {name!r}. The model has: {known}.", INVALID_ARGUMENT)
        return self.signatures[name]

    def _outputs(self, names: Sequence[str]) -> Any:
        """An array of `Output`, from names such as `serving_default_text:0`."""
        found = []
        for name in names:
            operation, index = name.split(":")
            found.append(Output(self._tf.TF_GraphOperationByName(self._graph, operation.encode()), int(index)))
        return (Output * len(names))(*found)


def _close(tf: ctypes.CDLL, session: int, graph: int) -> None:
    call(tf.TF_CloseSession, session)
    call(tf.TF_DeleteSession, session)
    tf.TF_DeleteGraph(graph)


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of each field of a serialized protobuf: an int, or the bytes of a string or a message.

    The Python classes of these messages come only with Python's TensorFlow.
    """

    def varint(at: int) -> tuple[int, int]:
        value, shift = 0, 0
        while True:
            byte, at = message[at], at + 1
            value, shift = value | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                return value, at

    at = 0
    value: Any
    while at < len(message):
        key, at = varint(at)
        kind = key & 7
        if kind == 0:
            value, at = varint(at)
        else:
            length, at = varint(at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
            value, at = message[at : at + length], at + length
        yield key >> 3, value


def _varint(number: int) -> bytes:
    """A number from 0 up as protobuf writes it: 7 bits a byte, the lowest first, the highest bit if more follow."""
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def _signatures(meta_graph: bytes) -> dict[str, SignatureTensors]:
    """The signatures of a serialized MetaGraphDef, without TensorFlow's own ones (`__saved_model_init_op`)."""

    def entries(message: bytes, number: int) -> dict[str, bytes]:
        """A map field, whose entries are messages of key 1 and value 2."""
        pairs = (dict(_fields(value)) for field, value in _fields(message) if field == number)
        return {pair[1].decode(): pair.get(2, b"") for pair in pairs}

    def tensors(signature: bytes, number: int) -> dict[str, str]:
        """TensorInfo.name is field 1."""
        return {name: dict(_fields(info))[1].decode() for name, info in sorted(entries(signature, number).items())}

    # MetaGraphDef.signature_def is field 5; SignatureDef.inputs is 1, outputs 2.
    found = entries(meta_graph, 5).items()
    return {
        name: SignatureTensors(tensors(value, 1), tensors(value, 2))
        for name, value in found
        if not name.startswith("__")
    }


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("Usage: python -m kformer.runtime.c_api SAVED_MODEL_DIRECTORY < batches.json")
    requests = json.load(sys.stdin)
    try:
        model = SavedModel(sys.argv[1])
        answers = [_answer(model, request) for request in requests]
    except SavedModelError as error:
        sys.exit(str(error).splitlines()[0])  # without the operations that TensorFlow adds
    json.dump(answers, sys.stdout)


def _answer(model: SavedModel, request: list[Any] | dict[str, Any]) -> dict[str, list[Any]]:
    """The outputs of a batch as they stand in JSON, or the shapes of a signature's outputs."""
    if isinstance(request, dict):
        inputs = {name: _array(value) for name, value in request["inputs"].items()}
        return {name: [*value.shape] for name, value in model.run(request["signature"], inputs).items()}
    found = model([*_array(request)])
    return {name: [_plain(value) for value in values] for name, values in found.items()}


def _plain(value: Any) -> Any:
    """A value or a row of an output as it stands in JSON."""
    if isinstance(value, bytes):
        return value.decode("utf-8")
    return [_plain(each) for each in value] if value.dtype == object else value.tolist()


def _array(value: list[Any] | dict[str, float]) -> np.ndarray:
    """A list of texts, or a scalar with its type."""
    if isinstance(value, dict):
        ((dtype, number),) = value.items()
        return np.array(number, dtype)
    return text_array([base64.b64decode(item["b64"]) if isinstance(item, dict) else item.encode() for item in value])


if __name__ == "__main__":
    main()
