"""`kformer serve` beside TensorFlow Serving, case by case: what TensorFlow Serving answers was read in its sources.

The cases are tables: cases_of_bodies.py, cases_of_numbers.py, cases_of_paths.py and cases_of_calls.py. Where the two
differ on purpose, a case names the reason, and docs/serving.md lists all reasons.
"""

import json
import math
import pathlib
import shutil

import grpc
import pytest
import tensorflow as tf
import typed_model
from cases_of_bodies import BODIES
from cases_of_calls import CALLS, TENSORS
from cases_of_numbers import NUMBERS
from cases_of_paths import NEWEST, PATHS
from differences import DIFFERENCES
from google.protobuf import text_format
from servers import running
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

pytestmark = pytest.mark.tensorflow_only
CASES = [*BODIES, *NUMBERS, *PATHS, *TENSORS, *CALLS]
ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    """A server with the models that cases_of_paths.py describes."""
    from kformer.serving.model_settings import ModelSettings
    from kformer.serving.settings import ServerSettings

    base = tmp_path_factory.mktemp("typed")
    typed_model.save(base / "1")
    for version in (7, NEWEST):
        shutil.copytree(base / "1", base / str(version))
    models = [
        ModelSettings("typed", base, latest=3, labels={"stable": 1, "a:b/c": 7}),
        ModelSettings("one & two", base, specific=(1,)),
    ]
    with running(ServerSettings(models, rest_port=0, grpc_port=0, poll_seconds=60)) as server:
        yield server


@pytest.fixture(scope="module")
def stubs(typed):
    """{method: (its stub, the class of its requests)}."""
    requests = {
        "Predict": predict_pb2.PredictRequest,
        "GetModelMetadata": get_model_metadata_pb2.GetModelMetadataRequest,
        "Classify": classification_pb2.ClassificationRequest,
        "Regress": regression_pb2.RegressionRequest,
        "MultiInference": inference_pb2.MultiInferenceRequest,
    }
    with grpc.insecure_channel(typed.grpc_address) as channel:
        prediction = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        model = model_service_pb2_grpc.ModelServiceStub(channel)
        yield {
            **{method: (getattr(prediction, method), request) for method, request in requests.items()},
            "GetModelStatus": (model.GetModelStatus, get_model_status_pb2.GetModelStatusRequest),
        }


def named(case):
    return f"{case.what}, {case.signature}" if getattr(case, "signature", "") else case.what


def expected(case):
    return case.theirs if case.ours is None else case.ours


def same(found, wanted):
    """Whether two values of JSON are equal, with numbers as float32 has them."""
    if isinstance(wanted, dict):
        return (
            isinstance(found, dict) and found.keys() == wanted.keys() and all(same(found[k], wanted[k]) for k in wanted)
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(same, found, wanted))
    if isinstance(wanted, float):
        both_nan = isinstance(found, float) and math.isnan(found) and math.isnan(wanted)
        return isinstance(found, float) and (both_nan or math.isclose(found, wanted, rel_tol=1e-7))
    return type(found) is type(wanted) and found == wanted


def check_json(answer, wanted):
    """Compares an answer with JSON, a status, or a status and what the error says."""
    if isinstance(wanted, str):
        assert answer.status == 200, answer
        assert same(answer.body, json.loads(wanted)), answer
        return
    status, part = wanted if isinstance(wanted, tuple) else (wanted, "")
    assert answer.status == status, answer
    assert part in answer.body["error"]
    assert [*answer.body] == ["error"]


@pytest.mark.parametrize("case", BODIES, ids=named)
def test_bodies(typed, case):
    body = case.body if isinstance(case.body, bytes) else case.body.encode()
    if case.signature:
        body = b'{"signature_name": "%s", %s' % (case.signature.encode(), body[1:])
    check_json(typed.predict(body, model="typed"), expected(case))


@pytest.mark.parametrize("case", NUMBERS, ids=named)
def test_numbers(typed, case):
    body = f'{{"signature_name": "{case.signature}", "inputs": [{case.values}]}}'
    wanted = expected(case)
    wanted = f'{{"outputs": [{wanted}]}}' if isinstance(wanted, str) else wanted
    check_json(typed.predict(body.encode(), model="typed"), wanted)


@pytest.mark.parametrize("case", PATHS, ids=named)
def test_paths(typed, case):
    method, path = case.request.split(" ")
    body = case.body if isinstance(case.body, bytes) else case.body.encode()
    answer = typed.ask(method, path, body if method in ("POST", "PUT", "PATCH") else None, case.headers)
    wanted = expected(case)
    status, part = wanted if isinstance(wanted, tuple) else (wanted, "")
    assert answer.status == status, answer
    assert part in json.dumps(answer.body, ensure_ascii=False, separators=(",", ":")) if part else True


def seen(response):
    """What a response says, in short."""
    if hasattr(response, "model_version_status"):
        states = response.DESCRIPTOR.file.message_types_by_name["ModelVersionStatus"].enum_types_by_name["State"]
        return {entry.version: states.values_by_number[entry.state].name for entry in response.model_version_status}
    spec = response.model_spec
    found = {"name": spec.name, "version": spec.version.value, "signature": spec.signature_name}
    outputs = getattr(response, "outputs", {})
    return {**found, **{name: tf.make_ndarray(tensor).tolist() for name, tensor in outputs.items()}}


def called(stubs, method, text):
    """What a call is answered, or the name of its code."""
    stub, request = stubs[method]
    try:
        return seen(stub(text_format.Parse(text, request()), timeout=60))
    except grpc.RpcError as error:
        return error.code().name


@pytest.mark.parametrize("case", TENSORS, ids=named)
def test_tensors(stubs, case):
    dtype = "DT_HALF" if case.signature == "float16" else f"DT_{_DTYPES.get(case.signature, case.signature.upper())}"
    shape = " ".join(f"dim {{ size: {size} }}" for size in case.shape.split())
    tensor = f"dtype: {dtype} tensor_shape {{ {shape} }} {case.values}"
    request = (
        f'model_spec {{ name: "typed" signature_name: "{case.signature}" }} inputs {{ key: "x" value {{ {tensor} }} }}'
    )
    answer = called(stubs, "Predict", request)
    assert (answer["x"] if isinstance(answer, dict) else answer) == expected(case)


_DTYPES = {"float32": "FLOAT", "float64": "DOUBLE", "shaped": "FLOAT", "positive": "FLOAT"}


@pytest.mark.parametrize("case", CALLS, ids=named)
def test_calls(stubs, case):
    assert called(stubs, case.method, case.request) == expected(case)


def test_a_wrong_output_filter_is_refused_before_anything_is_computed(typed, stubs):
    def batches():
        return [line for line in typed.metrics().splitlines() if line.startswith("kformer_batch_texts_count")]

    (right,) = [case.request for case in CALLS if case.what == "one output"]
    (wrong,) = [case.request for case in CALLS if case.what == "an unknown output beside a known one"]
    called(stubs, "Predict", right)
    before = batches()
    assert called(stubs, "Predict", wrong) == "INVALID_ARGUMENT"
    assert batches() == before
    called(stubs, "Predict", right)
    assert batches() != before


def test_a_case_differs_where_it_gives_a_reason_that_the_documentation_lists():
    for case in CASES:
        assert (case.ours is not None) == bool(case.differs), case.what
        assert case.ours is None or case.ours != case.theirs, case.what
    assert {case.differs for case in CASES if case.differs} == {*DIFFERENCES}
    text = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    section = text.split("### What differs\n")[1].split("\n###")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][2:]  # without the head
    assert rows == [f"| {' | '.join(difference)} |" for difference in DIFFERENCES.values()]


def test_there_is_a_case_for_each_of_the_answers_that_matter():
    """A table that lost its rows would pass."""
    assert len(CASES) >= 200
