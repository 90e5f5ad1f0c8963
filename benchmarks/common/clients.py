"""Clients that ask a server all the time, over REST and gRPC, and compare every answer with the right one."""

import collections
import dataclasses
import http.client
import itertools
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from benchmarks.common.server import Served

PAUSE = 0.01  # seconds between two requests of a client
PATIENCE = 60.0  # seconds until a client gives up
GRPC_OPTIONS = [("grpc.min_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 200)]


class Refused(Exception):
    """The server refused a request.

    Args:
        code: HTTP's status or gRPC's code.
    """

    def __init__(self, code: object) -> None:
        super().__init__(str(code))
        self.code = str(code)


@dataclasses.dataclass
class Request:
    """The outcome of a request; its times are those of `time.monotonic`."""

    began: float
    ended: float
    refused: str = ""  # the code of the refusal
    failed: str = ""  # the error, if there was no answer
    wrong: str = ""  # the wrong answer

    @property
    def is_right(self) -> bool:
        return not (self.refused or self.failed or self.wrong)


class Clients:
    """Threads that ask until the end of the `with` block.

    Args:
        server: The server that they ask.
        answers: The right translation of each text.
        rest: How many ask over REST, each on one connection.
        grpc: How many ask over gRPC.
    """

    def __init__(self, server: Served, answers: Mapping[str, str], rest: int = 4, grpc: int = 2) -> None:
        self._answers = dict(answers)
        self._done = threading.Event()
        self.requests: collections.deque[Request] = collections.deque()
        kinds = [RestClient] * rest + [GrpcClient] * grpc
        self._threads = [
            threading.Thread(target=self._ask, args=[kind(server), number]) for number, kind in enumerate(kinds)
        ]

    def __enter__(self) -> "Clients":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()

    def right_after(self, moment: float) -> float | None:
        """When the first right answer came to a request that was sent after a moment."""
        return min(
            (entry.ended for entry in list(self.requests) if entry.began > moment and entry.is_right), default=None
        )

    def _ask(self, client: "RestClient | GrpcClient", number: int) -> None:
        texts = itertools.islice(itertools.cycle(self._answers), number * 7, None)
        while not self._done.wait(PAUSE):
            text = next(texts)
            self.requests.append(timed(lambda text=text: client.translate([text]), [self._answers[text]]))
        client.close()


def timed(translate: Callable[[], list[str]], right: list[str]) -> Request:
    """Sends a request and compares its answer with the right one."""
    request = Request(time.monotonic(), 0.0)
    try:
        found = translate()
        request.wrong = "" if found == right else repr(found)
    except Refused as refused:
        request.refused = refused.code
    except (OSError, http.client.HTTPException, ValueError) as error:
        request.failed = type(error).__name__
    request.ended = time.monotonic()
    return request


class RestClient:
    """Asks over one connection, and over a new one when that has broken."""

    def __init__(self, server: Served) -> None:
        self._server = server
        self._connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=PATIENCE)

    def translate(self, texts: list[str], signature: str = "serving_default") -> list[str]:
        body = json.dumps({"instances": texts, "signature_name": signature})
        try:
            self._connection.request("POST", f"/v1/models/{self._server.name}:predict", body)
            answer = self._connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            raise
        self.headers = dict(answer.headers)
        self.error = "" if answer.status == 200 else json.loads(content)["error"]
        if answer.status != 200:
            raise Refused(answer.status)
        return [row["translation"] for row in json.loads(content)["predictions"]]

    def close(self) -> None:
        self._connection.close()


class GrpcClient:
    """Asks over a channel.

    Args:
        server: The server.
        options: Further options of the channel. Channels with the same options share a connection.
    """

    def __init__(self, server: Served, options: Sequence[tuple[str, int]] = ()) -> None:
        self._name = server.name
        self._channel = grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}", [*GRPC_OPTIONS, *options])
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)

    def translate(self, texts: list[str]) -> list[str]:
        try:
            answer = self._stub.Predict(self.request(texts), timeout=PATIENCE)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNAVAILABLE and "again later" not in error.details():
                raise ConnectionError(error.details()) from error
            raise Refused(error.code().name) from error
        return self.read(answer)

    def read(self, answer: predict_pb2.PredictResponse) -> list[str]:
        return [text.decode() for text in tf.make_ndarray(answer.outputs["translation"])]

    def request(self, texts: list[str]) -> predict_pb2.PredictRequest:
        request = predict_pb2.PredictRequest()
        request.model_spec.name = self._name
        request.inputs["text"].CopyFrom(tf.make_tensor_proto(texts))
        return request

    def begin(self, texts: list[str]) -> grpc.Future:
        """Begins a call, which can be cancelled."""
        return self._stub.Predict.future(self.request(texts), timeout=PATIENCE)

    def close(self) -> None:
        self._channel.close()
