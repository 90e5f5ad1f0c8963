"""Connections of REST, over an application that answers at once, or when the test says so."""

import contextlib
import json
import logging
import os
import resource
import socket
import ssl
import struct
import threading
import time

import pytest
from servers import wait

from kformer.serving.settings import Limits, ServerSettings

pytestmark = pytest.mark.tensorflow_only
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNKED = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


class Endpoints:
    """What is asked for.

    /healthz is answered at once, /slow when `gate` is set, /echo with the body, /large by 30 MB, and all else without
    reading the body.
    """

    def __init__(self):
        self.gate = threading.Event()
        self.gone = []  # paths whose clients have gone
        self.clients = set()  # their addresses

    async def __call__(self, scope, receive, send):
        import asyncio

        path, body = scope["path"], b"alive"
        self.clients.add(scope["client"][0])
        if path == "/slow":
            leaving = asyncio.ensure_future(self._until_gone(receive))
            while not (self.gate.is_set() or leaving.done()):
                await asyncio.sleep(0.01)
            if leaving.done():
                self.gone.append(path)
                return
            leaving.cancel()
        elif path == "/echo":
            body, more = b"", True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    self.gone.append(path)
                    return
                body, more = body + message["body"], message["more_body"]
            body += b"|" + b",".join(name for name, _ in scope["headers"])
        elif path == "/large":
            body = b"x" * 30_000_000
        elif path != "/healthz":
            body = b"refused"
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _until_gone(self, receive):
        while (await receive())["type"] != "http.disconnect":
            pass


class Running:
    """REST's side of a server in a thread."""

    def __init__(self, app, port, server):
        self.app = app
        self.port = port
        self.server = server

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def opened(self):
        return len(self.server.server_state.connections)

    @contextlib.contextmanager
    def halted(self):
        """Inside, the server does nothing. Then it finds at once whatever has come meanwhile."""
        halted, go_on = threading.Event(), threading.Event()
        connection = next(iter(self.server.server_state.connections))
        connection.loop.call_soon_threadsafe(lambda: (halted.set(), go_on.wait(10)))
        assert halted.wait(10)
        yield
        go_on.set()


@contextlib.contextmanager
def serving(seconds=1.0, **options):
    import asyncio

    from kformer.serving.rest_server import RestServer, listening

    settings = ServerSettings([], rest_port=0, limits=Limits(seconds=seconds), **options)
    app = Endpoints()
    with listening(settings) as bound:
        server = RestServer(app, settings)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([bound])))
        port = bound.getsockname()[1]
        thread.start()
        wait(lambda: server.started)
        try:
            yield Running(app, port, server)
        finally:
            app.gate.set()
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()


@pytest.fixture(scope="module")
def impatient():
    """It gives each step of a request one second."""
    with serving() as server:
        yield server


@pytest.fixture(scope="module")
def patient():
    """It gives each step of a request half a minute."""
    with serving(seconds=30) as server:
        yield server


def rest_of(connection):
    """All that comes until the connection ends, and the seconds it took."""
    began, received = time.monotonic(), b""
    with contextlib.suppress(ConnectionError):
        while data := connection.recv(65536):
            received += data
    return received, time.monotonic() - began


def ends_while_sending(connection, piece, seconds=8.0):
    """Whether a server ends a connection over which pieces come without end."""
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            connection.sendall(piece)
            time.sleep(0.01)
    except ConnectionError:
        return True
    return False


# Answers come at once


def test_headers_and_body_of_an_answer_come_together_on_a_kept_connection(impatient):
    """With two packets and Nagle's algorithm, the second one waits until the client's system confirms the first."""
    with impatient.connect() as connection:
        for _ in range(5):
            connection.sendall(GET)
            answer = connection.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200")
            assert answer.endswith(b"alive")


def test_the_sockets_of_clients_send_at_once(impatient):
    with impatient.connect() as connection:
        connection.sendall(GET)
        connection.recv(65536)
        (served,) = impatient.server.server_state.connections
        at_once = served.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert at_once == 1


def test_a_connection_may_take_a_second_however_short_the_limit_of_requests_is():
    with serving(seconds=0.05) as server, server.connect() as connection:
        time.sleep(0.5)
        connection.sendall(GET)
        assert connection.recv(65536).endswith(b"alive")


# A bound for all bytes beside the body


def test_trailers_without_end_are_cut_off(impatient):
    for path in (b"/echo", b"/refused"):  # the body is read; it is not
        with impatient.connect() as connection:
            connection.sendall(CHUNKED.replace(b"/echo", path) + b"1\r\nx\r\n0\r\n")
            assert ends_while_sending(connection, b"X-A: " + b"a" * 10_000 + b"\r\n", seconds=0.8), path


def test_trailers_count_as_nothing(impatient):
    with impatient.connect() as connection:
        connection.sendall(CHUNKED + b"1\r\nx\r\n0\r\nAuthorization: Bearer x\r\n\r\n")
        assert connection.recv(65536).endswith(b"x|host,transfer-encoding")


def test_what_stands_beside_chunks_is_bounded_and_small_chunks_are_read(impatient):
    with impatient.connect() as connection:
        connection.sendall(CHUNKED + b"1\r\nx\r\n" * 20_000 + b"0\r\n\r\n")  # 5 bytes beside each byte
        answer, _ = rest_of(connection)
        assert not answer
    with impatient.connect() as connection:
        connection.sendall(CHUNKED + b"8\r\n12345678\r\n" * 20_000 + b"0\r\n\r\n")
        assert b"12345678|host" in b"".join(iter(lambda: connection.recv(65536), b""))


def test_many_requests_in_one_packet_do_not_count_as_one(impatient):
    with impatient.connect() as connection:
        connection.sendall(GET.replace(b"\r\n\r\n", b"\r\nCookie: " + b"a" * 5000 + b"\r\n\r\n") * 40)  # 200 kB
        answer, _ = rest_of(connection)
    assert answer.count(b"alive") == 40


def test_a_client_cannot_send_any_number_of_requests_ahead():
    slow = GET.replace(b"/healthz", b"/slow")
    with serving(seconds=30) as server:
        with server.connect() as connection:
            connection.sendall(slow + GET * 63)
            time.sleep(0.2)
            server.app.gate.set()
            answers = b""
            while answers.count(b"alive") < 64:
                answers += connection.recv(65536)
            server.app.gate.clear()
            connection.sendall(slow + GET * 64)
            assert rest_of(connection)[1] < 5
        assert server.opened() == 0


def test_a_connection_whose_client_does_not_take_its_answer_is_closed(impatient):
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", impatient.port))
        connection.sendall(GET.replace(b"/healthz", b"/large"))
        wait(lambda: impatient.opened() == 1)
        wait(lambda: impatient.opened() == 0)


def test_the_address_of_a_client_is_the_one_it_has(impatient):
    with impatient.connect() as connection:
        connection.sendall(GET.replace(b"\r\n\r\n", b"\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n"))
        assert connection.recv(65536).endswith(b"alive")
    assert impatient.app.clients == {"127.0.0.1"}


# Connections end


@pytest.mark.parametrize("rest", [b"", b"x", b"y" * 100], ids=["nothing", "a byte", "half"])
def test_a_connection_with_a_refused_body_that_does_not_come_is_closed(impatient, rest):
    with impatient.connect() as connection:
        connection.sendall(b"POST /refused HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200\r\n\r\n")
        assert connection.recv(65536).endswith(b"refused")
        connection.sendall(rest)  # it stops uvicorn's clock
        _, seconds = rest_of(connection)
    assert seconds < 5


def test_a_refused_body_is_not_read_on_without_end(impatient):
    with impatient.connect() as connection:
        connection.sendall(b"POST /refused HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000000000\r\n\r\n")
        assert ends_while_sending(connection, b"x" * 1000)


def test_after_a_refused_body_that_comes_in_time_the_connection_goes_on(impatient):
    with impatient.connect() as connection:
        connection.sendall(b"POST /refused HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200\r\n\r\n")
        connection.recv(65536)
        connection.sendall(b"x" * 200 + GET)
        assert connection.recv(65536).endswith(b"alive")


def test_line_breaks_before_a_request_do_not_keep_a_connection(impatient):
    with impatient.connect() as connection:
        assert ends_while_sending(connection, b"\r\n")


# Half a connection


def test_a_client_that_sends_no_more_gets_its_answers(impatient):
    with serving(seconds=5) as server, server.connect() as connection:
        connection.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        time.sleep(0.3)
        server.app.gate.set()
        answer, _ = rest_of(connection)
    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200")
    assert answer.endswith(b"alive")
    with impatient.connect() as connection:
        connection.sendall(GET * 3)
        connection.shutdown(socket.SHUT_WR)
        assert rest_of(connection)[0].count(b"alive") == 3


def test_a_client_that_has_gone_is_noticed():
    with serving(seconds=30) as server:
        with server.connect() as connection:
            connection.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
            time.sleep(0.1)
        wait(lambda: server.app.gone == ["/slow"])


@pytest.mark.parametrize("way", ["closes", "resets"])
def test_a_client_that_has_gone_and_has_sent_two_requests_is_noticed_by_the_first(way):
    with serving(seconds=30) as server:
        with server.connect() as connection:
            connection.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2)
            time.sleep(0.1)
            if way == "resets":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wait(lambda: server.app.gone == ["/slow"])
        wait(lambda: not server.opened())
        assert server.app.gone == ["/slow"]  # the second has not begun


# Room


def test_a_new_connection_takes_the_place_of_the_one_that_has_waited_longest():
    with serving(seconds=30, connections=3) as server, contextlib.ExitStack() as stack:
        connections = [stack.enter_context(server.connect()) for _ in range(3)]
        for connection in connections:
            connection.sendall(GET)
            connection.recv(65536)
        connections[0].sendall(GET)  # the second has waited longest now
        connections[0].recv(65536)
        with server.connect() as new:
            new.sendall(GET)
            assert new.recv(65536).endswith(b"alive")
            assert rest_of(connections[1])[0] == b""
        for connection in (connections[0], connections[2]):
            connection.sendall(GET)
            assert connection.recv(65536).endswith(b"alive")


def answer_to(connection):
    with connection:
        connection.sendall(GET.replace(b"/healthz", b"/refused"))
        return connection.recv(65536)


def test_connections_that_come_together_take_the_places_of_as_many_others():
    with serving(seconds=30, connections=10) as server, contextlib.ExitStack() as stack:
        idle = [stack.enter_context(server.connect()) for _ in range(10)]
        wait(lambda: server.opened() == 10)
        with server.halted():
            new = [stack.enter_context(server.connect()) for _ in range(6)]
        for connection in new:  # which stay open
            connection.sendall(GET)
            assert connection.recv(65536).endswith(b"alive")
        assert all(rest_of(connection)[0] == b"" for connection in idle[:6])
        assert all(answer_to(connection).endswith(b"refused") for connection in idle[6:])


def test_many_connections_that_come_together_take_no_place_while_there_is_room():
    with serving(seconds=30, connections=200) as server, contextlib.ExitStack() as stack:
        connections = [stack.enter_context(server.connect()) for _ in range(20)]
        wait(lambda: server.opened() == 20)
        with server.halted():
            connections += [stack.enter_context(server.connect()) for _ in range(180)]
        assert all(answer_to(connection).endswith(b"refused") for connection in connections)


def test_where_every_connection_is_being_answered_health_is_told_and_nothing_else(caplog):
    with serving(seconds=30, connections=2) as server, contextlib.ExitStack() as stack:
        busy = [stack.enter_context(server.connect()) for _ in range(2)]
        for connection in busy:
            connection.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(0.2)
        for path, expected in ((b"/healthz", b"200"), (b"/slow", b"503"), (b"/slow", b"503")):
            with server.connect() as beyond:
                beyond.sendall(GET.replace(b"/healthz", path))
                answer = beyond.recv(65536)
                assert answer.startswith(b"HTTP/1.1 " + expected)
        assert b"retry-after: 1" in answer
        assert b"connection: close" in answer
        assert b"as many connections as it can have. Send the request again later." in answer
        server.app.gate.set()
        assert all(connection.recv(65536).endswith(b"alive") for connection in busy)
    assert [record.getMessage() for record in caplog.records].count("crowded") == 1


def test_connections_beyond_the_limit_are_closed_once_they_wait_for_their_clients():
    with serving(seconds=30, connections=4) as server, contextlib.ExitStack() as stack:
        busy = [stack.enter_context(server.connect()) for _ in range(4)]
        for connection in busy:
            connection.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(0.2)
        stack.enter_context(server.connect()).sendall(b"GET /")  # beyond the limit
        wait(lambda: server.opened() == 5)
        server.app.gate.set()
        assert all(connection.recv(65536).endswith(b"alive") for connection in busy)
        for _ in range(3):  # all five wait for their clients now
            assert answer_to(stack.enter_context(server.connect())).endswith(b"refused")


def test_half_requests_that_come_together_take_no_place_of_the_next_one():
    with serving(seconds=30, connections=4) as server, contextlib.ExitStack() as stack:
        stack.enter_context(server.connect())
        wait(lambda: server.opened() == 1)
        with server.halted():
            for _ in range(30):
                stack.enter_context(server.connect()).sendall(b"GET /")
            new = stack.enter_context(server.connect())
        assert answer_to(new).endswith(b"refused")


def test_what_is_no_request_is_refused_in_json(patient):
    with patient.connect() as connection:
        connection.sendall(b"no request\r\n\r\n")
        head, body = rest_of(connection)[0].split(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n")
    assert f"content-length: {len(body)}\r\n".encode() in head + b"\r\n"
    assert json.loads(body) == {"error": "Invalid HTTP request received."}


UPGRADE = b" HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n"


@pytest.mark.parametrize("pause", [0, 0.1])
@pytest.mark.parametrize("path", [b"POST /echo", b"GET /healthz", b"POST /refused"])
def test_the_body_of_a_request_that_asks_for_another_protocol_is_no_request(path, pause, patient):
    with patient.connect() as connection:
        connection.sendall(path + UPGRADE + b"Content-Length: %d\r\n\r\n" % len(GET))
        time.sleep(pause)
        connection.sendall(GET)
        answer, seconds = rest_of(connection)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert seconds < 3  # it is closed then
    spaces = 4096 - len(path + UPGRADE + b"Content-Length: 9999\r\n\r\n")
    with patient.connect() as connection:  # in one piece, where the second piece of 4,096 bytes is a request
        connection.sendall(path + UPGRADE + b"Content-Length: 9999\r\n\r\n" + b" " * spaces + GET)
        assert rest_of(connection)[0].count(b"HTTP/1.1 ") <= 1


@contextlib.contextmanager
def no_descriptors_but(number):
    """Inside, this process can open so many files more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = [os.dup(0) for _ in range(number)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare[-1] + 1, hard))
    taken = []
    with contextlib.suppress(OSError):  # the gaps below
        while True:
            taken.append(os.dup(0))
    for descriptor in spare:
        os.close(descriptor)
    try:
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_health_is_told_where_the_system_has_no_descriptor(caplog):
    with serving(seconds=30) as server, contextlib.ExitStack() as stack, no_descriptors_but(4):
        with contextlib.suppress(OSError):  # the last one takes what a client of this process needs itself
            for _ in range(2):
                stack.enter_context(server.connect())
        taken = []
        for _ in range(5):
            client = socket.socket()
            taken.append(client)
            client.settimeout(5)
            client.connect(("127.0.0.1", server.port))
            client.sendall(GET)
            assert client.recv(65536).endswith(b"alive")
            client.close()
    assert [record.getMessage() for record in caplog.records].count("no descriptor") == 1


@pytest.fixture
def tls(tmp_path):
    """Settings of a server with TLS."""
    import trustme

    certificate = trustme.CA().issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(tmp_path / "both.pem")
    return {"certificate": tmp_path / "both.pem", "key": tmp_path / "both.pem"}


def test_with_tls_a_handshake_that_does_not_come_is_given_up(tls):
    with serving(**tls, connections=2) as server:
        with server.connect() as silent:
            assert rest_of(silent)[1] < 5
        context = ssl._create_unverified_context()
        silent = [server.connect() for _ in range(4)]
        with context.wrap_socket(server.connect()) as connection:
            connection.sendall(GET)
            assert connection.recv(65536).endswith(b"alive")
        for other in silent:
            other.close()


def test_with_tls_connections_that_come_together_take_the_places_of_handshakes(tls):
    context = ssl._create_unverified_context()
    with serving(seconds=30, **tls, connections=5) as server, contextlib.ExitStack() as stack:
        stack.enter_context(context.wrap_socket(server.connect()))
        wait(server.opened)
        silent = [stack.enter_context(server.connect()) for _ in range(4)]
        time.sleep(0.2)  # they have come
        with server.halted():
            new = [stack.enter_context(server.connect()) for _ in range(3)]
        assert all(answer_to(context.wrap_socket(connection)).endswith(b"refused") for connection in new)
        assert all(rest_of(connection)[0] == b"" for connection in silent[:3])


def test_a_handshake_does_not_go_on_when_the_server_is_stopped(tls):
    context = ssl._create_unverified_context()
    with (
        serving(seconds=30, **tls) as server,
        server.connect() as silent,
        context.wrap_socket(server.connect()) as busy,
    ):
        busy.sendall(GET.replace(b"/healthz", b"/slow"))
        time.sleep(0.2)
        server.server.should_exit = True
        assert rest_of(silent)[1] < 5
        server.app.gate.set()
        assert busy.recv(65536).endswith(b"alive")  # which was waited for


def test_a_library_writes_the_same_line_once_in_a_period():
    from kformer.serving.logs import RarelyFromLibraries

    def record(name, message):
        return logging.LogRecord(name, logging.WARNING, "", 0, message, (), None)

    rarely = RarelyFromLibraries(seconds=0.2)
    assert [rarely.filter(record("uvicorn.error", "bad")) for _ in range(3)] == [True, False, False]
    assert rarely.filter(record("uvicorn.error", "worse"))
    assert all(rarely.filter(record("kformer.serving.rest", "refused")) for _ in range(3))
    time.sleep(0.25)
    again = record("uvicorn.error", "bad")
    assert rarely.filter(again)
    assert again.fields == {"left_out": 2}
