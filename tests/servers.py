"""Servers in this process, for tests."""

import contextlib
import gzip
import http.client
import json
import shutil
import socket
import threading
import time
from typing import NamedTuple

import grpc
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc


def without_warm_up(base, target):
    """A copy of an export's base folder without its requests of a warm-up, which takes longer than most tests."""
    return shutil.copytree(base, target, ignore=shutil.ignore_patterns("assets.extra"))


class Answer(NamedTuple):
    status: int
    body: object  # parsed, where it is JSON
    headers: dict


class Running:
    """A server that runs in a thread."""

    def __init__(self, server):
        self.server = server

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.rest_port}"

    @property
    def grpc_address(self):
        return f"127.0.0.1:{self.server.grpc_port}"

    def ask(self, method, path, body=None, headers=None):
        """One request; `body` is bytes, or a value that becomes JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.rest_port, timeout=60)
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, data, headers or {})
            answer = connection.getresponse()
            content = answer.read()
            if answer.headers.get("content-encoding") == "gzip":
                content = gzip.decompress(content)
            is_json = answer.headers.get("content-type", "").startswith("application/json")
            return Answer(answer.status, json.loads(content) if is_json and content else content, dict(answer.headers))
        finally:
            connection.close()

    def connect(self, port=None):
        """A connection, for what no client library would do; by default to REST."""
        return socket.create_connection(("127.0.0.1", port or self.server.rest_port), timeout=10)

    def metrics(self):
        return self.ask("GET", "/monitoring/prometheus/metrics").body.decode()

    def predict(self, body, model="numbers", headers=None):
        return self.ask("POST", f"/v1/models/{model}:predict", body, headers)


def grpc_predict(address, model="numbers", signature="", version=None, timeout=60, metadata=(), outputs=(), **inputs):
    """The answer to one call, whose `inputs` are arrays or tensors in protobuf."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    request.model_spec.signature_name = signature
    request.output_filter.extend(outputs)
    if version is not None:
        request.model_spec.version.value = version
    for name, value in inputs.items():
        value = value if isinstance(value, tensor_pb2.TensorProto) else tf.make_tensor_proto(value)
        request.inputs[name].CopyFrom(value)
    with grpc.insecure_channel(address) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        return stub.Predict(request, timeout=timeout, metadata=metadata)


def small(folder, **settings):
    """Settings of a server with these settings, over one model, on ports that are free."""
    from kformer.serving.model_settings import ModelSettings
    from kformer.serving.settings import ServerSettings

    return ServerSettings([ModelSettings("numbers", folder)], rest_port=0, grpc_port=0, **settings)


def wait(condition):
    """Waits until a condition is true."""
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("It did not happen within a minute.")


@contextlib.contextmanager
def running(settings, until_ready=True):
    """A server with these settings, once every model has a version that answers, or at once."""
    from kformer.serving.server import Server

    server, started = Server(settings), threading.Event()
    thread = threading.Thread(target=server.run, args=[lambda _: started.set()])
    thread.start()
    try:
        assert started.wait(30)
        for _ in range(1200 if until_ready else 0):
            if server.is_ready():
                break
            threading.Event().wait(0.05)
        yield Running(server)
    finally:
        server.stop()
        thread.join(60)
        assert not thread.is_alive()
