"""Clients of `kformer serve` that do not do what clients should: they begin and do not go on, do not read, or leave."""

import json
import time

import grpc
import pytest
from servers import grpc_predict, running, small, wait

from benchmarks.common import http2
from kformer.serving.model_settings import Batching
from kformer.serving.settings import Limits

pytestmark = pytest.mark.tensorflow_only
MODEL = "/v1/models/numbers"


@pytest.fixture(scope="module")
def impatient(plain_export_folder):
    """A server that gives everything one second."""
    with running(small(plain_export_folder, limits=Limits(seconds=1))) as server:
        yield server


def request(*texts):
    """A predict request as it stands on the wire: headers and body."""
    body = json.dumps({"instances": texts}).encode()
    return f"POST {MODEL}:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode(), body


def everything(connection):
    """All that comes until the server closes the connection."""
    return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.mark.parametrize(
    "sent", [b"", b"POST /v1/models/numbers:pre", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: "]
)
def test_a_connection_whose_headers_do_not_arrive_in_time_is_closed(impatient, sent):
    with impatient.connect() as connection:
        connection.sendall(sent)
        began = time.monotonic()
        assert everything(connection) == b""
        assert 0.5 < time.monotonic() - began < 5


def test_headers_that_arrive_in_parts_are_waited_for(impatient):
    with impatient.connect() as connection:
        for part in (b"GET /hea", b"lthz HTTP/1.1\r\nHo", b"st: x\r\n\r\n") * 2:  # two requests
            connection.sendall(part)
            time.sleep(0.3)
        assert everything(connection).count(b"HTTP/1.1 200") == 2


def test_large_headers_are_read_also_in_parts(impatient):
    cookie = b"Cookie: " + b"a" * 30_000
    with impatient.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + cookie)
        time.sleep(0.1)
        connection.sendall(b"\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_bodies_do_not_count_as_headers_of_the_next_request(plain_export_folder):
    head, body = request("one")
    body = body.ljust(60_000)
    head = head.replace(b"Content-Length: ", b"Content-Length: 60000\r\nX-Was: ")
    with running(small(plain_export_folder)) as server, server.connect() as connection:
        for _ in range(2):
            connection.sendall(head + body)
            answer = b""
            while b'"uno"}]}' not in answer:
                answer += connection.recv(65536)
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost:")
        time.sleep(0.1)
        connection.sendall(b" x\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_headers_without_end_are_refused(impatient):
    with impatient.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nX-A: " + b"a" * 70_000)  # and there is more to come
        assert connection.recv(65536).startswith(b"HTTP/1.1 400")


def test_half_a_body_is_given_up_in_time(impatient):
    head, body = request("one")
    with impatient.connect() as connection:
        connection.sendall(head + body[:5])
        answer = everything(connection)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"did not arrive in time" in answer


def test_the_time_that_a_body_takes_to_arrive_counts(plain_export_folder):
    batching = Batching(batch_timeout_micros=5_000_000)  # beyond the limit: every answer comes too late
    settings = small(plain_export_folder, limits=Limits(seconds=2), batching=batching)
    head, body = request("one")
    with running(settings) as server, server.connect() as connection:
        began = time.monotonic()
        connection.sendall(head)
        time.sleep(1.5)
        connection.sendall(body)
        assert connection.recv(65536).startswith(b"HTTP/1.1 504")
        assert 1.9 < time.monotonic() - began < 3


def test_half_a_message_over_grpc_is_given_up_in_time(impatient):
    assert b"The request did not arrive in time." in _told_for_half_a_message(impatient)


def _told_for_half_a_message(server):
    with server.connect(server.server.grpc_port) as connection:
        connection.sendall(http2.predict_call("numbers")[:-5])
        answer = b""
        while b"grpc-message" not in answer:
            answer += connection.recv(65536)
    return answer


@pytest.mark.parametrize("method", ["PredictionService/Predict", "ModelService/GetModelStatus"])
def test_bytes_that_are_no_message_are_refused_and_make_no_noise(impatient, method, caplog):
    with grpc.insecure_channel(impatient.grpc_address) as channel:
        call = channel.unary_unary(f"/tensorflow.serving.{method}")  # which sends bytes as they are
        with pytest.raises(grpc.RpcError) as refused:
            call(b"\xff\xff", timeout=30)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert f"no message that /tensorflow.serving.{method} takes" in refused.value.details()
    assert not [record for record in caplog.records if record.exc_info]


def test_a_connection_to_grpc_that_says_nothing_is_closed(impatient):
    with impatient.connect(impatient.server.grpc_port) as connection:
        connection.sendall(http2.PREFACE[:10])
        assert b"handshake timeout" in everything(connection)


def test_what_a_client_that_has_gone_asked_for_is_not_computed(plain_export_folder):
    with running(small(plain_export_folder, batching=Batching(batch_timeout_micros=1_000_000))) as server:
        with server.connect() as connection:
            connection.sendall(b"".join(request("two", "two", "two")))
            wait(lambda: "kformer_waiting_texts 3.0" in server.metrics())
        with pytest.raises(grpc.RpcError, match="DEADLINE_EXCEEDED"):
            grpc_predict(server.grpc_address, text=["three"] * 5, timeout=0.3)
        assert server.predict({"instances": ["one two"]}).body["predictions"][0]["translation"] == "dos uno"
        page = server.metrics()
    assert 'kformer_batch_texts_sum{model="numbers",signature="serving_default"} 1.0' in page
    assert 'kformer_requests_total{code="CANCELLED",model="numbers"}' in page
    assert "kformer_waiting_texts 0.0" in page


def test_a_client_that_has_gone_is_noticed_whatever_it_has_sent(cold_export_folder):
    patient = Batching(batch_timeout_micros=20_000_000)  # it waits 20 seconds for company
    head, body = request("one")
    large = head.replace(b"Content-Length: ", b"Content-Length: 200000\r\nX-Was: ") + body.ljust(200_000)
    limits = Limits(request_bytes=200_000)
    with running(small(cold_export_folder, batching=patient, limits=limits)) as server:
        for number, sent in enumerate((large, 2 * (head + body)), 1):
            with server.connect() as connection:
                connection.sendall(sent)
                wait(lambda: "kformer_waiting_texts 1.0" in server.metrics())
            cancelled = f'kformer_requests_total{{code="CANCELLED",model="numbers"}} {number}.0'
            wait(lambda cancelled=cancelled: cancelled in server.metrics())
        assert 'code="OK"' not in server.metrics()


def test_a_server_has_time_for_every_request_it_has_taken_when_it_is_stopped():
    assert small("numbers", limits=Limits(seconds=70)).drain_seconds > 70
