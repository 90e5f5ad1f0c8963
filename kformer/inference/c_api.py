"""Runs SavedModels through TensorFlow's C API, as TensorFlow Serving does: without Python's TensorFlow.

Python's TensorFlow takes seconds to import, and its functions run the operations of all callers on shared threads. Here
a model is ready in about a second, and a call's operations run on the thread that calls.

    echo '[["a text", {"b64": "/w=="}], ["a second batch"]]' | python -m kformer.inference.c_api SAVED_MODEL_DIRECTORY

reads a JSON list of batches of texts from standard input ({"b64": ...} for bytes that are not UTF-8) and prints the
list of their outputs.
"""

import base64
import ctypes
import functools
import importlib.util
import json
import pathlib
import sys
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kformer.quiet import quiet_libraries

TF_FLOAT, TF_STRING = 1, 7  # TF_DataType of c/tf_datatype.h
TSTRING_SIZE = 24  # sizeof(TF_TString), c/tf_tstring.h
# Serialized protobuf messages. RunOptions.inter_op_thread_pool (field 3) is -1: the thread that calls.
ON_CALLING_THREAD = b"\x18" + b"\xff" * 9 + b"\x01"


class SavedModelError(RuntimeError):
    """TensorFlow refused a model or a call; the message is its own."""


class _Output(ctypes.Structure):
    """TF_Output: a tensor of the graph."""

    _fields_ = [("operation", ctypes.c_void_p), ("index", ctypes.c_int)]


class _Buffer(ctypes.Structure):
    """TF_Buffer."""

    _fields_ = [("data", ctypes.c_void_p), ("length", ctypes.c_size_t), ("deallocator", ctypes.c_void_p)]


class SavedModel:
    """The signature `serving_default` of a SavedModel: from N texts to its outputs. Threads may call it at once.

    Args:
        directory: The SavedModel.
        threads_per_operation: Threads that share the work of one operation; None: as many as there are cores. The first
            model of a process decides for all, and so does Python's TensorFlow if it is at work already.

    Raises:
        SavedModelError: TensorFlow cannot load it, or it has another signature.
    """

    def __init__(self, directory: str | pathlib.Path, threads_per_operation: int | None = None) -> None:
        self._tf = _tensorflow()
        graph, meta_graph, options = self._tf.TF_NewGraph(), self._tf.TF_NewBuffer(), self._tf.TF_NewSessionOptions()
        if threads_per_operation is not None:
            # ConfigProto.intra_op_parallelism_threads is field 2, an int32.
            _call(self._tf.TF_SetConfig, options, bytes([2 << 3, threads_per_operation]), 2)
        tags = (ctypes.c_char_p * 1)(b"serve")
        load = self._tf.TF_LoadSessionFromSavedModel
        self._session = _call(load, options, None, str(directory).encode(), tags, 1, graph, meta_graph)
        weakref.finalize(self, _close, self._tf, self._session, graph)
        description = ctypes.string_at(meta_graph.contents.data, meta_graph.contents.length)
        self._tf.TF_DeleteBuffer(meta_graph)
        self._tf.TF_DeleteSessionOptions(options)
        inputs, outputs = _signature_tensors(description, "serving_default")
        if len(inputs) != 1:
            raise SavedModelError(f"Expected a signature with one input, the texts. Received: {sorted(inputs)}.")
        self._names = sorted(outputs)
        self._feeds = self._tensors(graph, list(inputs.values()))
        self._fetches = self._tensors(graph, [outputs[name] for name in self._names])
        self._options = self._tf.TF_NewBufferFromString(ON_CALLING_THREAD, len(ON_CALLING_THREAD))

    def __call__(self, texts: Sequence[bytes]) -> dict[str, np.ndarray]:
        """The outputs for these texts: arrays of float32, or of objects that are bytes.

        Raises:
            SavedModelError: TensorFlow cannot compute them.
        """
        results = (ctypes.c_void_p * len(self._names))()
        text = _string_tensor(self._tf, texts)
        feeds = (ctypes.c_void_p * 1)(text)
        run = self._tf.TF_SessionRun
        try:
            _call(
                run,
                *(self._session, self._options, self._feeds, feeds, 1),
                *(self._fetches, results, len(self._names), None, 0, None),
            )
            return {name: _values(self._tf, tensor) for name, tensor in zip(self._names, results, strict=True)}
        finally:
            _delete_strings(self._tf, text, len(texts))
            for tensor in filter(None, results):
                self._tf.TF_DeleteTensor(tensor)

    def _tensors(self, graph: int, names: list[str]) -> Any:
        """An array of `_Output`."""
        found = []
        for name in names:
            operation, index = name.split(":")
            found.append(_Output(self._tf.TF_GraphOperationByName(graph, operation.encode()), int(index)))
        return (_Output * len(names))(*found)


def _close(tf: ctypes.CDLL, session: int, graph: int) -> None:
    _call(tf.TF_CloseSession, session)
    _call(tf.TF_DeleteSession, session)
    tf.TF_DeleteGraph(graph)


@functools.cache
def _tensorflow() -> ctypes.CDLL:
    """The C API with its types declared, and tensorflow-text's operations registered."""
    folder = _package_folder("tensorflow")
    with quiet_libraries():
        ctypes.CDLL(str(_library(folder, "libtensorflow_framework")))
        tf = ctypes.CDLL(str(_library(folder, "libtensorflow_cc")))
        for name, (result, *arguments) in _signatures().items():
            function = getattr(tf, name)
            function.restype, function.argtypes = result, arguments
        for library in sorted((_package_folder("tensorflow_text") / "python").glob("*/*.so")):
            _call(tf.TF_LoadLibrary, str(library).encode(), library=tf)
    return tf


def _signatures() -> dict[str, list[Any]]:
    """The functions of c/c_api.h that are used here: the types of their results and arguments."""
    pointer, size, text, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_int
    buffer, outputs, tensors = (ctypes.POINTER(kind) for kind in (_Buffer, _Output, ctypes.c_void_p))
    status = pointer
    texts, shape = ctypes.POINTER(text), ctypes.POINTER(ctypes.c_int64)
    load = [pointer, pointer, text, texts, number, pointer, buffer, status]
    run = [pointer, buffer, outputs, tensors, number, outputs, tensors, number, pointer, number, pointer, status]
    return {
        "TF_NewStatus": [status],
        "TF_DeleteStatus": [None, status],
        "TF_GetCode": [number, status],
        "TF_Message": [text, status],
        "TF_LoadLibrary": [pointer, text, status],
        "TF_NewGraph": [pointer],
        "TF_DeleteGraph": [None, pointer],
        "TF_NewBuffer": [buffer],
        "TF_NewBufferFromString": [buffer, text, size],
        "TF_DeleteBuffer": [None, buffer],
        "TF_NewSessionOptions": [pointer],
        "TF_DeleteSessionOptions": [None, pointer],
        "TF_SetConfig": [None, pointer, text, size, status],
        "TF_LoadSessionFromSavedModel": [pointer, *load],
        "TF_CloseSession": [None, pointer, status],
        "TF_DeleteSession": [None, pointer, status],
        "TF_GraphOperationByName": [pointer, pointer, text],
        "TF_AllocateTensor": [pointer, number, shape, number, size],
        "TF_DeleteTensor": [None, pointer],
        "TF_TensorType": [number, pointer],
        "TF_TensorData": [pointer, pointer],
        "TF_NumDims": [number, pointer],
        "TF_Dim": [ctypes.c_int64, pointer, number],
        "TF_StringInit": [None, pointer],
        "TF_StringCopy": [None, pointer, text, size],
        "TF_StringDealloc": [None, pointer],
        "TF_StringGetDataPointer": [pointer, pointer],
        "TF_StringGetSize": [size, pointer],
        "TF_SessionRun": [None, *run],
    }


def _package_folder(name: str) -> pathlib.Path:
    """Where a package is installed; it is not imported."""
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"The package {name} is not installed. Install kformer with pip, which brings it.")
    return pathlib.Path(found.origin).parent


def _library(folder: pathlib.Path, name: str) -> pathlib.Path:
    """`libNAME.so.2`, or `libNAME.2.dylib` on macOS."""
    found = sorted(folder.glob(f"{name}.*2*"))
    if not found:
        raise FileNotFoundError(f"{folder} has no {name}. Install TensorFlow again.")
    return found[0]


def _call(function: Any, *arguments: Any, library: ctypes.CDLL | None = None) -> Any:
    """Calls a function whose last argument is a TF_Status; a bad status becomes an exception."""
    tf = library or _tensorflow()
    status = tf.TF_NewStatus()
    try:
        result = function(*arguments, status)
        if tf.TF_GetCode(status):
            raise SavedModelError(tf.TF_Message(status).decode(errors="replace"))
        return result
    finally:
        tf.TF_DeleteStatus(status)


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of each field of a serialized protobuf: an int, or the bytes of a string or a message.

    Its Python classes come with Python's TensorFlow only.
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


def _signature_tensors(meta_graph: bytes, name: str) -> tuple[dict[str, str], dict[str, str]]:
    """Input and output tensors of a signature: {argument name: tensor name}."""

    def entries(message: bytes, number: int) -> dict[str, bytes]:
        """A map field, whose entries are messages of key 1 and value 2."""
        pairs = (dict(_fields(value)) for field, value in _fields(message) if field == number)
        return {pair[1].decode(): pair[2] for pair in pairs}

    signatures = entries(meta_graph, 5)  # MetaGraphDef.signature_def
    if name not in signatures:
        raise SavedModelError(f"There is no signature {name!r}. The model has: {', '.join(sorted(signatures))}.")
    inputs, outputs = (  # SignatureDef.inputs is 1, outputs 2; TensorInfo.name is 1
        {key: dict(_fields(info))[1].decode() for key, info in entries(signatures[name], number).items()}
        for number in (1, 2)
    )
    return inputs, outputs


def _string_tensor(tf: ctypes.CDLL, texts: Sequence[bytes]) -> int:
    tensor = tf.TF_AllocateTensor(TF_STRING, (ctypes.c_int64 * 1)(len(texts)), 1, len(texts) * TSTRING_SIZE)
    data = tf.TF_TensorData(tensor)
    for number, text in enumerate(texts):
        tf.TF_StringInit(data + number * TSTRING_SIZE)
        tf.TF_StringCopy(data + number * TSTRING_SIZE, text, len(text))
    return tensor


def _delete_strings(tf: ctypes.CDLL, tensor: int, length: int) -> None:
    """Deletes what `_string_tensor` made: the strings have memory of their own."""
    data = tf.TF_TensorData(tensor)
    for number in range(length):
        tf.TF_StringDealloc(data + number * TSTRING_SIZE)
    tf.TF_DeleteTensor(tensor)


def _values(tf: ctypes.CDLL, tensor: int) -> np.ndarray:
    """The values of a float32 or string tensor."""
    kind = tf.TF_TensorType(tensor)
    if kind not in (TF_FLOAT, TF_STRING):
        raise SavedModelError(f"Expected outputs of float32 or string. Received: TF_DataType {kind}.")
    shape = [tf.TF_Dim(tensor, axis) for axis in range(tf.TF_NumDims(tensor))]
    length, data = int(np.prod(shape)), tf.TF_TensorData(tensor)
    if not length:  # An empty tensor may have no data.
        return np.zeros(shape, "float32" if kind == TF_FLOAT else object)
    if kind == TF_FLOAT:
        return np.array((ctypes.c_float * length).from_address(data)).reshape(shape)
    places = [data + number * TSTRING_SIZE for number in range(length)]
    values = np.empty(length, object)
    values[:] = [ctypes.string_at(tf.TF_StringGetDataPointer(at), tf.TF_StringGetSize(at)) for at in places]
    return values.reshape(shape)


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("Usage: python -m kformer.inference.c_api SAVED_MODEL_DIRECTORY < batches.json")
    batches = json.load(sys.stdin)
    model = SavedModel(sys.argv[1])
    json.dump([_answer(model, batch) for batch in batches], sys.stdout)


def _answer(model: SavedModel, batch: list[Any]) -> dict[str, list[Any]]:
    """A batch and its outputs as they stand in JSON."""
    found = model([base64.b64decode(item["b64"]) if isinstance(item, dict) else item.encode() for item in batch])
    strings = [text.decode("utf-8") for text in found["translation"]]
    return {"translation": strings, "score": [float(score) for score in found["score"]]}


if __name__ == "__main__":
    main()
