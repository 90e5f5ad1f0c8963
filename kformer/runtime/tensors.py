"""NumPy arrays to tensors of TensorFlow's C library and back."""

import ctypes
from collections.abc import Sequence

import numpy as np

from kformer.runtime.libtensorflow import SavedModelError, tensorflow

# TF_DataType of c/tf_datatype.h. Strings are arrays of objects that are bytes.
DATA_TYPES = {
    np.dtype(name): number
    for name, number in {
        "float32": 1,
        "float64": 2,
        "int32": 3,
        "uint8": 4,
        "int16": 5,
        "int8": 6,
        "object": 7,
        "int64": 9,
        "bool": 10,
        "uint16": 17,
        "float16": 19,
        "uint32": 22,
        "uint64": 23,
    }.items()
}
TYPE_NAMES = ", ".join("string" if dtype.hasobject else dtype.name for dtype in DATA_TYPES)
_STRING = DATA_TYPES[np.dtype(object)]
_ARRAY_TYPES = {number: dtype for dtype, number in DATA_TYPES.items()}
_UNIMPLEMENTED = 12  # the status code
_TSTRING_SIZE = 24  # sizeof(TF_TString), c/tf_tstring.h


def text_array(texts: Sequence[bytes]) -> np.ndarray:
    """Texts as an array of objects, which signatures take."""
    array = np.empty(len(texts), object)
    array[:] = texts
    return array


def new_tensor(array: np.ndarray) -> int:
    """A TF_Tensor with a copy of the values; `delete_tensor` frees it."""
    tf = tensorflow()
    array = np.ascontiguousarray(array).reshape(array.shape)  # ascontiguousarray alone makes a vector of a scalar
    if array.dtype not in DATA_TYPES:
        raise SavedModelError(f"Expected inputs of {TYPE_NAMES}. Received: {array.dtype}.", _UNIMPLEMENTED)
    kind = DATA_TYPES[array.dtype]
    size = array.size * (_TSTRING_SIZE if kind == _STRING else array.itemsize)
    tensor = tf.TF_AllocateTensor(kind, (ctypes.c_int64 * array.ndim)(*array.shape), array.ndim, size)
    data = tf.TF_TensorData(tensor)
    if kind != _STRING:
        ctypes.memmove(data, array.ctypes.data, size)
        return tensor
    for number, text in enumerate(array.flat):
        tf.TF_StringInit(data + number * _TSTRING_SIZE)
        tf.TF_StringCopy(data + number * _TSTRING_SIZE, text, len(text))
    return tensor


def delete_tensor(tensor: int) -> None:
    """Frees a tensor of `new_tensor` and the memory of its strings."""
    tf = tensorflow()
    if tf.TF_TensorType(tensor) == _STRING:
        data = tf.TF_TensorData(tensor)
        for number in range(tf.TF_TensorByteSize(tensor) // _TSTRING_SIZE):
            tf.TF_StringDealloc(data + number * _TSTRING_SIZE)
    tf.TF_DeleteTensor(tensor)


def to_array(tensor: int) -> np.ndarray:
    """A copy of a tensor's values."""
    tf = tensorflow()
    kind = tf.TF_TensorType(tensor)
    if kind not in _ARRAY_TYPES:
        raise SavedModelError(f"Expected outputs of {TYPE_NAMES}. Received: TF_DataType {kind}.", _UNIMPLEMENTED)
    shape = [tf.TF_Dim(tensor, axis) for axis in range(tf.TF_NumDims(tensor))]
    values = np.zeros(shape, _ARRAY_TYPES[kind])
    if not values.size:  # An empty tensor may have no data.
        return values
    data = tf.TF_TensorData(tensor)
    if kind != _STRING:
        ctypes.memmove(values.ctypes.data, data, values.nbytes)
        return values
    places = [data + number * _TSTRING_SIZE for number in range(values.size)]
    texts = np.empty(values.size, object)
    texts[:] = [ctypes.string_at(tf.TF_StringGetDataPointer(at), tf.TF_StringGetSize(at)) for at in places]
    return texts.reshape(shape)
