"""`kformer.client.Client`, beside servers that are busy, late, away or of another kind."""

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import grpc
import pytest
from scripted_grpc import ScriptedGrpc
from scripted_rest import STRING, ScriptedRest

from kformer.client import Client, ServerError
from kformer.client.batches import answer_batch
from kformer.client.retries import LONGEST_WAIT, retries

pytestmark = pytest.mark.tensorflow_only
PROTOCOLS = ("rest", "grpc")


def free_port():
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return chosen.getsockname()[1]


@contextlib.contextmanager
def faulty(protocol, faults, **settings):
    """A client with short waits, and a server whose first answers are these: statuses of HTTP, or codes of gRPC."""
    if protocol == "grpc":
        server = ScriptedGrpc(faults)
    else:
        server = ScriptedRest([(code, '{"error": "the server\'s words"}') for code in faults])
    with server, Client(server.url, **{"backoff_factor": 0.01, **settings}) as client:
        yield client, server


BUSY = [("rest", code) for code in (429, 503, 504, None)] + [
    ("grpc", code)
    for code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.DEADLINE_EXCEEDED)
]


@pytest.mark.parametrize(("protocol", "fault"), BUSY, ids=str)
def test_a_busy_server_is_asked_again(protocol, fault):
    with faulty(protocol, [fault] * 3) as (client, server):
        assert client.translate(["one"]) == ["ONE"]
        assert len(server.requests) == 4 + (protocol == "rest")  # and the metadata


@pytest.mark.parametrize(
    ("protocol", "fault", "code"),
    [("rest", 503, 503), ("rest", 429, 429), ("rest", None, 503), ("grpc", grpc.StatusCode.UNAVAILABLE, 503)],
    ids=str,
)
def test_it_is_asked_no_more_often_than_tries(protocol, fault, code):
    with faulty(protocol, [fault] * 9, tries=3) as (client, server):
        with pytest.raises(ServerError) as gave_up:
            client.translate(["one"])
        assert (gave_up.value.code, len(server.requests)) == (code, 3)
        assert gave_up.value.is_answer == (fault is not None)
        assert fault is None or "the server's words" in str(gave_up.value)


WRONG = [("rest", code, code) for code in (301, 400, 401, 403, 404, 413, 500)] + [
    ("grpc", grpc.StatusCode.INVALID_ARGUMENT, 400),
    ("grpc", grpc.StatusCode.UNAUTHENTICATED, 401),
    ("grpc", grpc.StatusCode.PERMISSION_DENIED, 403),
    ("grpc", grpc.StatusCode.NOT_FOUND, 404),
    ("grpc", grpc.StatusCode.INTERNAL, 500),
    ("grpc", grpc.StatusCode.UNKNOWN, 500),
    ("grpc", grpc.StatusCode.FAILED_PRECONDITION, 400),
    ("grpc", grpc.StatusCode.OUT_OF_RANGE, 400),
    ("grpc", grpc.StatusCode.ABORTED, 409),
    ("grpc", grpc.StatusCode.UNIMPLEMENTED, 501),
]


@pytest.mark.parametrize(("protocol", "fault", "code"), WRONG, ids=str)
def test_a_server_that_refuses_is_not_asked_again(protocol, fault, code):
    with faulty(protocol, [fault] * 2) as (client, server):
        with pytest.raises(ServerError, match="the server's words") as refused:
            client.translate(["one"])
        assert (refused.value.code, len(server.requests)) == (code, 1)


def test_the_waits_double_and_differ_by_client():
    policy, waits = retries(tries=9, backoff_factor=1.0), []
    for _ in range(8):
        policy = policy.increment()
        waits.append(policy.get_backoff_time())
    assert [int(wait) for wait in waits] == [0, 2, 4, 8, 16, 32, 60, 60]  # never more than a minute
    assert waits[1] != 2.0


def test_what_a_server_asks_to_wait_is_added_to_the_usual_wait(monkeypatch):
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    policy = retries(tries=3, backoff_factor=1.0).increment().increment()
    policy.sleep(SimpleNamespace(headers={"Retry-After": "7"}))
    asked, usual = slept
    assert asked == 7
    assert 2 <= usual < 3


def test_a_server_says_how_long_to_wait_but_not_for_hours():
    answers = [(429, "{}", {"Retry-After": "1"}), (413, '{"error": "too large"}', {"Retry-After": "1"})]
    with ScriptedRest(answers) as server, Client(server.url, backoff_factor=0.0) as client:
        began = time.monotonic()
        with pytest.raises(ServerError, match="answers 413: too large"):  # which a wait does not mend
            client.translate("one")
        assert 1 <= time.monotonic() - began < 2
        assert len(server.requests) == 2


@pytest.mark.parametrize(("given", "waited"), [("86400", LONGEST_WAIT), ("7", 7), ("-5", None), ("soon", None)])
def test_only_a_number_of_seconds_or_a_date_is_waited_for(given, waited):
    answer = SimpleNamespace(headers={"Retry-After": given})
    assert retries(tries=2, backoff_factor=1.0).get_retry_after(answer) == waited


@pytest.mark.parametrize("tags", [["<2es>"], "<2es>"])
def test_what_holds_for_all_texts_goes_with_each_request(tags):
    with ScriptedRest() as server, Client(server.url, batch_size=2) as client:
        found = client.predict("serving_default", {"text": ["a", "b", "c", "d", "e"], "tag": tags})
    assert [text.decode() for text in found["translation"]] == ["A", "B", "C", "D", "E"]
    sent = [body["inputs"] for body in server.predictions]
    assert [one["text"] for one in sent] == [["a", "b"], ["c", "d"], ["e"]]
    assert [one["tag"] for one in sent] == [tags] * 3


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_server_that_is_still_starting_is_waited_for(protocol):
    port, started = free_port(), []
    path = "v1/models/m" if protocol == "rest" else "m"
    kinds = {"rest": ("http", ScriptedRest), "grpc": ("grpc", ScriptedGrpc)}
    scheme, kind = kinds[protocol]
    timer = threading.Timer(0.3, lambda: started.append(kind(port=port)))
    timer.start()
    try:
        with Client(f"{scheme}://127.0.0.1:{port}/{path}", backoff_factor=0.1) as client:
            assert client.translate("one") == "ONE"
    finally:
        timer.join()
        started[0].__exit__()


@pytest.mark.parametrize("url", ["http://127.0.0.1:{}/v1/models/m", "grpc://127.0.0.1:{}/m"])
def test_a_server_that_stays_away_is_told(url):
    url = url.format(free_port())
    client = Client(url, tries=2, backoff_factor=0.01)
    with client, pytest.raises(ServerError, match=f"{url} .*Connection refused") as away:
        client.translate("one")
    assert away.value.code == 503
    assert not away.value.is_answer


@pytest.mark.parametrize(
    ("status", "body", "is_answer", "told"),
    [
        (503, '{"error": "the queue is full"}', True, "the queue is full"),
        (503, "<h1>no server is up</h1>", False, "<h1>no server is up</h1>"),
        (503, "", False, "without a reason"),
        (429, "", True, "without a reason"),
    ],
    ids=["the server", "a proxy", "nobody", "too many requests"],
)
def test_what_a_proxy_says_in_place_of_a_server_is_not_the_word_of_the_server(status, body, is_answer, told):
    with ScriptedRest([(status, body)]) as server, Client(server.url, tries=1) as client:
        with pytest.raises(ServerError) as refused:
            client.translate("one")
        assert str(refused.value) == f"{server.url} answers {status}: {told}"
        assert refused.value.is_answer == is_answer


def test_a_request_beyond_the_largest_message_of_grpc_is_too_large():
    """By this code, others ask for each of its texts alone."""
    with ScriptedGrpc(largest=500) as server, Client(server.url) as client:
        with pytest.raises(ServerError) as refused:
            client.translate("one" * 300)
        assert refused.value.code == 413
        assert client.translate("one" * 100) == "ONE" * 100


MORTAL = """
import concurrent.futures, os, signal
import grpc

def die(request, context):
    os.kill(os.getpid(), signal.SIGKILL)

server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
methods = {"Predict": grpc.unary_unary_rpc_method_handler(die)}
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("tensorflow.serving.PredictionService", methods)])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
print(port, flush=True)
server.wait_for_termination()
"""


def test_a_server_that_a_request_kills_has_not_said_that_it_is_busy():
    """A job asks a busy server again, and one that dies only once more."""
    with subprocess.Popen([sys.executable, "-c", MORTAL], stdout=subprocess.PIPE) as server:
        client = Client(f"grpc://127.0.0.1:{int(server.stdout.readline())}/m", tries=1)
        with client, pytest.raises(ServerError) as died:
            client.translate("one")
        assert (died.value.code, died.value.is_answer) == (503, False)


def test_an_answer_that_takes_too_long_is_asked_for_again():
    late = (200, "{}", 1.5)
    with ScriptedRest([late]) as server, Client(server.url, timeout=0.5) as client:
        assert client.translate("one") == "ONE"
        assert len(server.predictions) >= 2
    with ScriptedRest([late]) as server, Client(server.url, timeout=0.5, tries=1) as client:
        with pytest.raises(ServerError, match="does not answer: .*Read timed out") as gave_up:
            client.translate("one")
        assert gave_up.value.code == 504


def test_a_redirection_is_not_followed():
    with ScriptedRest([(301, "moved", {"Location": "/elsewhere"})]) as server, Client(server.url) as client:
        with pytest.raises(ServerError, match="answers 301: moved"):
            client.translate("one")
        assert len(server.requests) == 1


def test_a_grpc_answer_that_takes_too_long_is_asked_for_again():
    slow = threading.Event()

    class Slow(ScriptedGrpc):
        def Predict(self, request, context):
            if not self.requests:
                self.requests.append(request)
                slow.wait(1.5)
            return super().Predict(request, context)

    with Slow() as server, Client(server.url, timeout=0.5) as client:
        assert client.translate("one") == "ONE"
    with Slow() as server, Client(server.url, timeout=0.5, tries=1) as client:
        with pytest.raises(ServerError, match="answers DEADLINE_EXCEEDED") as gave_up:
            client.translate("one")
        assert gave_up.value.code == 504


PREDICTIONS = {
    "a number for a text": '{"outputs": {"translation": [3], "score": [0.5]}}',
    "null for a text": '{"outputs": {"translation": [null], "score": [0.5]}}',
    "null for a score": '{"outputs": {"translation": ["ONE"], "score": [null]}}',
    "a word for a score": '{"outputs": {"translation": ["ONE"], "score": ["x"]}}',
    "a large score": '{"outputs": {"translation": ["ONE"], "score": [1%s]}}' % ("0" * 500),
    "no base64": '{"outputs": {"translation": [{"b64": "!"}], "score": [0.5]}}',
    "another key": '{"outputs": {"translation": [{"c64": ""}], "score": [0.5]}}',
    "two answers to one text": '{"outputs": {"translation": ["ONE", "TWO"], "score": [0.5, 0.5]}}',
    "no answer": '{"outputs": {"translation": [], "score": []}}',
    "one score too few": '{"outputs": {"translation": ["ONE"], "score": []}}',
    "deep": "[" * 100_000,
}
DESCRIPTIONS = {
    "nothing": '{"metadata": {}}',
    "a list": '{"metadata": []}',
    "null": '{"metadata": {"signature_def": null}}',
    "no outputs": '{"metadata": {"signature_def": {"signature_def": {"serving_default": {"outputs": null}}}}}',
    "a text": '{"metadata": {"signature_def": {"signature_def": {"serving_default": "x"}}}}',
    "deep": '{"metadata":' + "[" * 100_000,
}


@pytest.mark.parametrize("answer", PREDICTIONS.values(), ids=PREDICTIONS)
def test_an_odd_answer_is_told_by_its_address(answer):
    with ScriptedRest() as server, Client(server.url) as client:
        ask = answer_batch(client)
        ask([b"one"])
        server.answers.append((200, answer))
        with pytest.raises(ServerError, match=f"{server.url} does not answer like TensorFlow Serving"):
            ask([b"one"])


@pytest.mark.parametrize("metadata", DESCRIPTIONS.values(), ids=DESCRIPTIONS)
def test_an_odd_description_is_told_by_its_address(metadata):
    told = "http://.* does not answer like TensorFlow Serving"
    with (
        ScriptedRest([(200, metadata)]) as server,
        Client(server.url) as client,
        pytest.raises(ServerError, match=told),
    ):
        answer_batch(client)


@pytest.mark.parametrize("dtype", ["DT_BOOL", "DT_FLOAT"])
def test_null_in_place_of_a_number_is_no_number(dtype):
    signature = {"inputs": {"text": STRING}, "outputs": {"found": {"dtype": dtype}}}
    metadata = json.dumps({"metadata": {"signature_def": {"signature_def": {"serving_default": signature}}}})
    with ScriptedRest([(200, metadata)]) as server, Client(server.url) as client:
        client.metadata()
        server.answers += [(200, '{"outputs": [null]}'), (200, metadata)]
        with pytest.raises(ServerError, match="does not answer like TensorFlow Serving"):
            client.predict("serving_default", {"text": ["one"]})
