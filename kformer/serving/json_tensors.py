"""The bodies of REST's predict requests and answers, in the row format (`instances`) and the column format (`inputs`).

The forms are those of TensorFlow Serving's documentation of its RESTful API.
"""

import base64
import binascii
import codecs
import contextlib
import gc
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from kformer.files.compression import compression_of
from kformer.files.encodings import encoding_of
from kformer.runtime.status_codes import Code
from kformer.runtime.tensors import DATA_TYPES, TYPE_NAMES
from kformer.serving.errors import ServingError
from kformer.serving.signatures import MOST_DIMENSIONS, Signature, Tensor

_SHOWN = 50  # characters of a wrong value in a message
_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
# Where an object has a name twice, the first counts: TensorFlow Serving looks for the first.
_DECODER = json.JSONDecoder(object_pairs_hook=lambda pairs: dict(reversed(pairs)))


class PredictBody(NamedTuple):
    """A predict request's body, whose format is not yet checked, and whose values are not yet arrays."""

    signature: str  # "" where none is named
    values: dict[str, Any]

    @property
    def by_row(self) -> bool:
        """Whether it has the row format."""
        return "instances" in self.values

    def inputs(self, signature: Signature) -> dict[str, np.ndarray]:
        """The inputs as arrays.

        Raises:
            ServingError: The body has neither format, or a value has another type or shape than the signature's input.
        """
        if not self.by_row:
            if "inputs" not in self.values:
                raise _invalid("Missing 'inputs' or 'instances' key")
            return _from_columns(self.values["inputs"], signature)
        if "inputs" in self.values:
            raise _invalid("Expecting only one of 'inputs' or 'instances' keys to exist")
        rows = self.values["instances"]
        if not isinstance(rows, list):
            raise _invalid("Expecting 'instances' to be a list/array")
        if not rows:
            raise _invalid("No values in 'instances' array")
        return _from_rows(rows, signature)


def read_body(body: bytes) -> PredictBody:
    """Reads a predict request's body.

    Raises:
        ServingError: The body is not JSON, not an object, or names the signature by something else than a string.
    """
    body = body.removeprefix(codecs.BOM_UTF8)
    if not body.strip():
        raise _invalid("JSON Parse error: The document is empty")
    try:
        # Bytes that are not UTF-8 stay what they are: the model reads them as U+FFFD.
        text = body.decode("utf-8", "surrogateescape")
        with _without_collector():
            values = _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise _invalid(f"JSON Parse error: {_other_form(body) or _fault(error)}") from None
    if not isinstance(values, dict):
        raise _invalid(f"JSON Value: {_shown(values)} Is not object")
    signature = values.get("signature_name", "")
    if not isinstance(signature, str):
        raise _invalid("'signature_name' key must be a string value.")
    return PredictBody(signature, values)


def _fault(error: ValueError | RecursionError) -> str:
    """What is wrong, without Python's words for its own limits."""
    if isinstance(error, json.JSONDecodeError):
        return str(error)
    return "lists or objects are nested too deeply." if isinstance(error, RecursionError) else "a number is too long."


def _other_form(body: bytes) -> str | None:
    """What a body is that cannot be JSON in UTF-8, and what to send instead; None where its bytes do not tell."""
    compression = compression_of(body)
    if compression == "gzip":
        return "the body is compressed by gzip, but the header Content-Encoding: gzip is missing."
    if compression is not None:
        return f"the body is compressed by {compression}, which is not read. Send it as it is, without compression."
    encoding = encoding_of(body)
    if encoding is not None or b"\0" in body[:4]:
        return f"the body is in {encoding or 'UTF-16 or UTF-32'}. JSON is sent in UTF-8."
    return None


def write_body(outputs: Mapping[str, np.ndarray], by_row: bool) -> bytes:
    """An answer's body, in the format of the request.

    Raises:
        ServingError: The outputs have no common number of rows, which the row format needs.
    """
    is_one = len(outputs) == 1
    if not by_row:
        columns = {
            name: _list(_rows(name, array)) if array.ndim else _json(_written(name, array))
            for name, array in outputs.items()
        }
        answer = next(iter(columns.values())) if is_one else _object(columns)
        return f'{{"outputs":{answer}}}'.encode()
    if len({array.shape[:1] for array in outputs.values()} | {()}) != 2:
        raise _invalid("The outputs have different numbers of rows. Ask in the column format: 'inputs'.")
    written = [_rows(name, array) for name, array in outputs.items()]
    rows = (
        written[0] if is_one else [_object(dict(zip(outputs, row, strict=True))) for row in zip(*written, strict=True)]
    )
    return f'{{"predictions":{_list(rows)}}}'.encode()


def _rows(name: str, array: np.ndarray) -> list[str]:
    """Each row of an output as JSON. Between two rows, other threads of Python go on."""
    if array.ndim == 1:
        return [*map(_json, _written(name, array))]
    return [_json(_written(name, row)) for row in array]


def _list(written: Iterable[str]) -> str:
    return f"[{','.join(written)}]"


def _object(written: Mapping[str, str]) -> str:
    return f"{{{','.join(f'{_json(name)}:{value}' for name, value in written.items())}}}"


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Switches Python's garbage collector, which finds reference cycles, off for the block.

    JSON makes no cycles. In a body of a million lists, the collector would go through the objects again and again, and
    reading would take 1.5 seconds instead of 0.1.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _from_rows(rows: list[Any], signature: Signature) -> dict[str, np.ndarray]:
    named = _is_named(rows[0])
    names = _needed(signature)
    if not named and len(names) != 1:
        raise _invalid(
            f"instances is a plain list, but expecting list of objects as the signature has the inputs: "
            f"{', '.join(signature.inputs)}"
        )
    for number, row in enumerate(rows):
        if _is_named(row) != named:
            raise _invalid(f"Expecting {'object' if named else 'value/list'} at item {number} of input list")
        if named and row.keys() != rows[0].keys():
            raise _invalid(f"Failed to process element: {number} of 'instances' list. All need the same keys.")
    return _arrays({name: [row[name] for row in rows] for name in rows[0]} if named else {names[0]: rows}, signature)


def _from_columns(values: Any, signature: Signature) -> dict[str, np.ndarray]:
    if not _is_named(values):
        names = _needed(signature)
        if len(names) != 1:
            raise _invalid(
                f"inputs is a plain value/list, but expecting an object as the signature has the inputs: "
                f"{', '.join(signature.inputs)}"
            )
        values = {names[0]: values}
    missing = [name for name in signature.inputs if name not in values and name not in signature.defaults]
    if missing:
        raise _invalid(f"Missing named input: {missing[0]} in 'inputs' object.")
    return _arrays(values, signature)


def _needed(signature: Signature) -> list[str]:
    """The inputs that have no default, or all inputs if each has one."""
    return [name for name in signature.inputs if name not in signature.defaults] or list(signature.inputs)


def _arrays(columns: Mapping[str, Any], signature: Signature) -> dict[str, np.ndarray]:
    arrays = {}
    for name, value in columns.items():
        if name not in signature.inputs:
            raise _invalid(f"JSON object: does not have named input: {_shown(name)}")
        arrays[name] = _array(value, signature.inputs[name], name)
    return arrays


def _array(value: Any, tensor: Tensor, name: str) -> np.ndarray:
    """A JSON value as an array of the tensor's type."""
    if tensor.dtype not in DATA_TYPES:
        raise ServingError(
            Code.UNIMPLEMENTED,
            f"The input {name} must be {tensor}. This server takes inputs of {TYPE_NAMES}.",
        )
    shape: list[int] = []
    level = value
    most = MOST_DIMENSIONS if tensor.shape is None else len(tensor.shape)
    while isinstance(level, list):
        shape.append(len(level))
        if len(shape) > most:
            raise _invalid(f"The input {name} must be {tensor}. Received: lists in {len(shape)} levels.")
        if not level:
            break
        level = level[0]
    leaves: list[Any] = []
    try:
        _collect(value, shape, leaves, tensor.dtype)
    except ServingError as error:
        raise _invalid(f"{error} (input {name})") from None
    if tensor.dtype == object:
        array = np.empty(len(leaves), object)
        array[:] = leaves
    else:
        try:
            with np.errstate(over="ignore"):  # a number beyond the type's largest is infinite
                array = np.array(leaves, tensor.dtype)
        except OverflowError:
            raise _invalid(f"The input {name} must be {tensor}. Received: a number that is too large.") from None
    if tensor.shape is not None and 0 in shape and len(shape) < len(tensor.shape):
        shape += [size or 0 for size in tensor.shape[len(shape) :]]
    return array.reshape(shape)


def _collect(value: Any, shape: list[int], leaves: list[Any], dtype: np.dtype) -> None:
    """Adds the values in nested lists, which must have this shape."""
    if not shape:
        leaves.append(_leaf(value, dtype))
        return
    if not isinstance(value, list) or len(value) != shape[0]:
        raise _invalid(
            f"Encountered {f'list at unexpected size: {len(value)}' if isinstance(value, list) else 'no list'} "
            f"expected size: {shape[0]}"
        )
    for item in value:
        _collect(item, shape[1:], leaves, dtype)


def _leaf(value: Any, dtype: np.dtype) -> Any:
    if dtype.kind == "O":
        return _text(value)
    fits = {
        "b": isinstance(value, bool),
        "f": isinstance(value, int | float) and not isinstance(value, bool),
    }.get(dtype.kind, isinstance(value, int) and not isinstance(value, bool))
    if not fits:
        raise _invalid(f"JSON Value: {_shown(value)} is not of expected type: {dtype}")
    return value


def _text(value: Any) -> bytes:
    if isinstance(value, str):
        try:
            return value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:  # a lone surrogate, written as \\ud800
            return value.encode("utf-8", "surrogatepass")
    if _is_base64(value):
        try:
            return _decoded(value["b64"])
        except ValueError:
            raise _invalid("Unable to base64 decode. Use the alphabet with + and /, not with - and _.") from None
    raise _invalid(f"JSON Value: {_shown(value)} is not of expected type: string")


def _decoded(text: str) -> bytes:
    """The bytes of a text in base64, which may have white space, and may lack its padding.

    Raises:
        ValueError: It is not base64.
    """
    data = b"".join(text.encode("ascii").split())
    digits = data.rstrip(b"=")
    padding = b"=" * (-len(digits) % 4)
    if data not in (digits, digits + padding):
        raise ValueError("The padding is wrong.")
    return binascii.a2b_base64(digits + padding, strict_mode=True)


def _written(name: str, array: np.ndarray) -> Any:
    """An output as JSON values. Numbers have no more digits than their type holds."""
    if array.dtype == object:
        if name.endswith("_bytes"):
            return _nested(array, lambda value: {"b64": base64.b64encode(value).decode()})
        return _nested(array, lambda value: value.decode("utf-8", "replace"))
    if array.dtype.kind == "f":
        # Numbers that fill up rows are the same again and again.
        values, places = np.unique(array, return_inverse=True)
        return values.astype(str).astype(float)[places.reshape(array.shape)].tolist()
    return array.tolist()


def _nested(array: np.ndarray, write: Any) -> Any:
    written = np.empty(array.size, object)
    written[:] = [write(value) for value in array.flat]
    return written.reshape(array.shape).tolist()


def _is_base64(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get("b64"), str)


def _is_named(value: Any) -> bool:
    return isinstance(value, dict) and not _is_base64(value)


def _shown(value: Any) -> str:
    """The beginning of a wrong value."""
    if isinstance(value, list | dict):
        return "list" if isinstance(value, list) else "object"
    return repr(value)[:_SHOWN] if isinstance(value, str) else json.dumps(value)[:_SHOWN]


def _invalid(message: str) -> ServingError:
    return ServingError(Code.INVALID_ARGUMENT, message)
