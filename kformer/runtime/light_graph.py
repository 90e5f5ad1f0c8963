"""The graph of a SavedModel, read without Python's TensorFlow: only what says which operations would run, and when.

The messages declare a few fields of TensorFlow's `saved_model.proto`, `meta_graph.proto`, `graph.proto` and
`function.proto`, under their numbers there. Other fields are skipped.
"""

import functools
import pathlib
from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from kformer.runtime.file_limits import check_files

_FIELD = descriptor_pb2.FieldDescriptorProto
_STRING, _BYTES, _ENUM = "string", "bytes", "int32"  # an enum has the same bytes as its number
# Message: its fields as (number, name, type); `[]` is a repeated field, `map` one from strings to messages.
_MESSAGES: dict[str, tuple[tuple[int, str, str], ...]] = {
    "NameAttrList": ((1, "name", _STRING),),
    "ListValue": ((2, "s", "bytes[]"), (6, "type", "int32[]"), (9, "func", "NameAttrList[]")),
    "AttrValue": (
        *((1, "list", "ListValue"), (2, "s", _BYTES), (6, "type", _ENUM)),
        *((9, "placeholder", _STRING), (10, "func", "NameAttrList")),
    ),
    "NodeDef": (
        *((1, "name", _STRING), (2, "op", _STRING), (3, "input", "string[]")),
        (5, "attr", "map AttrValue"),
    ),
    "ArgDef": ((1, "name", _STRING), (5, "number_attr", _STRING), (6, "type_list_attr", _STRING)),
    "OpDef": ((1, "name", _STRING), (2, "input_arg", "ArgDef[]")),
    "FunctionDef": ((1, "signature", "OpDef"), (3, "node_def", "NodeDef[]"), (5, "attr", "map AttrValue")),
    "GradientDef": ((1, "function_name", _STRING), (2, "gradient_func", _STRING)),
    "FunctionDefLibrary": ((1, "function", "FunctionDef[]"), (2, "gradient", "GradientDef[]")),
    "GraphDef": ((1, "node", "NodeDef[]"), (2, "library", "FunctionDefLibrary")),
    "SaverDef": (
        *((1, "filename_tensor_name", _STRING), (2, "save_tensor_name", _STRING)),
        (3, "restore_op_name", _STRING),
    ),
    "NodeList": ((1, "value", "string[]"),),
    "CollectionDef": ((1, "node_list", "NodeList"),),
    "TensorInfo": ((1, "name", _STRING),),
    "SignatureDef": ((2, "outputs", "map TensorInfo"),),
    "AssetFileDef": ((1, "tensor_info", "TensorInfo"), (2, "filename", _STRING)),
    "MetaGraphDef": (
        *((2, "graph_def", "GraphDef"), (3, "saver_def", "SaverDef"), (4, "collection_def", "map CollectionDef")),
        *((5, "signature_def", "map SignatureDef"), (6, "asset_file_def", "AssetFileDef[]")),
    ),
    "SavedModel": ((2, "meta_graphs", "MetaGraphDef[]"),),
}


def read_meta_graphs(saved_model: str | pathlib.Path) -> list[Any]:
    """The `MetaGraphDef`s of a SavedModel, with the fields above.

    Raises:
        ValueError: `saved_model.pb` is missing, too large, no regular file, or damaged.
        OSError: It cannot be read.
    """
    return list(parse(saved_model, _class()()).meta_graphs)


def parse(saved_model: str | pathlib.Path, message: Any) -> Any:
    """Fills a message with what `saved_model.pb` holds, and returns it.

    Raises:
        ValueError, OSError: As `read_meta_graphs`.
    """
    check_files(saved_model)
    path = pathlib.Path(saved_model, "saved_model.pb")
    content = path.read_bytes()
    try:
        message.ParseFromString(content)
    except Exception as error:  # its class depends on how protobuf was built
        raise ValueError(f"{path} is damaged: {error}. Export the model again.") from error
    return message


def node_name(tensor: str) -> str:
    """The node that an input names."""
    return tensor.removeprefix("^").split(":")[0]


def functions_of(node: Any) -> Iterator[str]:
    """Names of what a node calls, if it is a function."""
    yield node.op
    for value in node.attr.values():
        if value.func.name:
            yield value.func.name
        # Both may be in a file. TensorFlow keeps the one that was written last.
        yield from (function.name for function in value.list.func)


def types_of(node: Any) -> Iterator[int]:
    """TensorFlow's numbers of the types that a node names."""
    for value in node.attr.values():
        yield value.type
        yield from value.list.type


@functools.cache
def _class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="kformer/light_graph.proto", package="kformer.light", syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, field, kind in fields:
            _add(message, number, field, kind)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("kformer.light.SavedModel"))


def _add(message: Any, number: int, name: str, kind: str) -> None:
    label = _FIELD.LABEL_OPTIONAL
    if kind.startswith("map "):
        # As protoc writes a map field: a repeated message of key and value, named after the field.
        entry = message.nested_type.add(name="".join(part.capitalize() for part in name.split("_")) + "Entry")
        entry.options.map_entry = True
        _add(entry, 1, "key", _STRING)
        _add(entry, 2, "value", kind.removeprefix("map "))
        kind, label = f"{message.name}.{entry.name}", _FIELD.LABEL_REPEATED
    elif kind.endswith("[]"):
        kind, label = kind.removesuffix("[]"), _FIELD.LABEL_REPEATED
    scalar = {_STRING: _FIELD.TYPE_STRING, _BYTES: _FIELD.TYPE_BYTES, _ENUM: _FIELD.TYPE_INT32}.get(kind)
    type_name = None if scalar else f".kformer.light.{kind}"
    message.field.add(name=name, number=number, type=scalar or _FIELD.TYPE_MESSAGE, type_name=type_name, label=label)
