"""Clients of gRPC that call too often, do not end their calls or do not read, beside one that does all right."""

import asyncio
import collections
import contextlib
import itertools
import socket
import threading
import time
import types

import grpc
import pytest
from google.protobuf import descriptor_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from servers import wait
from tensorflow_serving.apis import get_model_status_pb2, model_service_pb2_grpc

from benchmarks.common import http2
from kformer.serving import grpc_server
from kformer.serving.grpc_calls import CallLimits
from kformer.serving.grpc_server import GrpcServer
from kformer.serving.grpc_service import client_address
from kformer.serving.rest_server import bound
from kformer.serving.settings import Limits, ServerSettings

pytestmark = pytest.mark.tensorflow_only
# Other codes are not tried again by clients; CANCELLED above all, by which a client means that it has cancelled itself.
TRIED_AGAIN = {"UNAVAILABLE", "RESOURCE_EXHAUSTED"}


@contextlib.contextmanager
def listening(make, opened=lambda server: server.add_insecure_port("127.0.0.1:0")):
    """The port of a server that `make` makes, by default one of `grpc.aio`. It runs in a thread, and ends in peace."""
    started, port, loop = threading.Event(), [], asyncio.new_event_loop()
    stop = asyncio.Event()

    async def run():
        server = make()
        port.append(opened(server))
        await server.start()
        started.set()
        await stop.wait()
        await server.stop(10)

    thread = threading.Thread(target=loop.run_until_complete, args=[run()])
    thread.start()
    try:
        assert started.wait(30)
        yield port[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        loop.close()


@contextlib.contextmanager
def without_models(is_ready=lambda: True, **settings):
    """The port of the gRPC side of a server that has no models, but answers each question for their status."""
    answerer = types.SimpleNamespace(manager=types.SimpleNamespace(status=lambda name, version: []))
    settings = ServerSettings([], grpc_port=0, **settings)
    with listening(lambda: GrpcServer(settings, answerer, is_ready), GrpcServer.open) as port:
        yield port


def connected(port):
    """A channel with a connection of its own: gRPC's channels share connections otherwise."""
    return grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1)])


def status(channel, **options):
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "numbers"
    return model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus.future(request, timeout=60, **options)


def raw(port, sent=http2.PREFACE + http2.SETTINGS):
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    connection.sendall(sent)
    return connection


def told(connection):
    """What comes over a connection up to the first message of an error."""
    received = b""
    while b"grpc-message" not in received:
        received += connection.recv(65536)
    return received


def code(call):
    error = call.exception()
    return "OK" if error is None else error.code().name


@contextlib.contextmanager
def neighbours(port):
    """Four clients that call one time after the other; the codes of what they are told."""
    codes, over = collections.Counter(), threading.Event()

    def ask():
        with connected(port) as channel:
            while not over.is_set():
                codes[code(status(channel))] += 1

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        wait(lambda: codes["OK"] > 4)
        yield codes
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_many_calls_at_once_do_not_cancel_those_of_others():
    with without_models() as port, neighbours(port) as codes, connected(port) as channel:
        burst = collections.Counter(map(code, [status(channel) for _ in range(1500)]))
    assert {*codes} == {"OK"}
    assert {*burst} <= {"OK", *TRIED_AGAIN}
    assert burst["OK"] > 64


@pytest.mark.parametrize(
    "one", [http2.call, lambda number: http2.call(number) + http2.reset(number)], ids=["half calls", "resets"]
)
def test_calls_that_are_not_ended_do_not_cancel_those_of_others(one):
    with without_models() as port, neighbours(port) as codes, raw(port) as connection:
        threading.Thread(target=_read, args=[connection], daemon=True).start()
        for number in range(10_000):
            connection.sendall(one(2 * number + 1))
        before = codes["OK"]
        wait(lambda: codes["OK"] > before + 20)
    assert {*codes} == {"OK"}


def test_no_call_is_cancelled_while_the_server_stops(monkeypatch):
    """Without care, about every third stop meets a call that has not been read or is on its way."""
    monkeypatch.setattr(grpc_server, "HOLD_SECONDS", 0.4)  # this machine may have much to do
    for _ in range(8):
        with contextlib.ExitStack() as clients, without_models() as port:  # which ends first
            codes = clients.enter_context(neighbours(port))
        assert {*codes} <= {"OK", "UNAVAILABLE"}


def test_an_answer_that_is_ready_waits_while_answers_are_held():
    async def answered():
        asked, may_answer = asyncio.Event(), asyncio.Event()

        async def compute(request, context):
            asked.set()
            await may_answer.wait()
            return f"answer to {request}"

        async def unlimited(details):
            return grpc.unary_unary_rpc_method_handler(compute)

        async def requests():
            yield "one"

        limits = CallLimits(seconds=30)
        handler = await limits.intercept_service(unlimited, types.SimpleNamespace(method="m"))
        context = types.SimpleNamespace(add_done_callback=lambda leave: None)
        call = asyncio.create_task(handler.stream_unary(requests(), context))
        await asked.wait()
        with limits.answers_held():
            may_answer.set()
            for _ in range(20):
                await asyncio.sleep(0)
            assert not call.done()
        return await call

    assert asyncio.run(answered()) == "answer to one"


def _read(connection):
    with contextlib.suppress(OSError):
        while connection.recv(65536):
            pass


def test_a_call_that_has_not_begun_to_arrive_gives_way():
    """Where three calls may be, the fourth takes the place of the first half one."""
    with listening(lambda: echo(CallLimits(30, most=3))) as port, connected(port) as channel, raw(port) as connection:
        connection.sendall(b"".join(http2.call(number, "/x/Echo") for number in (1, 3, 5)))
        time.sleep(0.3)  # they have come
        assert channel.unary_unary("/x/Echo")(b"hello", timeout=20) == b"hello"
        assert b"The server is busy" in told(connection)
        assert channel.unary_unary("/x/Echo")(b"hello", timeout=20) == b"hello"  # only two half ones are left


def test_the_call_that_has_waited_longest_gives_way():
    with (
        listening(lambda: echo(CallLimits(30, most=2))) as port,
        connected(port) as channel,
        raw(port) as first,
        raw(port) as second,
    ):
        for connection in (first, second):
            connection.sendall(http2.call(1, "/x/Echo"))
            time.sleep(0.3)  # it has come
        assert channel.unary_unary("/x/Echo")(b"hello", timeout=20) == b"hello"
        first.settimeout(5)
        assert b"The server is busy" in told(first)


def test_a_call_that_ends_without_a_message_is_refused():
    with listening(lambda: echo(CallLimits(30))) as port, connected(port) as channel:
        with pytest.raises(grpc.RpcError, match="The call ended without a request") as refused:
            channel.stream_unary("/x/Echo")(iter([]), timeout=20)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_a_new_call_is_taken_where_the_time_of_the_oldest_has_just_ended():
    async def handler(details):
        async def answer(request, context):
            return request

        return grpc.unary_unary_rpc_method_handler(answer)

    async def requests(*sent):
        for request in sent:
            yield request
        await asyncio.sleep(10)

    async def abort(code, message):
        raise RuntimeError(message)

    async def answers():
        limits = CallLimits(0, most=1)
        call = (await limits.intercept_service(handler, types.SimpleNamespace(method="/x/Echo"))).stream_unary
        context = types.SimpleNamespace(add_done_callback=lambda leave: None, abort=abort)
        oldest = asyncio.create_task(call(requests(), context))
        for _ in range(2):  # it begins; its time ends, and it has not noticed
            await asyncio.sleep(0)
        return await call(requests(b"hello"), context), await asyncio.gather(oldest, return_exceptions=True)

    answer, (late,) = asyncio.run(answers())
    assert answer == b"hello"
    assert str(late) == "The request did not arrive in time."


@pytest.mark.parametrize(
    ("peer", "address"),
    [("ipv4:1.2.3.4:567", "1.2.3.4"), ("ipv6:%5B::1%5D:567", "::1"), ("ipv6:[::1]:567", "::1"), ("unix:", "")],
)
def test_a_client_has_the_same_address_as_over_rest(peer, address):
    assert client_address(peer) == address


def test_both_protocols_can_listen_on_ipv6():
    with socket.socket(socket.AF_INET6) as chosen:
        try:
            chosen.bind(("::1", 0))
        except OSError:
            pytest.skip("This machine has no IPv6.")
    with bound("::1", 0) as rest:
        assert rest.getsockname()[0] == "::1"
    with without_models(host="::1") as port, grpc.insecure_channel(f"[::1]:{port}") as channel:
        assert code(status(channel)) == "OK"


def test_a_call_too_many_is_refused_while_others_are_answered():
    with listening(lambda: echo(CallLimits(30, most=3))) as port, connected(port) as channel:
        call = channel.unary_unary("/x/Echo")
        waiting = [call.future(b"wait", timeout=20) for _ in range(3)]
        time.sleep(0.3)  # they have come
        with pytest.raises(grpc.RpcError, match="Send the request again later") as refused:
            call(b"hello", timeout=20)
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert [answer.result() for answer in waiting] == [b"wait"] * 3
        assert call(b"hello", timeout=20) == b"hello"


def echo(limits):
    """A server that gives back what it gets, "wait" after a second."""

    async def answer(request, context):
        await asyncio.sleep(1 if request == b"wait" else 0)
        return request

    handlers = {"Echo": grpc.unary_unary_rpc_method_handler(answer)}
    return grpc.aio.server(handlers=[grpc.method_handlers_generic_handler("x", handlers)], interceptors=[limits])


def test_connections_beyond_the_limit_are_closed_at_once(monkeypatch):
    monkeypatch.setattr(grpc_server, "MOST_CONNECTIONS", 4)
    with without_models() as port, contextlib.ExitStack() as stack:
        for _ in range(4):
            assert stack.enter_context(raw(port)).recv(1) != b""  # its settings
        with socket.create_connection(("127.0.0.1", port), timeout=10) as refused:
            assert refused.recv(1) == b""
        stack.close()
        with connected(port) as channel:
            assert code(status(channel, wait_for_ready=True)) == "OK"


@pytest.mark.parametrize(("limit", "silent"), [(0.05, 0.5), (30, 1.5)], ids=["a second at least", "the limit"])
def test_a_connection_may_take_its_time_to_say_what_it_wants(limit, silent):
    with without_models(limits=Limits(seconds=limit)) as port, raw(port, b"") as connection:
        time.sleep(silent)
        connection.sendall(http2.PREFACE + http2.SETTINGS + http2.status_call("numbers", 1))
        received = b""
        while b"grpc-status" not in received:
            received += (data := connection.recv(65536))
            assert data, received


def test_a_connection_without_calls_is_closed(monkeypatch):
    monkeypatch.setattr(grpc_server, "SECONDS_OF_A_CONNECTION", 1)
    with without_models(limits=Limits(seconds=1)) as port, raw(port) as connection:
        assert b"max_age" in b"".join(iter(lambda: connection.recv(65536), b""))


def test_a_connection_that_takes_no_answer_is_closed(monkeypatch, caplog):
    monkeypatch.setattr(grpc_server, "SECONDS_OF_A_CONNECTION", 1)
    calls = [http2.status_call("numbers", number) for number in range(1, 41, 2)]
    with without_models(limits=Limits(seconds=1)) as port:
        with raw(port, http2.PREFACE + http2.NO_WINDOW + b"".join(calls)) as connection:
            received = b"".join(itertools.takewhile(len, iter(lambda: _received(connection), None)))
        assert b"max_age" in received
        with connected(port) as channel:
            assert code(status(channel)) == "OK"
    assert not caplog.records


def _received(connection):
    try:
        return connection.recv(65536)
    except ConnectionError:
        return b""


def test_without_the_token_a_call_is_refused_before_its_request_has_come():
    with without_models(token="secret") as port, raw(port) as connection:
        connection.sendall(http2.call(1))
        assert b"The token is missing or wrong" in told(connection)


def test_health_is_told_without_a_token():
    ready = threading.Event()
    with without_models(ready.is_set, token="secret") as port, connected(port) as channel:
        stub = health_pb2_grpc.HealthStub(channel)

        def asked(service=""):
            return stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=20).status

        assert asked() == health_pb2.HealthCheckResponse.NOT_SERVING
        ready.set()
        assert asked() == asked("tensorflow.serving.PredictionService") == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.RpcError, match="Received: other") as unknown:
            asked("other")
        assert unknown.value.code() == grpc.StatusCode.NOT_FOUND
        assert code(status(channel)) == "UNAUTHENTICATED"
        watching = stub.Watch(health_pb2.HealthCheckRequest(), timeout=20)
        assert watching.code() == grpc.StatusCode.UNIMPLEMENTED  # clients take this for healthy


def test_services_are_listed_for_those_who_have_the_token():
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    with without_models(token="secret") as port, connected(port) as channel:
        ask = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
        (answer,) = ask(iter([request]), timeout=20, metadata=[("authorization", "Bearer secret")])
        assert {service.name for service in answer.list_services_response.service} == {
            "tensorflow.serving.PredictionService",
            "tensorflow.serving.ModelService",
            "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
        }
        request = reflection_pb2.ServerReflectionRequest(file_containing_symbol="tensorflow.serving.PredictionService")
        (answer,) = ask(iter([request]), timeout=20, metadata=[("authorization", "Bearer secret")])
        files = map(
            descriptor_pb2.FileDescriptorProto.FromString, answer.file_descriptor_response.file_descriptor_proto
        )
        (service,) = next(file.service for file in files if file.service)
        assert "Predict" in [method.name for method in service.method]
        with pytest.raises(grpc.RpcError, match="The token is missing or wrong"):
            [*ask(iter([request]), timeout=20)]


def test_a_stream_of_questions_ends_in_time():
    with without_models(limits=Limits(seconds=1)) as port, connected(port) as channel:
        asking = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(_nothing(), timeout=30)
        assert asking.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert "The call took too long" in asking.details()


def _nothing():
    threading.Event().wait(5)
    yield from ()
