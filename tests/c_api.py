"""Runs a SavedModel through TensorFlow's C API alone, as a C++ server does: no Python TensorFlow, no kformer.

    echo '["a sentence", {"b64": "/w=="}]' | python tests/c_api.py SAVED_MODEL_DIRECTORY

Reads a JSON list of texts from stdin ({"b64": ...} for bytes that are not UTF-8), runs the signature `serving_default`
with one input of N strings and prints {"translation": [...], "score": [...]}. Only op libraries are loaded beside
TensorFlow: those of tensorflow-text, which a server links too.
"""

import base64
import ctypes
import json
import pathlib
import sys
import sysconfig

SITE_PACKAGES = pathlib.Path(sysconfig.get_paths()["purelib"])
TF_FLOAT, TF_STRING = 1, 7  # TF_DataType of c/tf_datatype.h
TSTRING_SIZE = 24  # sizeof(TF_TString), c/tf_tstring.h


class Output(ctypes.Structure):
    """TF_Output: a tensor of the graph."""

    _fields_ = [("operation", ctypes.c_void_p), ("index", ctypes.c_int)]


class Buffer(ctypes.Structure):
    """TF_Buffer."""

    _fields_ = [("data", ctypes.c_void_p), ("length", ctypes.c_size_t), ("deallocator", ctypes.c_void_p)]


def load_tensorflow() -> ctypes.CDLL:
    """The C API with its types declared, and tensorflow-text's kernels registered."""
    folder = SITE_PACKAGES / "tensorflow"
    ctypes.CDLL(str(folder / "libtensorflow_framework.so.2"), mode=ctypes.RTLD_GLOBAL)
    tf = ctypes.CDLL(str(folder / "libtensorflow_cc.so.2"), mode=ctypes.RTLD_GLOBAL)
    pointer, size, text = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
    number, shape, outputs = ctypes.c_int, ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(Output)
    tensors = ctypes.POINTER(ctypes.c_void_p)
    for name, result, *arguments in [
        ("TF_NewStatus", pointer),
        ("TF_GetCode", number, pointer),
        ("TF_Message", text, pointer),
        ("TF_LoadLibrary", pointer, text, pointer),
        ("TF_NewGraph", pointer),
        ("TF_NewBuffer", ctypes.POINTER(Buffer)),
        ("TF_NewSessionOptions", pointer),
        ("TF_LoadSessionFromSavedModel", pointer, pointer, pointer, text, ctypes.POINTER(text), number, pointer)
        + (ctypes.POINTER(Buffer), pointer),
        ("TF_GraphOperationByName", pointer, pointer, text),
        ("TF_AllocateTensor", pointer, number, shape, number, size),
        ("TF_TensorType", number, pointer),
        ("TF_TensorData", pointer, pointer),
        ("TF_NumDims", number, pointer),
        ("TF_Dim", ctypes.c_int64, pointer, number),
        ("TF_StringInit", None, pointer),
        ("TF_StringCopy", None, pointer, text, size),
        ("TF_StringGetDataPointer", pointer, pointer),
        ("TF_StringGetSize", size, pointer),
        ("TF_SessionRun", None, pointer, pointer, outputs, tensors, number, outputs, tensors, number)
        + (pointer, number, pointer, pointer),
    ]:
        function = getattr(tf, name)
        function.restype, function.argtypes = result, arguments
    for library in sorted((SITE_PACKAGES / "tensorflow_text" / "python").glob("*/*.so")):
        call(tf, tf.TF_LoadLibrary, str(library).encode())
    return tf


def call(tf: ctypes.CDLL, function, *arguments):
    """Calls a function whose last argument is a TF_Status; a bad status becomes an exception."""
    status = tf.TF_NewStatus()
    result = function(*arguments, status)
    if tf.TF_GetCode(status):
        raise RuntimeError(f"{function.__name__}: {tf.TF_Message(status).decode(errors='replace')}")
    return result


def load_saved_model(tf: ctypes.CDLL, directory: str) -> tuple[int, int, bytes]:
    """Session, graph and serialized MetaGraphDef; variables are restored and tables filled."""
    graph, meta_graph = tf.TF_NewGraph(), tf.TF_NewBuffer()
    tags = (ctypes.c_char_p * 1)(b"serve")
    options = tf.TF_NewSessionOptions()
    load = tf.TF_LoadSessionFromSavedModel
    session = call(tf, load, options, None, directory.encode(), tags, 1, graph, meta_graph)
    return session, graph, ctypes.string_at(meta_graph.contents.data, meta_graph.contents.length)


def fields(message: bytes):
    """(number, value) of each field of a serialized protobuf: an int, or the bytes of a string or a message."""

    def varint(at: int) -> tuple[int, int]:
        value, shift = 0, 0
        while True:
            byte, at = message[at], at + 1
            value, shift = value | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                return value, at

    at = 0
    while at < len(message):
        key, at = varint(at)
        kind = key & 7
        if kind == 0:
            value, at = varint(at)
        else:
            length, at = varint(at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
            value, at = message[at : at + length], at + length
        yield key >> 3, value


def signature_tensors(meta_graph: bytes, name: str) -> tuple[dict[str, str], dict[str, str]]:
    """Input and output tensors of a signature: {argument name: tensor name}."""

    def entries(message: bytes, number: int) -> dict[str, bytes]:
        """A map field, whose entries are messages of key 1 and value 2."""
        pairs = (dict(fields(value)) for field, value in fields(message) if field == number)
        return {pair[1].decode(): pair[2] for pair in pairs}

    signatures = entries(meta_graph, 5)  # MetaGraphDef.signature_def
    if name not in signatures:
        raise RuntimeError(f"There is no signature {name!r}. The model has: {', '.join(sorted(signatures))}.")
    inputs, outputs = (  # SignatureDef.inputs is 1, outputs 2; TensorInfo.name is 1
        {key: dict(fields(info))[1].decode() for key, info in entries(signatures[name], number).items()}
        for number in (1, 2)
    )
    return inputs, outputs


def graph_output(tf: ctypes.CDLL, graph: int, tensor_name: str) -> Output:
    operation, index = tensor_name.split(":")
    found = tf.TF_GraphOperationByName(graph, operation.encode())
    if not found:
        raise RuntimeError(f"The graph has no operation {operation!r}.")
    return Output(found, int(index))


def string_tensor(tf: ctypes.CDLL, texts: list[bytes]) -> int:
    tensor = tf.TF_AllocateTensor(TF_STRING, (ctypes.c_int64 * 1)(len(texts)), 1, len(texts) * TSTRING_SIZE)
    data = tf.TF_TensorData(tensor)
    for number, text in enumerate(texts):
        tf.TF_StringInit(data + number * TSTRING_SIZE)
        tf.TF_StringCopy(data + number * TSTRING_SIZE, text, len(text))
    return tensor


def values(tf: ctypes.CDLL, tensor: int) -> list:
    """The values of a float32 or string tensor of shape [N]."""
    kind, rank = tf.TF_TensorType(tensor), tf.TF_NumDims(tensor)
    if kind not in (TF_FLOAT, TF_STRING) or rank != 1:
        raise RuntimeError(f"Expected float32 or string of shape [N]. Received: type {kind}, rank {rank}.")
    length, data = tf.TF_Dim(tensor, 0), tf.TF_TensorData(tensor)
    if not length:
        return []  # An empty tensor may have no data.
    if kind == TF_FLOAT:
        return list((ctypes.c_float * length).from_address(data))
    places = [data + number * TSTRING_SIZE for number in range(length)]
    return [ctypes.string_at(tf.TF_StringGetDataPointer(at), tf.TF_StringGetSize(at)).decode() for at in places]


def run(directory: str, texts: list[bytes], fetches: tuple[str, ...]) -> dict[str, list]:
    """The named outputs of `serving_default` for these texts."""
    tf = load_tensorflow()
    session, graph, meta_graph = load_saved_model(tf, directory)
    inputs, outputs = signature_tensors(meta_graph, "serving_default")
    if len(inputs) != 1 or not set(fetches) <= set(outputs):
        raise RuntimeError(f"Expected one input and outputs {fetches}. Received: {list(inputs)}, {list(outputs)}.")
    fed = (Output * 1)(*(graph_output(tf, graph, name) for name in inputs.values()))
    feeds = (ctypes.c_void_p * 1)(string_tensor(tf, texts))
    fetched = (Output * len(fetches))(*(graph_output(tf, graph, outputs[name]) for name in fetches))
    results = (ctypes.c_void_p * len(fetches))()
    call(tf, tf.TF_SessionRun, session, None, fed, feeds, 1, fetched, results, len(fetches), None, 0, None)
    return {name: values(tf, tensor) for name, tensor in zip(fetches, results, strict=True)}


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("Usage: c_api.py SAVED_MODEL_DIRECTORY < texts.json")
    items = json.load(sys.stdin)
    texts = [base64.b64decode(item["b64"]) if isinstance(item, dict) else item.encode() for item in items]
    json.dump(run(sys.argv[1], texts, ("translation", "score")), sys.stdout)


if __name__ == "__main__":
    main()
