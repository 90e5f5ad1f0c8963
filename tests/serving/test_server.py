"""`kformer serve` over real connections: the same REST and gRPC as TensorFlow Serving."""

import concurrent.futures
import contextlib
import dataclasses
import http.client
import json
import os
import shutil
import signal
import socket
import time

import foreign_models
import grpc
import numpy as np
import pytest
import tensorflow as tf
import typed_model
from grpc_health.v1 import health_pb2, health_pb2_grpc
from servers import grpc_predict, running, small, wait
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from kformer.runtime.status_codes import Code
from kformer.serving import grpc_server, served_model
from kformer.serving.config_files import ModelConfigFile
from kformer.serving.errors import ServingError
from kformer.serving.grpc_server import GrpcServer
from kformer.serving.model_settings import Batching, ModelSettings
from kformer.serving.predict import Answerer
from kformer.serving.server import Server
from kformer.serving.settings import Limits, ReloadSettings, ServerSettings

pytestmark = pytest.mark.tensorflow_only
MODEL = "/v1/models/numbers"


# REST


def test_rows_in_rows_out_and_columns_in_columns_out(served):
    row = served.predict({"instances": ["one two", "three"]})
    assert row.status == 200
    assert [answer["translation"] for answer in row.body["predictions"]] == ["dos uno", "tres"]
    assert all(answer["score"] < 0 for answer in row.body["predictions"])
    column = served.predict({"inputs": {"text": ["one two", "three"]}})
    assert column.body["outputs"]["translation"] == ["dos uno", "tres"]
    assert column.body["outputs"]["score"] == [answer["score"] for answer in row.body["predictions"]]


def test_a_request_that_asks_for_another_protocol_is_told_that_its_body_was_not_read(served):
    headers = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABk"}
    refused = served.predict({"instances": ["one"]}, headers=headers)
    assert refused.status == 400
    assert "cannot ask for another protocol. Received: Upgrade: h2c. Send it without" in refused.body["error"]
    assert served.ask("GET", MODEL, headers=headers).status == 200


def test_who_waits_for_leave_to_send_a_body_and_is_refused_asks_anew(served):
    """The next bytes on that connection would be taken for the body that was not sent."""
    head = "POST /v1/models/numbers:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n"
    for expect, closed in (("Expect: 100-continue\r\n", True), ("", False)):
        with served.connect() as connection:
            connection.sendall(f"{head}{expect}\r\n".encode())
            answer = connection.recv(65536).decode().lower()
        assert answer.startswith("http/1.1 413")
        assert ("connection: close" in answer) == closed


def test_a_length_of_many_digits_is_a_number(served):
    body = json.dumps({"instances": ["one"]}).encode()
    connection = http.client.HTTPConnection("127.0.0.1", served.server.rest_port, timeout=10)
    with contextlib.closing(connection):
        connection.putrequest("POST", "/v1/models/numbers:predict")
        connection.putheader("Content-Length", "0" * 5000 + str(len(body)))
        connection.endheaders(body)
        assert connection.getresponse().status == 200


def test_a_signature_is_chosen_by_its_name(served):
    found = served.predict({"signature_name": "n_best", "instances": ["one two"]}).body["predictions"]
    assert found[0]["translation"][0] == "dos uno"
    assert len(found[0]["translation"]) == len(found[0]["score"]) > 1
    pair = {"text": "one two", "translation": "dos uno"}
    found = served.predict({"signature_name": "score", "instances": [pair]}).body["predictions"]
    assert found[0]["tokens"] == 3
    assert found[0]["truncated"] is False


def test_options_come_with_a_request_and_have_defaults(served):
    def translated(**inputs):
        return served.predict({"signature_name": "translate_with_options", "inputs": inputs})

    rows = served.predict({"signature_name": "translate_with_options", "instances": ["one two", {"b64": "c2l4"}]})
    assert [answer["translation"] for answer in rows.body["predictions"]] == ["dos uno", "seis"]
    begun = translated(text=["one two"], target_prefix=["seis"], max_length=3)
    assert begun.body["outputs"]["translation"][0].startswith("seis ")
    longer = translated(text=["one two"], min_length=5)
    assert len(longer.body["outputs"]["translation"][0].split()) >= 5
    refused = translated(text=["one two"], temperature=-1.0)
    assert refused.status == 400
    assert (
        "temperature must be a finite number of at least 0; 0 means a search instead of sampling. Received:"
        in refused.body["error"]
    )
    scalar = translated(text=["one two"], temperature=[0.5])
    assert scalar.status == 400
    assert "temperature must be float32 of shape ()" in scalar.body["error"]


def test_a_version_is_chosen_by_its_number(served):
    assert served.ask("POST", f"{MODEL}/versions/1:predict", {"instances": ["one"]}).status == 200
    missing = served.ask("POST", f"{MODEL}/versions/7:predict", {"instances": ["one"]})
    assert (missing.status, missing.body) == (404, {"error": "Servable not found for request: Specific(numbers, 7)"})


def test_the_status_of_a_model(served):
    assert served.ask("GET", MODEL).body == {
        "model_version_status": [
            {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
        ]
    }
    assert served.ask("GET", f"{MODEL}/versions/1").body == served.ask("GET", MODEL).body
    assert served.ask("GET", "/v1/models/other").status == 404
    assert served.ask("GET", "/v1/models").body == {"models": ["numbers"]}


def test_the_metadata_of_a_model(served):
    body = served.ask("GET", f"{MODEL}/metadata").body
    assert body["model_spec"]["name"] == "numbers"
    assert body["model_spec"]["version"] == "1"
    assert {*body["metadata"]["signature_def"]} == {
        "signature_def"
    }  # without protobuf's "@type", as TensorFlow Serving
    signatures = body["metadata"]["signature_def"]["signature_def"]
    text = signatures["serving_default"]["inputs"]["text"]
    assert (text["dtype"], text["tensor_shape"]["dim"]) == ("DT_STRING", [{"size": "-1", "name": ""}])
    assert {"serving_default", "n_best", "score"} <= {*signatures}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "error"),
    [
        ("POST", f"{MODEL}:predict", b"{", 400, "JSON Parse error"),
        ("POST", f"{MODEL}:predict", {"instances": []}, 400, "No values in 'instances' array"),
        (
            "POST",
            f"{MODEL}:predict",
            {"instances": ["a"], "signature_name": "x"},
            400,
            '"x" not found in signature def',
        ),
        (
            "POST",
            "/v1/models/other:predict",
            {"instances": ["a"]},
            404,
            "Servable not found for request: Latest(other)",
        ),
        ("POST", f"{MODEL}:classify", {"examples": []}, 501, "This server answers :predict. Received: :classify"),
        ("GET", f"{MODEL}:predict", None, 400, "Malformed request: GET /v1/models/numbers:predict"),
        ("POST", MODEL, {}, 400, "Malformed request: POST /v1/models/numbers"),
        ("POST", f"{MODEL}:x:predict", {"instances": ["a"]}, 400, "Malformed request: POST"),
        ("POST", f"{MODEL}:x/versions/1:predict", {"instances": ["a"]}, 400, "Malformed request: POST"),
        ("POST", f"{MODEL}/versions/x:predict", {"instances": ["a"]}, 400, "Malformed request: POST"),
        ("GET", "/v2/health", None, 404, "Not Found: GET /v2/health"),
        ("DELETE", MODEL, None, 405, "Method Not Allowed"),
        ("POST", "/healthz", None, 405, "Method Not Allowed: POST /healthz"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_errors_have_the_code_of_tensorflow_serving_and_a_reason(served, method, path, body, status, error):
    answer = served.ask(method, path, body)
    assert answer.status == status
    assert [*answer.body] == ["error"]
    assert error in answer.body["error"]


@pytest.mark.parametrize(("path", "methods"), [(MODEL, "GET, HEAD, OPTIONS, POST"), ("/healthz", "GET, HEAD")])
def test_who_asks_by_a_wrong_method_is_told_the_right_ones(served, path, methods):
    assert served.ask("DELETE", path).headers["allow"] == methods


def test_health_readiness_and_metrics(served):
    served.predict({"instances": ["one"]})
    assert served.ask("GET", "/healthz").status == served.ask("GET", "/readyz").status == 200
    page = served.metrics()
    assert 'kformer_requests_total{code="OK",model="numbers"}' in page
    assert 'kformer_version_state{model="numbers",version="1"} 30.0' in page
    assert 'kformer_batch_texts_count{model="numbers",signature="serving_default"}' in page


def test_a_server_without_a_version_lives_but_is_not_ready(tmp_path):
    base = tmp_path / "numbers"
    (base / "1").mkdir(parents=True)
    (base / "1" / "saved_model.pb").write_bytes(b"broken")
    with running(small(base), until_ready=False) as server:
        assert server.ask("GET", "/healthz").status == 200
        assert server.ask("GET", "/readyz").status == 503
        while (answer := server.predict({"instances": ["one"]})).status == 503:  # it is still being read
            time.sleep(0.1)
        assert answer.status == 404


def test_who_may_come_back_is_told_when(plain_export_folder):
    crowded = Batching(max_batch_size=2, max_enqueued_batches=1, batch_timeout_micros=3_000_000)
    with running(small(plain_export_folder, batching=crowded), until_ready=False) as server:
        loading = server.predict({"instances": ["one"]})
        assert (loading.status, loading.headers["retry-after"]) == (503, "1")
        wait(server.server.is_ready)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            first = pool.submit(server.predict, {"instances": ["one"]})
            wait(lambda: "kformer_waiting_texts 1.0" in server.metrics())
            busy = server.predict({"instances": ["one", "two"]})
            assert (busy.status, busy.headers["retry-after"]) == (429, "1")
            assert first.result().status == 200


def test_the_metrics_have_the_path_and_the_type_that_prometheus_asks_for(plain_export_folder):
    with running(small(plain_export_folder, metrics_path="/m")) as server:
        page = server.ask("GET", "/m")
        assert page.status == 200
        assert page.headers["content-type"].startswith("text/plain; version=")
        assert server.ask("GET", "/monitoring/prometheus/metrics").status == 404


def test_the_page_can_be_framed_by_nobody_and_asks_no_other_host(served):
    headers = served.ask("GET", "/").headers
    assert headers["content-security-policy"] == "default-src 'self'; frame-ancestors 'none'"
    assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
    assert "server" not in headers  # which would tell its version


# Requests that share batches


def test_every_predict_request_is_counted_by_its_code(plain_export_folder):
    with running(small(plain_export_folder, limits=Limits(request_bytes=100))) as server:
        for body in (b"{", {"instances": []}, {"instances": ["one" * 50]}, {"instances": ["one"]}):
            server.predict(body)
        server.predict({"instances": ["one"]}, model="no-such-model")
        page = server.metrics()
    assert 'kformer_requests_total{code="INVALID_ARGUMENT",model="numbers"} 3.0' in page
    assert 'kformer_requests_total{code="OK",model="numbers"} 1.0' in page
    assert 'kformer_requests_total{code="NOT_FOUND",model=""} 1.0' in page
    assert "no-such-model" not in page


def test_a_version_without_its_variables_is_not_served(plain_export_folder, tmp_path):
    """It is being copied: TensorFlow would load it, and every request would fail."""
    base = tmp_path / "numbers"
    shutil.copytree(plain_export_folder, base)
    with running(small(base, poll_seconds=0.1)) as server:
        shutil.copytree(base / "1", base / "2", ignore=shutil.ignore_patterns("variables.*"))

        def state():
            return server.ask("GET", f"{MODEL}/versions/2").body.get("model_version_status", [{}])[0]

        wait(lambda: state().get("state") == "END")
        assert "variables.index is missing" in state()["status"]["error_message"]
        assert server.predict({"instances": ["one two"]}).body["predictions"][0]["translation"] == "dos uno"
        shutil.copytree(base / "1" / "variables", base / "2" / "variables", dirs_exist_ok=True)
        wait(lambda: state().get("state") == "AVAILABLE")


def test_a_version_that_takes_longer_to_load_than_it_may_is_told(plain_export_folder, caplog):
    settings = small(plain_export_folder, load_seconds=0.0001, poll_seconds=0.001)
    with running(settings):  # it is served all the same, once it is loaded
        told = [record.fields["error"] for record in caplog.records if "error" in getattr(record, "fields", {})]
    assert told == ["loading takes longer than 0.0001 seconds; it goes on"]


def test_clients_at_once_share_batches_and_get_their_own_answers(served, pairs):
    sources, expected = zip(*pairs, strict=True)
    for source in sources[:5]:  # the first batches are cold: by their time alone, the server would expect a long wait
        served.predict({"instances": [source]})
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        bodies = pool.map(lambda source: served.predict({"instances": [source]}).body, sources)
        assert [body["predictions"][0]["translation"] for body in bodies] == list(expected)
    page = served.metrics()
    samples = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    labels = '{model="numbers",signature="serving_default"}'
    assert float(samples[f"kformer_batch_texts_sum{labels}"]) > float(samples[f"kformer_batch_texts_count{labels}"])


def test_what_a_request_says_arrives_over_both_protocols(served, monkeypatch):
    said = []

    async def predict(
        answerer, model, read_inputs, version=None, label=None, signature_name="", seconds=None, chosen=(), client="",
        gone=None,
    ):  # fmt: skip
        said.append((model, version, label, signature_name, list(chosen), client))
        left.append(seconds)
        raise ServingError(Code.NOT_FOUND, "noted")

    left = []
    monkeypatch.setattr(Answerer, "predict", predict)
    served.predict({"signature_name": "n_best", "instances": ["one"]}, model="a%20b/versions/3")
    served.predict({"instances": ["one"]}, model="a/labels/stable")
    with pytest.raises(grpc.RpcError, match="noted"):
        grpc_predict(
            served.grpc_address, model="a b", version=3, signature="n_best", timeout=7, outputs=["score"], text=["one"]
        )
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.version_label = "a", "stable"
    with grpc.insecure_channel(served.grpc_address) as channel, pytest.raises(grpc.RpcError, match="noted"):
        prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request)
    assert said == [
        ("a b", 3, None, "n_best", [], "127.0.0.1"),
        ("a", None, "stable", "", [], "127.0.0.1"),
        ("a b", 3, None, "n_best", ["score"], "127.0.0.1"),
        ("a", None, "stable", "", [], "127.0.0.1"),
    ]
    assert 20 < left[0] <= 30  # the server's limit
    assert 3 < left[2] < 8  # the client's, which gRPC rounds
    assert left[3] is None


# Limits


def test_what_is_too_large_is_refused_at_once(plain_export_folder):
    limits = Limits(request_bytes=2000, text_bytes=50, texts=3)
    with running(small(plain_export_folder, limits=limits)) as server:
        assert server.predict({"instances": ["one"] * 3}).status == 200
        assert server.predict({"instances": ["x" * 50]}).status == 200
        assert server.predict(b'{"instances": ["one"]}'.ljust(2000)).status == 200
        assert server.predict(b'{"instances": ["one"]}'.ljust(2001)).status == 413
        many = server.predict({"instances": ["one"] * 4})
        assert (many.status, many.body["error"]) == (
            413,
            "A request may have 3 texts. Received: 4 in text. Send several requests.",
        )
        long = server.predict({"instances": ["x" * 51]})
        assert long.status == 413
        assert "A text may have 50 bytes. Received: 51 in text." in long.body["error"]
        huge = server.predict({"instances": ["x" * 3000]})
        assert huge.status == 413
        assert "A request may have 2000 bytes. Received: " in huge.body["error"]
        with pytest.raises(grpc.RpcError) as refused:
            grpc_predict(server.grpc_address, text=["one"] * 4)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        with pytest.raises(grpc.RpcError) as refused:
            grpc_predict(server.grpc_address, text=["x" * 3000])
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_client_that_sends_far_too_much_can_read_why_it_is_refused(plain_export_folder):
    """A server that closed the connection, while the client still writes, would have it see a reset alone."""
    with running(small(plain_export_folder, limits=Limits(request_bytes=2000))) as server:
        refused = server.predict(b" " * 30_000_000)
        assert (refused.status, refused.body["error"][:34]) == (413, "A request may have 2000 bytes. Rec")


def test_a_body_whose_length_is_not_told_is_cut_off_at_the_limit(plain_export_folder):
    with running(small(plain_export_folder, limits=Limits(request_bytes=2000))) as server:
        with socket.create_connection(("127.0.0.1", server.server.rest_port)) as connection:
            head = f"POST {MODEL}:predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
            connection.sendall(head.encode() + b"1000\r\n" + b"x" * 4096 + b"\r\n")  # and there is more to come
            answer = connection.recv(65536)
        assert answer.startswith(b"HTTP/1.1 413")


def test_an_answer_that_takes_too_long_is_given_up(plain_export_folder):
    patient = Batching(batch_timeout_micros=20_000_000)  # it waits 20 seconds for company
    with running(small(plain_export_folder, batching=patient, limits=Limits(seconds=0.5))) as server:
        late = server.predict({"instances": ["one"]})
        assert (late.status, late.body["error"][:36]) == (504, "The answer took longer than 0.5 seco")
        for seconds in (None, 60):  # a client's deadline does not extend the server's limit
            began = time.monotonic()
            with pytest.raises(grpc.RpcError) as late:
                grpc_predict(server.grpc_address, text=["one"], timeout=seconds)
            assert late.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            assert time.monotonic() - began < 10
    with running(small(plain_export_folder)) as server:
        with pytest.raises(grpc.RpcError) as late:
            grpc_predict(server.grpc_address, text=["one"], timeout=0.0001)
        assert late.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED


def test_the_time_of_a_slow_body_counts(plain_export_folder):
    """A client that sends slowly does not get the whole time for the answer once more."""
    patient, body = Batching(batch_timeout_micros=20_000_000), b'{"instances": ["one"]}'
    head = f"POST {MODEL}:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    with (
        running(small(plain_export_folder, batching=patient, limits=Limits(seconds=3.0))) as server,
        socket.create_connection(("127.0.0.1", server.server.rest_port)) as connection,
    ):
        connection.sendall(head.encode() + body[:1])
        time.sleep(2.2)
        connection.sendall(body[1:])
        began = time.monotonic()
        answer = connection.recv(65536)
        waited = time.monotonic() - began
    assert answer.startswith(b"HTTP/1.1 504")
    assert waited < 2.2  # 0.8 seconds are left; the whole time would be 3


# Access


def test_where_there_is_a_token_every_request_needs_it(plain_export_folder):
    with running(small(plain_export_folder, token="open sesame")) as server:
        right, wrong = {"Authorization": "bearer open sesame"}, {"Authorization": "Bearer open"}
        assert server.predict({"instances": ["one"]}, headers=right).status == 200
        for path in (MODEL, f"{MODEL}/metadata", "/v1/models", "/monitoring/prometheus/metrics"):
            assert server.ask("GET", path, headers=wrong).status == server.ask("GET", path).status == 401
            assert server.ask("GET", path, headers=right).status == 200
        refused = server.predict({"instances": ["one"]})
        assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert "Authorization: Bearer TOKEN" in refused.body["error"]
        for path in ("/readyz", "/healthz", "/"):  # nothing that must be hidden; the page asks for the token
            assert server.ask("GET", path).status == 200
        grpc_predict(server.grpc_address, text=["one"], metadata=[("authorization", "Bearer open sesame")])
        for metadata in ([], [("authorization", "Bearer open")]):
            with pytest.raises(grpc.RpcError) as refusal:
                grpc_predict(server.grpc_address, text=["one"], metadata=metadata)
            assert refusal.value.code() == grpc.StatusCode.UNAUTHENTICATED


@pytest.fixture(scope="module")
def two_versions(plain_export_folder, tmp_path_factory):
    base = tmp_path_factory.mktemp("versions") / "numbers"
    for number in ("1", "2"):
        shutil.copytree(plain_export_folder / "1", base / number)
    models = [ModelSettings("numbers", base, latest=2, labels={"stable": 1})]
    with running(ServerSettings(models, rest_port=0, grpc_port=0)) as server:
        wait(lambda: [*states(server).values()].count("AVAILABLE") == 2)
        yield server


@pytest.mark.parametrize("part", ["/versions/1", "/labels/stable"])
def test_status_and_metadata_are_of_the_version_that_is_asked_for(two_versions, part):
    assert [*states(two_versions)] == ["2", "1"]
    assert [*states(two_versions, part)] == ["1"]
    assert two_versions.ask("GET", f"{MODEL}{part}/metadata").body["model_spec"]["version"] == "1"
    assert two_versions.ask("GET", f"{MODEL}/metadata").body["model_spec"]["version"] == "2"
    assert two_versions.ask("GET", f"{MODEL}/versions/7/metadata").status == 404


@pytest.mark.parametrize("chosen", [{"version": 1}, {"label": "stable"}], ids=["version", "label"])
def test_status_and_metadata_over_grpc_are_of_the_version_that_is_asked_for(two_versions, chosen):
    def choose(spec):
        spec.name = "numbers"
        if "label" in chosen:
            spec.version_label = chosen["label"]
        else:
            spec.version.value = chosen["version"]

    with grpc.insecure_channel(two_versions.grpc_address) as channel:
        status = get_model_status_pb2.GetModelStatusRequest()
        choose(status.model_spec)
        found = model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(status, timeout=10)
        assert [version.version for version in found.model_version_status] == [1]
        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
        choose(request.model_spec)
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        assert stub.GetModelMetadata(request, timeout=10).model_spec.version.value == 1


# gRPC


def test_a_tensor_of_like_strings_may_have_one_value(served):
    response = grpc_predict(served.grpc_address, text=shaped(3, values=[b"one"]))
    assert tf.make_ndarray(response.outputs["translation"]).tolist() == [b"uno"] * 3


def test_predict_over_grpc(served):
    response = grpc_predict(served.grpc_address, text=["one two", "three"])
    assert tf.make_ndarray(response.outputs["translation"]).tolist() == [b"dos uno", b"tres"]
    assert tf.make_ndarray(response.outputs["score"]).dtype == np.float32
    assert len(response.outputs["score"].float_val) == 2
    assert (response.model_spec.name, response.model_spec.version.value) == ("numbers", 1)
    assert response.model_spec.signature_name == "serving_default"
    only = grpc_predict(served.grpc_address, signature="n_best", outputs=["score"], version=1, text=["one"])
    assert [*only.outputs] == ["score"]
    assert grpc_predict(served.grpc_address, text=np.array([], object)).outputs["score"].tensor_shape.dim[0].size == 0


def shaped(*sizes, values=()):
    proto = tf.make_tensor_proto(["x"])
    del proto.tensor_shape.dim[:]
    for size in sizes:
        proto.tensor_shape.dim.add(size=size)
    del proto.string_val[:]
    proto.string_val.extend(values)
    return proto


def numbers(dtype, **values):
    proto = tensor_pb2.TensorProto(dtype=dtype, **values)
    proto.tensor_shape.dim.add(size=1)
    return proto


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ({"text": ["one"], "model": "other"}, "NOT_FOUND", "Servable not found"),
        ({"text": ["one"], "version": 9}, "NOT_FOUND", "Servable not found"),
        ({"text": ["one"], "signature": "x"}, "FAILED_PRECONDITION", "not found in signature def"),
        ({"texts": ["one"]}, "INVALID_ARGUMENT", "The signature serving_default takes text. Received: texts"),
        ({}, "INVALID_ARGUMENT", "The signature serving_default takes text. Received: "),
        ({"text": [1.0]}, "INVALID_ARGUMENT", "must be string of shape (any). Received: float32 of shape (1)"),
        ({"text": [["one"]]}, "INVALID_ARGUMENT", "must be string of shape (any). Received: string of shape (1, 1)"),
        (
            {"text": ["one"], "outputs": ["x"]},
            "INVALID_ARGUMENT",
            "output_filter may name each of them once. Received: x",
        ),
        ({"text": shaped(10**12, values=[b"x"])}, "INVALID_ARGUMENT", "Received: 1 values. One value may stand for"),
        ({"text": tensor_pb2.TensorProto(dtype=types_pb2.DT_RESOURCE)}, "INVALID_ARGUMENT", "must be a tensor"),
        ({"text": shaped(-1)}, "INVALID_ARGUMENT", "must be a tensor of known size"),
        ({"text": shaped(*[1] * 9)}, "INVALID_ARGUMENT", "must be a tensor of at most 8 dimensions. Received: 9"),
        ({"text": numbers(types_pb2.DT_UINT8, int_val=[256])}, "INVALID_ARGUMENT", "Received: uint8 of shape (1)"),
        ({"x" * 10_000: ["one"]}, "INVALID_ARGUMENT", f"Received: {'x' * 100}"),
        ({"text": ["one"], "signature": "é" * 10_000}, "FAILED_PRECONDITION", 'Serving signature name: "éé'),
        ({"text": ["one"], "model": "é" * 10_000}, "NOT_FOUND", "Servable not found for request: Latest(éé"),
        ({"text": shaped(3, values=[b"x", b"y"])}, "INVALID_ARGUMENT", "must be 3 values for the shape [3]"),
    ],
    ids=lambda value: str(value)[:40].replace("\n", " "),
)
def test_wrong_calls_are_refused_with_their_reason(served, options, code, message):
    with pytest.raises(grpc.RpcError) as refused:
        grpc_predict(served.grpc_address, **options)
    assert refused.value.code().name == code
    assert message in refused.value.details()


def test_metadata_and_status_over_grpc(served):
    with grpc.insecure_channel(served.grpc_address) as channel:
        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
        request.model_spec.name = "numbers"
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        metadata = stub.GetModelMetadata(request, timeout=10)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        assert metadata.metadata["signature_def"].Unpack(signatures)
        assert {"serving_default", "n_best", "score"} <= {*signatures.signature_def}
        request.ClearField("metadata_field")
        with pytest.raises(grpc.RpcError, match="The metadata_field must be signature_def. Received: none"):
            stub.GetModelMetadata(request, timeout=10)
        status = get_model_status_pb2.GetModelStatusRequest()
        status.model_spec.name = "numbers"
        (version,) = model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(status).model_version_status
        assert (version.version, version.state) == (1, get_model_status_pb2.ModelVersionStatus.AVAILABLE)
        with pytest.raises(grpc.RpcError, match="supports only Predict and GetModelMetadata") as refused:
            stub.Classify(classification_pb2.ClassificationRequest(), timeout=10)
        assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED


# Versions


def test_a_new_version_is_taken_up_and_a_broken_one_is_not_while_requests_go_on(plain_export_folder, tmp_path):
    folder = tmp_path / "numbers"
    shutil.copytree(plain_export_folder, folder)
    settings = dataclasses.replace(small(folder), poll_seconds=0.05)
    with running(settings) as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
        going_on = pool.submit(_ask_until, server, lambda: server.ask("GET", MODEL).body["model_version_status"])
        shutil.copytree(folder / "1", tmp_path / "2")
        (tmp_path / "2").rename(folder / "2")
        wait(lambda: states(server) == {"2": "AVAILABLE", "1": "END"})
        shutil.copytree(folder / "1", tmp_path / "3")
        (tmp_path / "3" / "saved_model.pb").write_bytes(b"nonsense")
        (tmp_path / "3").rename(folder / "3")
        wait(lambda: states(server).get("3") == "END")
        assert states(server)["2"] == "AVAILABLE"
        (broken, *_) = server.ask("GET", MODEL).body["model_version_status"]
        assert broken["status"]["error_code"] == "UNKNOWN"
        assert "saved_model.pb is damaged" in broken["status"]["error_message"]
        assert going_on.result() > 0


def states(server, part=""):
    entries = server.ask("GET", MODEL + part).body["model_version_status"]
    return {entry["version"]: entry["state"] for entry in entries}


def _ask_until(server, versions):
    """Asks until there are three versions; every answer must be right."""
    number = 0
    while len(versions()) < 3:
        assert server.predict({"instances": ["one two"]}).body["predictions"][0]["translation"] == "dos uno"
        number += 1
    return number


def test_models_are_not_reloaded_over_grpc_unless_that_is_allowed(served, plain_export_folder):
    with grpc.insecure_channel(served.grpc_address) as channel:
        request = model_management_pb2.ReloadConfigRequest()
        request.config.model_config_list.config.add(name="digits", base_path=str(plain_export_folder))
        refused = model_service_pb2_grpc.ModelServiceStub(channel).HandleReloadConfigRequest(request, timeout=60)
        assert refused.status.error_code == grpc.StatusCode.PERMISSION_DENIED.value[0]
        assert "--allow-reload" in refused.status.error_message
    assert served.ask("GET", "/v1/models").body == {"models": ["numbers"]}


def test_models_can_be_reloaded_over_grpc_with_a_token_of_its_own(plain_export_folder):
    settings = small(plain_export_folder, reload=ReloadSettings([plain_export_folder], "secret"))
    with running(settings) as server, grpc.insecure_channel(server.grpc_address) as channel:
        stub = model_service_pb2_grpc.ModelServiceStub(channel)
        assert server.predict({"instances": ["one"]}).status == 200
        request = model_management_pb2.ReloadConfigRequest()
        request.config.model_config_list.config.add(name="digits", base_path=str(plain_export_folder))
        with pytest.raises(grpc.RpcError) as unknown:
            stub.HandleReloadConfigRequest(request, timeout=60)
        assert unknown.value.code() == grpc.StatusCode.UNAUTHENTICATED
        token = (("authorization", "Bearer secret"),)
        assert stub.HandleReloadConfigRequest(request, timeout=60, metadata=token).status.error_code == 0
        assert server.ask("GET", "/v1/models").body == {"models": ["digits"]}
        assert server.predict({"instances": ["one"]}, model="digits").body["predictions"][0]["translation"] == "uno"
        wait(lambda: 'model="numbers"' not in server.metrics())
        request.config.model_config_list.config.add(name="more", base_path=str(plain_export_folder / "nothing"))
        refused = stub.HandleReloadConfigRequest(request, timeout=60, metadata=token).status
        assert "No version could be loaded of: more" in refused.error_message
        assert refused.error_code == grpc.StatusCode.FAILED_PRECONDITION.value[0]
        assert server.ask("GET", "/v1/models").body == {"models": ["digits"]}
        empty = model_management_pb2.ReloadConfigRequest()
        wrong = stub.HandleReloadConfigRequest(empty, timeout=60, metadata=token).status
        assert wrong.error_code == grpc.StatusCode.INVALID_ARGUMENT.value[0]


def model_list(**folders):
    """A file of models."""
    configs = " ".join(f'config {{ name: "{name}" base_path: "{folder}" }}' for name, folder in folders.items())
    return f"model_config_list {{ {configs} }}"


def test_the_metrics_show_what_is_served_and_the_file_of_the_models_is_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(served_model, "SECONDS_SHOWN", 0.0)
    for name in ("a", "b"):
        typed_model.save(tmp_path / name / "1")
    file = ModelConfigFile(tmp_path / "models.config")
    file.path.write_text(model_list(a=tmp_path / "a"))
    settings = ServerSettings(
        file.models(),
        rest_port=0,
        grpc_port=0,
        poll_seconds=0.01,
        model_config_file=file,
        model_config_poll_seconds=0.01,
    )
    counted = 'kformer_requests_total{code="OK",model="a"} 1.0'
    with running(settings) as server:
        assert server.predict({"instances": ["x"]}, model="a").body == {"predictions": ["x"]}
        typed_model.save(tmp_path / "new" / "2")
        (tmp_path / "new" / "2").rename(tmp_path / "a" / "2")
        wait(lambda: 'kformer_version_state{model="a",version="2"} 30.0' in server.metrics())
        wait(lambda: 'kformer_version_state{model="a",version="1"}' not in server.metrics())
        assert counted in server.metrics()  # of the model, not of a version
        file.path.write_text(model_list(b=tmp_path / "b"))
        wait(lambda: 'kformer_version_state{model="b",version="1"} 30.0' in server.metrics())
        wait(lambda: 'model="a"' not in server.metrics())


def test_a_model_that_reads_files_is_served_where_it_is_trusted(tmp_path):
    foreign_models.reading(tmp_path / "m" / "1")
    (tmp_path / "words").write_text("some words")
    settings = ServerSettings([ModelSettings("m", tmp_path / "m")], rest_port=0, grpc_port=0, poll_seconds=0.01)
    body = {"instances": [str(tmp_path / "words")]}
    with running(dataclasses.replace(settings, trust=True)) as server:
        assert server.predict(body, model="m").body == {"predictions": ["some words"]}
    with running(settings, until_ready=False) as server:
        wait(lambda: server.predict(body, model="m").status == 404)  # it is not being loaded any more


# The end


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_stops_the_server_and_a_second_one_would_end_it_at_once(number, monkeypatch):
    missed, while_it_stops = [], []

    def miss(*_):
        missed.append(number)
        server.stop()

    async def noted_stop(rpc, seconds):
        while_it_stops.append(signal.getsignal(number))
        await stop(rpc, seconds)

    stop = GrpcServer.stop
    monkeypatch.setattr(GrpcServer, "stop", noted_stop)
    server = Server(ServerSettings([], rest_port=0, grpc_port=0))
    before = signal.signal(number, miss)
    try:
        assert server.run(lambda _: os.kill(os.getpid(), number)) is False  # no thread is at work any more
    finally:
        signal.signal(number, before)
    assert missed == []
    assert while_it_stops == [signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL]


def test_under_nohup_a_closed_terminal_does_not_stop_the_server():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    heard = []

    def note(server):
        heard.append(signal.getsignal(signal.SIGHUP))
        server.stop()

    try:
        Server(ServerSettings([], rest_port=0, grpc_port=0)).run(note)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert heard == [signal.SIG_IGN]


def test_stopping_answers_what_has_arrived(plain_export_folder):
    waiting = Batching(batch_timeout_micros=2_000_000)  # for company
    texts, expected = ["one two"] * 3, ["dos uno"] * 3
    with (
        running(small(plain_export_folder, batching=waiting)) as server,
        concurrent.futures.ThreadPoolExecutor(8) as pool,
    ):
        asked = [pool.submit(server.predict, {"instances": texts}) for _ in range(4)]
        called = [pool.submit(grpc_predict, server.grpc_address, text=texts) for _ in range(4)]
        wait(lambda: "kformer_waiting_texts 24.0" in server.metrics())
        server.server.stop()
        for answer in asked:
            assert [row["translation"] for row in answer.result().body["predictions"]] == expected
        for response in called:
            assert tf.make_ndarray(response.result().outputs["translation"]).astype(str).tolist() == expected


def test_probes_over_grpc_hear_that_a_server_stops_while_it_answers_what_has_arrived(plain_export_folder, monkeypatch):
    monkeypatch.setattr(grpc_server, "HOLD_SECONDS", 0.5)
    serving = health_pb2.HealthCheckResponse.ServingStatus
    with running(small(plain_export_folder)) as server, grpc.insecure_channel(server.grpc_address) as channel:
        check = health_pb2_grpc.HealthStub(channel).Check
        assert check(health_pb2.HealthCheckRequest(), timeout=30).status == serving.SERVING
        server.server.stop()
        wait(lambda: not server.server.is_ready())
        assert check(health_pb2.HealthCheckRequest(), timeout=30).status == serving.NOT_SERVING


def test_the_log_has_no_texts_of_users(served, caplog):
    import logging

    with caplog.at_level(logging.DEBUG, "kformer.serving"):
        served.predict({"instances": ["one secret"]})
        served.predict({"instances": [["one secret"]]})
    lines = [json.dumps({"event": record.getMessage(), **getattr(record, "fields", {})}) for record in caplog.records]
    predicted, refused = [dict(record.fields) for record in caplog.records]
    assert predicted.pop("seconds") > 0
    assert predicted == {"protocol": "rest", "model": "numbers", "version": 1, "signature": "serving_default"}
    assert refused == {"code": "INVALID_ARGUMENT", "path": f"{MODEL}:predict"}
    assert not [line for line in lines if "secret" in line]
