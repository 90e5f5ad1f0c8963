"""The bodies of REST requests and answers, in the forms of TensorFlow Serving's documentation."""

import gc
import gzip
import json

import numpy as np
import pytest
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from kformer.runtime.status_codes import Code
from kformer.serving.errors import ServingError
from kformer.serving.json_tensors import read_body, write_body
from kformer.serving.signatures import Signature

pytestmark = pytest.mark.tensorflow_only


def signature(outputs=("y",), **inputs):
    """A signature from {name: (type, sizes)}; a size of -1 is any."""
    definition = meta_graph_pb2.SignatureDef()
    for name, (kind, sizes) in inputs.items():
        definition.inputs[name].dtype = getattr(types_pb2, kind)
        for size in sizes:
            definition.inputs[name].tensor_shape.dim.add(size=size)
    for name in outputs:
        definition.outputs[name].dtype = types_pb2.DT_FLOAT
    return Signature("serving_default", definition)


TEXT = signature(text=("DT_STRING", [-1]))
PAIR = signature(text=("DT_STRING", [-1]), translation=("DT_STRING", [-1]))
NUMBERS = signature(x=("DT_FLOAT", [-1, 3]), flags=("DT_BOOL", [-1]), count=("DT_INT32", [-1]))
SCALAR = signature(text=("DT_STRING", [-1]), top_k=("DT_INT32", []))


def inputs(body, to=TEXT):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_body(body).inputs(to)


def test_rows_of_one_input_may_be_plain_or_named():
    assert inputs({"instances": ["a", "b"]})["text"].tolist() == [b"a", b"b"]
    assert inputs({"instances": [{"text": "a"}, {"text": "b"}]})["text"].tolist() == [b"a", b"b"]


def test_rows_of_several_inputs_are_named():
    found = inputs({"instances": [{"text": "a", "translation": "x"}, {"translation": "y", "text": "b"}]}, PAIR)
    assert {name: array.tolist() for name, array in found.items()} == {
        "text": [b"a", b"b"],
        "translation": [b"x", b"y"],
    }


def test_columns_of_one_input_may_be_plain_or_named():
    assert inputs({"inputs": ["a", "b"]})["text"].tolist() == [b"a", b"b"]
    assert inputs({"inputs": {"text": ["a", "b"]}})["text"].tolist() == [b"a", b"b"]
    assert inputs({"inputs": []})["text"].shape == (0,)


def test_numbers_get_the_type_of_the_signature():
    found = inputs({"inputs": {"x": [[1, 2, 3.5], [4, 5, 6]], "flags": [True, False], "count": [7, 8]}}, NUMBERS)
    assert found["x"].dtype == np.float32
    assert found["x"].tolist() == [[1, 2, 3.5], [4, 5, 6]]
    assert (found["flags"].dtype, found["count"].dtype) == (np.bool_, np.int32)
    assert inputs({"inputs": {"text": ["a"], "top_k": 5}}, SCALAR)["top_k"].shape == ()


def test_behind_an_empty_list_sizes_are_those_of_the_signature_and_unknown_ones_are_0():
    cube = signature(x=("DT_FLOAT", [-1, -1, 3]))
    assert inputs({"inputs": []}, cube)["x"].shape == (0, 0, 3)
    assert inputs({"inputs": [[], []]}, cube)["x"].shape == (2, 0, 3)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({"b64": "/w=="}, b"\xff"),
        ("שלום", "שלום".encode()),
        ("a\0b", b"a\0b"),
        ("\ud800x", b"\xed\xa0\x80x"),  # a lone surrogate: bytes that are not UTF-8, which a model reads as U+FFFD
    ],
    ids=str,
)
def test_texts_arrive_as_they_are(written, expected):
    assert inputs({"instances": [written]})["text"].tolist() == [expected]


def test_a_plain_list_is_the_only_input_also_where_it_has_a_default():
    definition = meta_graph_pb2.SignatureDef()
    definition.inputs["text"].dtype = definition.defaults["text"].dtype = types_pb2.DT_STRING
    definition.inputs["text"].tensor_shape.dim.add(size=-1)
    definition.defaults["text"].tensor_shape.dim.add(size=0)
    optional = Signature("serving_default", definition)
    assert inputs({"inputs": ["a"]}, optional)["text"].tolist() == [b"a"]
    assert inputs({"instances": ["a"]}, optional)["text"].tolist() == [b"a"]


@pytest.mark.parametrize("depth", [9, 65, 900])
def test_lists_in_more_levels_than_a_request_may_have_are_refused(depth):
    definition = meta_graph_pb2.SignatureDef()
    definition.inputs["x"].dtype = types_pb2.DT_FLOAT
    definition.inputs["x"].tensor_shape.unknown_rank = True
    anything = Signature("serving_default", definition)
    assert inputs(b'{"inputs": [[[[[[[[1]]]]]]]]}', anything)["x"].shape == (1,) * 8
    with pytest.raises(ServingError, match="must be float32 of any shape. Received: lists in 9 levels"):
        inputs(b'{"inputs": ' + b"[" * depth + b"1" + b"]" * depth + b"}", anything)


def test_while_json_is_read_nobody_looks_for_circles_of_objects():
    """Python would go through a million new lists again and again."""
    rounds = []
    gc.callbacks.append(note := lambda phase, info: rounds.append(phase))
    try:
        values = read_body(b'{"inputs": [' + b"[]," * 50_000 + b"[]]}").values["inputs"]
    finally:
        gc.callbacks.remove(note)
    assert len(values) == 50_001
    assert len(rounds) <= 2  # at most one, before or after
    assert gc.isenabled()


def test_bytes_that_are_not_utf8_arrive_as_they_are():
    assert inputs(b'{"instances": ["a\xffb"]}')["text"].tolist() == [b"a\xffb"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "JSON Parse error"),
        (b'{"instances": ["a"', "JSON Parse error"),
        (b"[" * 100_000, "JSON Parse error: lists or objects are nested too deeply."),
        ('{"inputs": ["a"]}'.encode("utf-16"), "JSON Parse error: the body is in UTF-16LE. JSON is sent in UTF-8"),
        ('{"inputs": ["a"]}'.encode("utf-16-be"), "JSON Parse error: the body is in UTF-16 or UTF-32"),
        (
            gzip.compress(b'{"inputs": ["a"]}', mtime=0),
            "JSON Parse error: the body is compressed by gzip, but the header",
        ),
        (b'{"instances": [' + b"9" * 5000 + b"]}", "JSON Parse error: a number is too long."),
        (b'["a"]', "JSON Value: list Is not object"),
        ({}, "Missing 'inputs' or 'instances' key"),
        ({"instances": ["a"], "inputs": ["a"]}, "only one of 'inputs' or 'instances'"),
        ({"instances": "a"}, "Expecting 'instances' to be a list/array"),
        ({"instances": []}, "No values in 'instances' array"),
        ({"instances": ["a"], "signature_name": 3}, "'signature_name' key must be a string value"),
        ({"instances": [3]}, "JSON Value: 3 is not of expected type: string"),
        ({"instances": [None]}, "JSON Value: null is not of expected type: string"),
        ({"instances": [["a"]]}, "The input text must be string of shape \\(any\\). Received: lists in 2 levels"),
        ({"instances": ["a", ["b"]]}, "JSON Value: list is not of expected type: string"),
        ({"instances": ["a", {"text": "b"}]}, "Expecting value/list at item 1 of input list"),
        ({"instances": [{"txet": "a"}]}, "does not have named input: 'txet'"),
        ({"instances": [{"b64": "!"}]}, "Unable to base64 decode"),
        (
            {"instances": [{"b64": "-_8="}]},
            r"Unable to base64 decode. Use the alphabet with \+ and /, not",
        ),
        ({"inputs": {"texts": ["a"]}}, "Missing named input: text in 'inputs' object"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_wrong_body_is_refused_with_its_reason(body, message):
    with pytest.raises(ServingError, match=message) as refused:
        inputs(body)
    assert refused.value.code == Code.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"x": [[1, 2, 3], [4, 5]], "flags": [True], "count": [1]},
            "Encountered list at unexpected size: 2 expected size: 3",
        ),
        ({"x": [[1, 2, 3], 4], "flags": [True], "count": [1]}, "Encountered no list expected size: 3"),
        ({"x": [[1, 2, True]], "flags": [True], "count": [1]}, "JSON Value: true is not of expected type: float32"),
        ({"x": [[1, 2, 3]], "flags": [1], "count": [1]}, "JSON Value: 1 is not of expected type: bool"),
        ({"x": [[1, 2, 3]], "flags": [True], "count": [1.5]}, "JSON Value: 1.5 is not of expected type: int32"),
        ({"x": [[1, 2, 3]], "flags": [True], "count": [2**31]}, "Received: a number that is too large"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_wrong_numbers_are_refused(values, message):
    with pytest.raises(ServingError, match=message):
        inputs({"inputs": values}, NUMBERS)


def test_plain_rows_need_a_signature_of_one_input():
    with pytest.raises(
        ServingError, match="expecting list of objects as the signature has the inputs: text, translation"
    ):
        inputs({"instances": ["a"]}, PAIR)
    with pytest.raises(ServingError, match="expecting an object as the signature has the inputs: text, translation"):
        inputs({"inputs": ["a"]}, PAIR)
    with pytest.raises(ServingError, match="element: 1 of 'instances' list. All need the same keys"):
        inputs({"instances": [{"text": "a", "translation": "x"}, {"text": "b"}]}, PAIR)


def test_answers_have_the_format_of_the_request():
    texts = np.array([b"hola", b"adi\xc3\xb3s"], object)
    scores = np.array([-0.1, -2], "float32")
    assert json.loads(write_body({"translation": texts, "score": scores}, by_row=True)) == {
        "predictions": [{"translation": "hola", "score": -0.1}, {"translation": "adiós", "score": -2.0}]
    }
    assert json.loads(write_body({"translation": texts, "score": scores}, by_row=False)) == {
        "outputs": {"translation": ["hola", "adiós"], "score": [-0.1, -2.0]}
    }
    assert json.loads(write_body({"translation": texts}, by_row=True)) == {"predictions": ["hola", "adiós"]}
    assert json.loads(write_body({"translation": texts}, by_row=False)) == {"outputs": ["hola", "adiós"]}


def test_numbers_have_no_more_digits_than_they_hold_and_names_in_bytes_are_encoded():
    written = write_body({"x": np.array([[0.1, np.nan, -np.inf]], "float32")}, by_row=False)
    assert written == b'{"outputs":[[0.1,NaN,-Infinity]]}'
    assert write_body({"image_bytes": np.array([b"\xff"], object)}, by_row=False) == b'{"outputs":[{"b64":"/w=="}]}'


def test_tensors_of_any_rank_are_written_with_the_numbers_that_they_hold():
    numbers = np.random.default_rng(0).normal(size=(3, 5, 7)).astype("float32")
    numbers[1:, 2] = 0  # rows that are filled up
    outputs = {"x": numbers, "ids": np.arange(6).reshape(3, 2), "y": np.array([[b"a"], [b"\xc3\xb3"], [b'"']], object)}
    for by_row in (False, True):
        found = json.loads(write_body(outputs, by_row))
        columns = (
            {name: [row[name] for row in found["predictions"]] for name in outputs} if by_row else found["outputs"]
        )
        np.testing.assert_array_equal(np.array(columns["x"], "float32"), numbers)
        assert max(len(str(number)) for number in np.array(columns["x"]).flat) < 15
        assert columns["ids"] == [[0, 1], [2, 3], [4, 5]]
        assert columns["y"] == [["a"], ["ó"], ['"']]
    scalar = {"n": np.array(3), "s": np.array(0.1, "float32")}
    assert write_body(scalar, by_row=False) == b'{"outputs":{"n":3,"s":0.1}}'
    assert write_body({"n": np.zeros((0, 2))}, by_row=False) == b'{"outputs":[]}'


def test_bytes_of_an_output_that_are_not_utf8_leave_a_mark():
    assert json.loads(write_body({"y": np.array([b"a\xffb"], object)}, by_row=False)) == {"outputs": ["a\ufffdb"]}


def test_rows_need_outputs_of_the_same_length():
    with pytest.raises(ServingError, match="different numbers of rows"):
        write_body({"a": np.zeros(2), "b": np.zeros(3)}, by_row=True)
