"""TensorFlow's C library, loaded without Python's TensorFlow, with its functions declared."""

import ctypes
import functools
import importlib.util
import pathlib
from typing import Any

from kformer.process.quiet import quiet_libraries

INVALID_ARGUMENT, FAILED_PRECONDITION = 3, 9  # status codes


class SavedModelError(RuntimeError):
    """TensorFlow refused a model or a call; the message is TensorFlow's.

    Attributes:
        code: The canonical status code, such as 3 for INVALID_ARGUMENT.
    """

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code


class Output(ctypes.Structure):
    """TF_Output: a tensor of the graph."""

    _fields_ = [("operation", ctypes.c_void_p), ("index", ctypes.c_int)]


class _Buffer(ctypes.Structure):
    """TF_Buffer."""

    _fields_ = [("data", ctypes.c_void_p), ("length", ctypes.c_size_t), ("deallocator", ctypes.c_void_p)]


@functools.cache
def tensorflow() -> ctypes.CDLL:
    """The C API with its types declared, and tensorflow-text's operations registered."""
    folder = _package_folder("tensorflow")
    with quiet_libraries():
        ctypes.CDLL(str(_library(folder, "libtensorflow_framework")))
        tf = ctypes.CDLL(str(_library(folder, "libtensorflow_cc")))
        for name, (result, *arguments) in _signatures().items():
            function = getattr(tf, name)
            function.restype, function.argtypes = result, arguments
        for library in sorted((_package_folder("tensorflow_text") / "python").glob("*/*.so")):
            call(tf.TF_LoadLibrary, str(library).encode(), library=tf)
    return tf


def _signatures() -> dict[str, list[Any]]:
    """The functions of c/c_api.h that are used here: the types of their results and arguments."""
    pointer, size, text, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_int
    buffer, outputs, tensors = (ctypes.POINTER(kind) for kind in (_Buffer, Output, ctypes.c_void_p))
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
        "TF_TensorByteSize": [size, pointer],
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


def call(function: Any, *arguments: Any, library: ctypes.CDLL | None = None) -> Any:
    """Calls a function whose last argument is a TF_Status; a bad status becomes an exception."""
    tf = library or tensorflow()
    status = tf.TF_NewStatus()
    try:
        result = function(*arguments, status)
        if tf.TF_GetCode(status):
            raise SavedModelError(tf.TF_Message(status).decode(errors="replace"), tf.TF_GetCode(status))
        return result
    finally:
        tf.TF_DeleteStatus(status)
