"""What stands between connections and the endpoints of REST: names of the server, other pages, gzip."""

import asyncio
import gzip
import json
import re
import zlib

import pytest
from servers import running, small
from starlette.responses import Response
from starlette.testclient import TestClient

from kformer.serving.compression import Gzip
from kformer.serving.hosts import AllowedHosts, allowed_names, check_names, check_origins
from kformer.serving.settings import Limits, ServerSettings

pytestmark = pytest.mark.tensorflow_only


def client(**settings):
    """Asks an application that answers by the body and the headers that it got, through what a server has before it."""
    from kformer.serving.rest import application
    from kformer.serving.rest_server import RestServer

    async def echo(request):
        body = await request.body()
        return Response(json.dumps({"body": body.decode(), "headers": dict(request.headers)}))

    settings = {"limits": Limits(request_bytes=5000), **settings}
    server = RestServer(application(echo), ServerSettings([], **settings))
    return TestClient(server.config.app, base_url="http://localhost")


# Names


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8501", "LOCALHOST.", "127.0.0.1:80", "10.1.2.3", "[::1]:8501", "[fe80::1]"]
)
def test_localhost_and_every_address_may_be_asked(host):
    """Kubernetes' and Docker's health checks have the address of a pod, or localhost."""
    assert client().get("/echo", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["rebound.example", "localhost.rebound.example:8501", "127.0.0.1.rebound.example", "x"]
)
def test_by_another_name_only_health_is_told(host):
    """A browser that was led to this machine by its own DNS sends that name."""
    refused = client().get("/echo", headers={"Host": host})
    assert refused.status_code == 421
    assert "--allowed-hosts" in refused.json()["error"]
    assert host not in refused.text
    assert client().get("/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["", "a b", "a/b", "user@localhost", "localhost:x", "[::1"])
def test_what_is_no_name_is_refused(host):
    assert client().get("/echo", headers={"Host": host}).status_code == 400


def test_a_request_has_one_host_unless_it_is_very_old():
    async def app(scope, receive, send):
        await send("answered")

    def asked(version, *hosts):
        sent = []

        async def send(message):
            sent.append(message)

        scope = {"path": "/echo", "http_version": version, "headers": [(b"host", host) for host in hosts]}
        asyncio.run(AllowedHosts(app, frozenset({"localhost"}))(scope, None, send))
        return sent[0] if sent[0] == "answered" else sent[0]["status"]

    assert asked("1.1", b"localhost") == "answered"
    assert asked("1.1") == asked("1.1", b"localhost", b"localhost") == 400
    assert asked("1.0") == "answered"  # some health checks
    assert asked("1.0", b"rebound.example") == 421


def test_the_operator_names_more_and_a_token_makes_names_unimportant():
    assert client(allowed_hosts=["Translate.example"]).get("/echo", headers={"Host": "translate.example"}).is_success
    assert client(host="translate.example").get("/echo", headers={"Host": "translate.example:80"}).is_success
    assert client(allowed_hosts=["*"]).get("/echo", headers={"Host": "any.example"}).is_success
    assert allowed_names("0.0.0.0", [], has_token=True) is None
    assert allowed_names("0.0.0.0", ["a.example"], has_token=True) == {"localhost", "0.0.0.0", "a.example"}


def test_a_server_refuses_a_foreign_name(plain_export_folder):
    with running(small(plain_export_folder), until_ready=False) as server:
        assert server.ask("GET", "/v1/models", headers={"Host": "rebound.example"}).status == 421
        assert server.ask("GET", "/v1/models").body == {"models": ["numbers"]}


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        (
            check_names,
            ["*", "a", "translate.example.org.", "A-1.my_host", "10.1.2.3"],
            ["", "a.example:80", "http://a.example", "a b", "-a", "a-", "a..b", ".a"],
        ),
        (
            check_origins,
            ["*", "https://a.example", "http://localhost:3000", "http://[::1]:80", "https://10.1.2.3"],
            ["", "a.example", "https://A.example", "https://a.example/", "ftp://a.example", "https://a.example:123456"],
        ),
    ],
)
def test_what_an_operator_names_has_the_form_in_which_browsers_send_it(check, right, wrong):
    check(right)
    for one in wrong:
        with pytest.raises(ValueError, match=re.escape(f"Received: {one!r}.")):
            check(["*", one])


# The token


@pytest.mark.parametrize(
    ("sent", "status"),
    [("Bearer sesame", 200), ("bearer  sesame ", 200), ("Basic sesame", 401), ("sesame", 401), ("Bearer", 401),
     ("Bearer sesame street", 401), ("", 401)],
)  # fmt: skip
def test_the_token_is_sent_as_a_bearer(sent, status):
    answer = client(token="sesame").get("/echo", headers={"Authorization": sent})
    assert answer.status_code == status
    assert answer.headers.get("www-authenticate") == (None if status == 200 else "Bearer")


@pytest.mark.parametrize("path", ["/", "/page.js", "/page.css", "/icon.svg", "/healthz", "/readyz"])
def test_the_page_and_the_health_need_no_token(path):
    assert client(token="sesame").get(path).status_code == 200


# Pages of other servers


def test_pages_of_the_origins_that_are_named_may_ask_and_no_others():
    asking = client(origins=["https://page.example"], token="sesame")
    page, other = {"Origin": "https://page.example"}, {"Origin": "https://other.example"}
    asked = "authorization,content-encoding,content-type"
    before = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": asked}
    allowed = asking.options("/echo", headers={**page, **before})  # a browser sends no token with this
    assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, "https://page.example")
    assert "access-control-allow-origin" not in asking.options("/echo", headers={**other, **before}).headers
    token = {"Authorization": "Bearer sesame"}
    assert asking.get("/echo", headers={**page, **token}).headers["access-control-allow-origin"] == page["Origin"]
    assert "access-control-allow-origin" not in asking.get("/echo", headers={**other, **token}).headers
    refused = asking.get("/echo", headers=page)  # the page can read why
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, page["Origin"])
    assert "access-control-allow-origin" not in client().get("/echo", headers=page).headers


# gzip


@pytest.mark.parametrize("end", [True, False], ids=["in the last part", "in a part of its own"])
def test_a_request_in_gzip_may_come_in_parts(end):
    """As packets bring it; the end of a chunked body may come alone."""
    packed = gzip.compress(b"a word")
    parts = [(packed[:5], True), (packed[5:], not end), *([] if end else [(b"", False)])]

    async def receive():
        body, more = parts.pop(0)
        return {"type": "http.request", "body": body, "more_body": more}

    async def app(scope, receive, send):
        while True:
            message = await receive()
            received.append(message["body"])
            if not message["more_body"]:
                return

    received = []
    scope = {"type": "http", "headers": [(b"content-encoding", b"gzip")]}
    asyncio.run(Gzip(app, 1000)(scope, receive, None))
    assert b"".join(received) == b"a word"


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "GZIP "])  # of one meaning in HTTP
def test_a_request_may_come_in_gzip(encoding):
    body = b"word " * 900
    answer = client().post("/echo", content=gzip.compress(body), headers={"Content-Encoding": encoding}).json()
    assert answer["body"] == body.decode()
    assert not {"content-encoding", "content-length"} & {*answer["headers"]}


def test_a_request_is_unpacked_up_to_the_limit_and_no_further(monkeypatch):
    """100 kB would become 100 MB."""
    bomb = gzip.compress(b" " * 100_000_000)
    assert len(bomb) < 100_000
    made = []

    class Watched:
        def __init__(self, unpacker):
            self.unpacker = unpacker

        def __getattr__(self, name):
            return getattr(self.unpacker, name)

        def decompress(self, *arguments):
            made.append(self.unpacker.decompress(*arguments))
            return made[-1]

    make = zlib.decompressobj
    monkeypatch.setattr("kformer.serving.compression.zlib.decompressobj", lambda bits: Watched(make(bits)))
    refused = client(limits=Limits(request_bytes=200_000)).post(
        "/echo", content=bomb, headers={"Content-Encoding": "gzip"}
    )
    assert refused.status_code == 413
    assert "A request may have 200000 bytes. Received: more, in gzip." in refused.json()["error"]
    assert sum(map(len, made)) == 200_001


@pytest.mark.parametrize(("size", "status"), [(5000, 200), (5001, 413)])
def test_a_request_in_gzip_may_have_as_many_bytes_as_one_without(size, status):
    sent = gzip.compress(b"x" * size)
    assert client().post("/echo", content=sent, headers={"Content-Encoding": "gzip"}).status_code == status


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"plain text", "these bytes are no gzip"),
        (gzip.compress(b"word", mtime=0)[:-4], "it ends too early"),
        (b"", "it ends too early"),
        (gzip.compress(b"word", mtime=0) + b"more", "something stands behind its end"),
        (gzip.compress(b"one", mtime=0) * 2, "something stands behind its end"),
        (gzip.compress(b"word", mtime=0)[:-8] + b"\0" * 8, "these bytes are no gzip"),
    ],
)
def test_damaged_gzip_is_refused(sent, reason):
    refused = client().post("/echo", content=sent, headers={"Content-Encoding": "gzip"})
    assert refused.status_code == 400
    assert reason in refused.json()["error"]


def test_packed_bytes_have_the_limit_too():
    """Blocks of no text can be packed without end."""
    empty = gzip.compress(b"")
    endless = empty[:10] + b"\0\0\0\xff\xff" * 2000
    refused = client().post("/echo", content=endless, headers={"Content-Encoding": "gzip"})
    assert (refused.status_code, refused.json()["error"][:27]) == (413, "A request may have 5000 byt")


def test_other_encodings_are_refused():
    refused = client().post("/echo", content=b"x", headers={"Content-Encoding": "br"})
    assert (refused.status_code, refused.headers["accept-encoding"]) == (415, "gzip")
    for same in ("Identity", ""):
        assert client().post("/echo", content=b"x", headers={"Content-Encoding": same}).json()["body"] == "x"


def test_large_answers_are_packed_for_those_who_take_gzip():
    asking = client()

    def encoding(size, accepted):
        answer = asking.post("/echo", content=b"x" * size, headers={"Accept-Encoding": accepted})
        assert answer.json()["body"] == "x" * size
        return answer.headers.get("content-encoding")

    assert encoding(2000, "gzip") == encoding(2000, "br;q=1.0, gzip;q=0.5") == "gzip"
    assert encoding(10, "gzip") is None
    assert encoding(2000, "gzip;q=0.001") == "gzip"
    for refusal in ("identity", "gzip;q=0", "gzip; q=0.0", "gzip;q=0.000", ""):
        assert encoding(2000, refusal) is None


def test_files_of_the_page_come_in_gzip_over_a_real_connection(plain_export_folder):
    with running(small(plain_export_folder), until_ready=False) as server:
        answer = server.ask("GET", "/page.js", headers={"Accept-Encoding": "gzip"})
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.body == server.ask("GET", "/page.js").body
