"""Calls over gRPC, what TensorFlow Serving answers, and `kformer serve`.

The models are those of cases_of_paths.py. Requests are protocol buffers in text form. TensorFlow Serving's answers were
read in predict_util.cc, predict_impl.cc, get_model_metadata_impl.cc, get_model_status_impl.cc, server_core.cc and their
tests, and in the comments of predict.proto, model.proto and get_model_metadata.proto. How a tensor is read was tried
with `tf.io.parse_tensor`, which calls the same function.
"""

from typing import NamedTuple

from cases_of_paths import NEWEST


class Tensor(NamedTuple):
    """A call of Predict for a signature whose output x is its input x. Answers are the values of x, or a code."""

    what: str
    signature: str
    shape: str  # sizes with blanks between them
    values: str
    theirs: object
    ours: object = None  # None: as theirs
    differs: str = ""


class Call(NamedTuple):
    """Answers are a code, or what `seen` in test_tensorflow_serving_cases.py finds in the response."""

    what: str
    method: str
    request: str
    theirs: object
    ours: object = None  # None: as theirs
    differs: str = ""


_X = 'inputs { key: "x" value { dtype: DT_FLOAT tensor_shape { dim { size: 2 } } float_val: [1, 3] } }'
_TEXT = 'inputs { key: "x" value { dtype: DT_STRING tensor_shape { dim { size: 1 } } string_val: "a" } }'
_ALL = {"name": "typed", "version": NEWEST}
_TWO = 'model_spec { name: "typed" signature_name: "two" } ' + _X
_BOTH = {**_ALL, "signature": "two", "half": [0.5, 1.5], "negative": [-1.0, -3.0]}
_STATUS = {NEWEST: "AVAILABLE", 7: "AVAILABLE", 1: "AVAILABLE"}

# fmt: off
TENSORS = [
    Tensor("strings", "string", "2", 'string_val: ["a", "b"]', [b"a", b"b"]),
    Tensor("strings that are not UTF-8", "string", "1", r'string_val: "\377"', [b"\xff"]),
    Tensor("float32", "float32", "2", "float_val: [0.5, -1]", [0.5, -1.0]),
    Tensor("float32 as bytes", "float32", "1", r'tensor_content: "\000\000\000\077"', [0.5]),
    Tensor("NaN and Infinity", "float32", "2", "float_val: [inf, -inf]", [float("inf"), float("-inf")]),
    Tensor("float64", "float64", "2", "double_val: [0.1, -1]", [0.1, -1.0]),
    Tensor("int8", "int8", "2", "int_val: [-128, 127]", [-128, 127]),
    Tensor("int16", "int16", "2", "int_val: [-32768, 32767]", [-32768, 32767]),
    Tensor("int32", "int32", "2", "int_val: [-2147483648, 2147483647]", [-(2**31), 2**31 - 1]),
    Tensor("int64", "int64", "1", "int64_val: -9223372036854775808", [-(2**63)]),
    Tensor("uint8", "uint8", "2", "int_val: [0, 255]", [0, 255]),
    Tensor("uint16", "uint16", "2", "int_val: [0, 65535]", [0, 65535]),
    Tensor("uint32", "uint32", "1", "uint32_val: 4294967295", [2**32 - 1]),
    Tensor("uint64", "uint64", "1", "uint64_val: 18446744073709551615", [2**64 - 1]),
    Tensor("bool", "bool", "2", "bool_val: [true, false]", [True, False]),
    Tensor("float16", "float16", "2", "half_val: [15360, 14336]", [1.0, 0.5]),
    Tensor("bfloat16", "bfloat16", "1", "half_val: 16256", [1.0], "INVALID_ARGUMENT", "types"),
    Tensor("complex64", "complex64", "1", "scomplex_val: [1, 2]", [1 + 2j], "INVALID_ARGUMENT", "types"),
    Tensor("a scalar", "float32", "", "float_val: 0.5", 0.5),
    Tensor("two dimensions", "float32", "2 1", "float_val: [0.5, 1]", [[0.5], [1.0]]),
    Tensor("no values for no places", "float32", "0", "", []),
    Tensor("no values for no places in lists", "float32", "2 0", "", [[], []]),
    Tensor("eight dimensions", "float32", "1 1 1 1 1 1 1 1", "float_val: 1", [[[[[[[[1.0]]]]]]]]),
    Tensor("nine dimensions", "float32", "1 1 1 1 1 1 1 1 1", "float_val: 1", [[[[[[[[[1.0]]]]]]]]], "INVALID_ARGUMENT", "dimensions"),
    Tensor("255 dimensions", "float32", "1 " * 255, "float_val: 1", "INVALID_ARGUMENT"),
    Tensor("fewer numbers than places: the last is repeated", "float32", "3", "float_val: [1, 2]", [1.0, 2.0, 2.0]),
    Tensor("no numbers: zeros", "float32", "3", "", [0.0, 0.0, 0.0]),
    Tensor("more numbers than places", "float32", "1", "float_val: [1, 2]", [1.0], "INVALID_ARGUMENT", "count"),
    Tensor("one string for all places", "string", "3", 'string_val: "a"', [b"a"] * 3),
    Tensor("fewer strings than places", "string", "3", 'string_val: ["a", "b"]', [b"a", b"b", b"b"], "INVALID_ARGUMENT", "count"),
    Tensor("no strings", "string", "3", "", [b""] * 3, "INVALID_ARGUMENT", "count"),
    Tensor("more strings than places", "string", "1", 'string_val: ["a", "b"]', [b"a"], "INVALID_ARGUMENT", "count"),
    Tensor("fewer bytes than places", "float32", "2", r'tensor_content: "\000\000\000\077"', "INVALID_ARGUMENT"),
    Tensor("more bytes than places", "float32", "1", r'tensor_content: "\000\000\000\077\000\000\000\077"', "INVALID_ARGUMENT"),
    Tensor("half of a number in bytes", "float32", "1", r'tensor_content: "\000\000"', "INVALID_ARGUMENT"),
    Tensor("bytes and a number: the bytes count", "float32", "1", r'tensor_content: "\000\000\000\077" float_val: 2', [0.5]),
    Tensor("numbers in the field of another type: zeros", "float32", "1", "int_val: 2", [0.0]),
    Tensor("a size below zero", "float32", "-1", "float_val: 1", "INVALID_ARGUMENT"),
    Tensor("beyond int8", "int8", "1", "int_val: 300", [44], "INVALID_ARGUMENT", "wrap"),
    Tensor("below zero in uint8", "uint8", "1", "int_val: -1", [255], "INVALID_ARGUMENT", "wrap"),
    Tensor("a vector in place of three columns", "shaped", "3", "float_val: 1", [1.0] * 3, "INVALID_ARGUMENT", "shape"),
    Tensor("two columns in place of three", "shaped", "1 2", "float_val: 1", [[1.0] * 2], "INVALID_ARGUMENT", "shape"),
    Tensor("what the graph refuses", "positive", "1", "float_val: -1", "INVALID_ARGUMENT"),
]

CALLS = [
    # Which model
    Call("no model_spec", "Predict", _X, "INVALID_ARGUMENT"),
    Call("a model_spec without a name", "Predict", "model_spec { } " + _X, "INVALID_ARGUMENT"),
    Call("an empty name", "Predict", 'model_spec { name: "" version { value: 1 } } ' + _X, "INVALID_ARGUMENT"),
    Call("an unknown model", "Predict", 'model_spec { name: "foo" } ' + _X, "NOT_FOUND"),
    Call("an unknown model and an unknown signature", "Predict", 'model_spec { name: "foo" signature_name: "x" } ' + _X, "NOT_FOUND"),
    Call("an unknown version", "Predict", 'model_spec { name: "typed" version { value: 99 } } ' + _TEXT, "NOT_FOUND"),
    Call("a version below zero", "Predict", 'model_spec { name: "typed" version { value: -1 } } ' + _TEXT, "NOT_FOUND"),
    Call("an unknown label", "Predict", 'model_spec { name: "typed" version_label: "new" } ' + _TEXT, "INVALID_ARGUMENT"),
    Call("an empty label", "Predict", 'model_spec { name: "typed" version_label: "" } ' + _TEXT, "INVALID_ARGUMENT"),
    Call("a label of an unknown model", "Predict", 'model_spec { name: "foo" version_label: "stable" } ' + _TEXT, "INVALID_ARGUMENT", "NOT_FOUND", "model of a label"),
    Call("the newest version", "Predict", 'model_spec { name: "typed" } ' + _TEXT, {**_ALL, "signature": "serving_default", "x": [b"a"]}),
    Call("a version", "Predict", 'model_spec { name: "typed" version { value: 7 } } ' + _TEXT, {"name": "typed", "version": 7, "signature": "serving_default", "x": [b"a"]}),
    Call("a label", "Predict", 'model_spec { name: "typed" version_label: "stable" } ' + _TEXT, {"name": "typed", "version": 1, "signature": "serving_default", "x": [b"a"]}),
    Call("the largest version", "Predict", f'model_spec {{ name: "typed" version {{ value: {NEWEST} }} }} {_TEXT}', {**_ALL, "signature": "serving_default", "x": [b"a"]}),
    Call("an empty version is version 0", "Predict", 'model_spec { name: "typed" version { } } ' + _TEXT, "NOT_FOUND"),
    # Which signature, inputs and outputs
    Call("a signature by its name", "Predict", _TWO, _BOTH),
    Call("an unknown signature", "Predict", 'model_spec { name: "typed" signature_name: "x" } ' + _X, "FAILED_PRECONDITION"),
    Call("an unknown signature and no inputs", "Predict", 'model_spec { name: "typed" signature_name: "x" }', "FAILED_PRECONDITION"),
    Call("no inputs", "Predict", 'model_spec { name: "typed" }', "INVALID_ARGUMENT"),
    Call("an unknown input", "Predict", 'model_spec { name: "typed" } ' + _TEXT.replace('"x"', '"y"'), "INVALID_ARGUMENT"),
    Call("an unknown input beside the known one", "Predict", 'model_spec { name: "typed" } ' + _TEXT + _TEXT.replace('"x"', '"y"'), "INVALID_ARGUMENT"),
    Call("one input of three", "Predict", 'model_spec { name: "typed" signature_name: "mixed" } ' + _TEXT.replace('"x"', '"text"'), "INVALID_ARGUMENT"),
    Call("numbers for texts", "Predict", 'model_spec { name: "typed" } ' + _X, "INVALID_ARGUMENT"),
    Call("texts for numbers", "Predict", 'model_spec { name: "typed" signature_name: "two" } ' + _TEXT, "INVALID_ARGUMENT"),
    Call("an input without a type", "Predict", 'model_spec { name: "typed" } inputs { key: "x" value { } }', "INVALID_ARGUMENT"),
    Call("an input that has a default is left out", "Predict", 'model_spec { name: "typed" signature_name: "multiplied" } ' + _X, {**_ALL, "signature": "multiplied", "x": [2.0, 6.0]}),
    Call("the input without a default is left out", "Predict", 'model_spec { name: "typed" signature_name: "multiplied" } inputs { key: "factor" value { dtype: DT_FLOAT tensor_shape { } float_val: 1 } }', "INVALID_ARGUMENT"),
    Call("one output", "Predict", _TWO + ' output_filter: "half"', {**_ALL, "signature": "two", "half": [0.5, 1.5]}),
    Call("both outputs by their names", "Predict", _TWO + ' output_filter: ["negative", "half"]', _BOTH),
    Call("an output twice", "Predict", _TWO + ' output_filter: ["half", "half"]', "INVALID_ARGUMENT"),
    Call("an output twice and another one", "Predict", _TWO + ' output_filter: ["half", "negative", "half"]', "INVALID_ARGUMENT"),
    Call("an unknown output", "Predict", _TWO + ' output_filter: "x"', "INVALID_ARGUMENT"),
    Call("an unknown output beside a known one", "Predict", _TWO + ' output_filter: ["half", "x"]', "INVALID_ARGUMENT"),
    Call("an empty name of an output", "Predict", _TWO + ' output_filter: ""', "INVALID_ARGUMENT"),
    Call("an input's name as an output", "Predict", _TWO + ' output_filter: "x:0"', "INVALID_ARGUMENT"),
    Call("an unknown output of an unknown signature", "Predict", 'model_spec { name: "typed" signature_name: "x" } output_filter: "x"', "FAILED_PRECONDITION"),
    # Other methods of PredictionService
    Call("the metadata", "GetModelMetadata", 'model_spec { name: "typed" } metadata_field: "signature_def"', {**_ALL, "signature": ""}),
    Call("the metadata of a version", "GetModelMetadata", 'model_spec { name: "typed" version { value: 7 } } metadata_field: "signature_def"', {"name": "typed", "version": 7, "signature": ""}),
    Call("the metadata of a label's version", "GetModelMetadata", 'model_spec { name: "typed" version_label: "stable" } metadata_field: "signature_def"', {"name": "typed", "version": 1, "signature": ""}),
    Call("the metadata, asked for twice", "GetModelMetadata", 'model_spec { name: "typed" } metadata_field: ["signature_def", "signature_def"]', {**_ALL, "signature": ""}),
    Call("the metadata of a signature that is not there", "GetModelMetadata", 'model_spec { name: "typed" signature_name: "x" } metadata_field: "signature_def"', {**_ALL, "signature": ""}),
    Call("no metadata_field", "GetModelMetadata", 'model_spec { name: "typed" }', "INVALID_ARGUMENT"),
    Call("an unknown metadata_field", "GetModelMetadata", 'model_spec { name: "typed" } metadata_field: "graph"', "INVALID_ARGUMENT"),
    Call("an unknown metadata_field beside the known one", "GetModelMetadata", 'model_spec { name: "typed" } metadata_field: ["signature_def", "graph"]', "INVALID_ARGUMENT"),
    Call("an empty metadata_field", "GetModelMetadata", 'model_spec { name: "typed" } metadata_field: ""', "INVALID_ARGUMENT"),
    Call("the metadata without model_spec", "GetModelMetadata", 'metadata_field: "signature_def"', "INVALID_ARGUMENT"),
    Call("the metadata without a name", "GetModelMetadata", 'model_spec { } metadata_field: "signature_def"', "INVALID_ARGUMENT"),
    Call("the metadata of an unknown model", "GetModelMetadata", 'model_spec { name: "foo" } metadata_field: "signature_def"', "NOT_FOUND"),
    Call("the metadata of an unknown model, no metadata_field", "GetModelMetadata", 'model_spec { name: "foo" }', "INVALID_ARGUMENT"),
    Call("the metadata of an unknown version", "GetModelMetadata", 'model_spec { name: "typed" version { value: 99 } } metadata_field: "signature_def"', "NOT_FOUND"),
    Call("the metadata of an unknown label", "GetModelMetadata", 'model_spec { name: "typed" version_label: "new" } metadata_field: "signature_def"', "INVALID_ARGUMENT"),
    Call("classify", "Classify", 'model_spec { name: "typed" } input { example_list { examples { } } }', "INVALID_ARGUMENT", "UNIMPLEMENTED", "examples"),
    Call("regress", "Regress", 'model_spec { name: "typed" } input { example_list { examples { } } }', "INVALID_ARGUMENT", "UNIMPLEMENTED", "examples"),
    Call("several tasks", "MultiInference", 'tasks { model_spec { name: "typed" } method_name: "tensorflow/serving/classify" } input { example_list { examples { } } }', "INVALID_ARGUMENT", "UNIMPLEMENTED", "examples"),
    # ModelService
    Call("the status", "GetModelStatus", 'model_spec { name: "typed" }', _STATUS),
    Call("the status of a version", "GetModelStatus", 'model_spec { name: "typed" version { value: 7 } }', {7: "AVAILABLE"}),
    Call("the status of a label's version", "GetModelStatus", 'model_spec { name: "typed" version_label: "stable" }', _STATUS, {1: "AVAILABLE"}, "label"),
    Call("the status of an unknown label", "GetModelStatus", 'model_spec { name: "typed" version_label: "new" }', _STATUS, "INVALID_ARGUMENT", "label"),
    Call("the status of an unknown model", "GetModelStatus", 'model_spec { name: "foo" }', "NOT_FOUND"),
    Call("the status of an unknown version", "GetModelStatus", 'model_spec { name: "typed" version { value: 99 } }', "NOT_FOUND"),
    Call("the status without model_spec", "GetModelStatus", "", "INVALID_ARGUMENT"),
    Call("the status without a name", "GetModelStatus", "model_spec { }", "NOT_FOUND", "INVALID_ARGUMENT", "status without a name"),
]
# fmt: on
