"""`kformer.client.Client`, beside `kformer serve` and servers with faults."""

import socket
import threading
import time

import hostile
import numpy as np
import pytest
import toy
import trustme
from servers import running

from kformer.client import Client, ServerError
from kformer.client.settings import ClientSettings, ServerAddress
from kformer.serving.model_settings import ModelSettings
from kformer.serving.settings import ServerSettings
from kformer.tasks.translator import Translator

pytestmark = pytest.mark.tensorflow_only
PROTOCOLS = ("rest", "grpc")


def url_of(server, protocol, path="numbers"):
    return f"{server.url}/v1/models/{path}" if protocol == "rest" else f"grpc://{server.grpc_address}/{path}"


@pytest.fixture(scope="module", params=PROTOCOLS)
def client(request, served):
    with Client(url_of(served, request.param)) as client:
        yield client


# URLs and settings


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h:8501/v1/models/m", (True, False, "h:8501", "m", None, None)),
        ("https://h/v1/models/m/versions/3", (True, True, "h", "m", 3, None)),
        ("https://h/behind/a/proxy/v1/models/m%20n/labels/stable/", (True, True, "h", "m n", None, "stable")),
        ("grpc://h:8500/m", (False, False, "h:8500", "m", None, None)),
        ("grpc://[::1]:8500/m/versions/3", (False, False, "[::1]:8500", "m", 3, None)),
        ("grpcs://h:8500/m/labels/stable", (False, True, "h:8500", "m", None, "stable")),
        ("grpc://h:8500/m%2Fn/labels/last%20but%20one", (False, False, "h:8500", "m/n", None, "last but one")),
    ],
)
def test_a_url_names_protocol_host_model_and_version(url, expected):
    address = ServerAddress.of_url(url)
    found = (address.is_rest, address.is_encrypted, address.host, address.model, address.version, address.label)
    assert found == expected


@pytest.mark.parametrize(
    "url",
    ["", "m", "localhost:8501", "h:8501/v1/models/m", "http://h:8501", "http://h:8501/v1/models", "ftp://h/v1/models/m",
     "http://h:8501/v1/models/m:predict", "http://h/v1/models/m/versions/x", "http://:8501/v1/models/m",
     "http://h:x/v1/models/m", "http://user:password@h/v1/models/m", "http://h/v1/models/m?a=1", "grpc://h/m",
     "grpc://h:8500", "grpc://h:8500/m/metadata", "grpc://h:8500/v1/models/m"],
)  # fmt: skip
def test_another_url_is_refused_with_the_forms_that_are_right(url):
    with pytest.raises(ValueError, match="http://HOST:8501/v1/models/NAME for REST, or grpc://HOST:8500/NAME for"):
        Client(url)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tries": 0}, "tries must be at least 1. Received: 0."),
        ({"timeout": 0.0}, "timeout must be more than 0 seconds. Received: 0.0."),
        ({"backoff_factor": -1.0}, "backoff_factor must be at least 0 seconds. Received: -1.0."),
        ({"batch_size": 0}, "batch_size must be at least 1. Received: 0."),
        ({"token": ""}, "A token is one line of ASCII characters"),
        ({"token": "two\nlines"}, "A token is one line of ASCII characters"),
        ({"token": " sesame"}, "A token is one line of ASCII characters, without blanks around it"),
        ({"token": "sesame "}, "A token is one line of ASCII characters, without blanks around it"),
        ({"token": "s\u00e9same"}, "A token is one line of ASCII characters"),
        ({"ca_file": __file__}, "ca_file is for https and grpcs. Received: http://h/v1/models/m"),
        ({"ca_file": "nowhere.pem"}, "nowhere.pem is not a regular file. Name one with certificates in PEM form."),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        Client("http://h/v1/models/m", **settings)


def test_a_token_is_not_shown():
    assert "sesame" not in repr(ClientSettings(token="open sesame"))
    with pytest.raises(ValueError) as refused:  # noqa: PT011 (of what it does not say)
        ClientSettings(token="open\nsesame")
    assert "sesame" not in str(refused.value)


# Beside kformer serve


def test_a_text_gives_a_text_and_a_list_gives_a_list_in_order(client, pairs):
    assert client.translate("one two") == "dos uno"
    assert client.translate(b"one two") == "dos uno"
    sources = [source for source, _ in pairs]
    assert client.translate(sources) == [target for _, target in pairs]  # 40, and the server takes 32 at a time


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/v1/models/m", "grpc://127.0.0.1:1/m"])
def test_an_empty_list_needs_no_server(url):
    with Client(url) as client:
        assert client.translate([]) == []


def test_both_protocols_give_the_same_names_types_and_values(served):
    texts = ["one two", "three", "six five four"] * 11
    inputs = {
        "serving_default": {"text": texts},
        "n_best": {"text": np.array(texts)},
        "score": {"text": texts, "translation": [toy.translation(text) for text in texts]},
    }
    with Client(url_of(served, "rest")) as rest, Client(url_of(served, "grpc")) as rpc:
        for signature, given in inputs.items():
            ours, theirs = rest.predict(signature, given), rpc.predict(signature, given)
            assert ours.keys() == theirs.keys()
            for name, value in ours.items():
                assert (value.dtype, value.shape) == (theirs[name].dtype, theirs[name].shape)
                np.testing.assert_array_equal(value, theirs[name])
        assert rest.status() == rpc.status()
        assert rest.metadata() == rpc.metadata()
    assert ours["tokens"].tolist() == [3, 2, 4] * 11  # a token a word, and the end
    assert {value.dtype for value in ours.values()} == {np.dtype(kind) for kind in ("float32", "int32", "bool")}


@pytest.mark.filterwarnings("ignore:.*cannot be read as text")
def test_texts_that_people_and_machines_send_arrive_as_they_are(client, numbers_translator):
    texts = [text for text in hostile.BY_HAND if len(text) < 100]
    assert client.translate(texts) == numbers_translator(texts)


def test_status_and_metadata_are_those_of_tensorflow_serving(client):
    (version,) = client.status()["model_version_status"]
    assert version == {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    signatures = client.metadata()["metadata"]["signature_def"]["signature_def"]
    assert {*signatures} == {"serving_default", *Translator.signatures}


@pytest.fixture(scope="module")
def labelled(plain_export_folder):
    models = [ModelSettings("numbers", plain_export_folder, labels={"stable": 1})]
    with running(ServerSettings(models, rest_port=0, grpc_port=0)) as server:
        yield server


@pytest.mark.slow
@pytest.mark.in_ci
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_versions_and_labels_are_asked_for(labelled, protocol):
    for path in ("numbers/versions/1", "numbers/labels/stable"):
        with Client(url_of(labelled, protocol, path)) as client:
            assert client.translate("one") == "uno"
            assert client.status()["model_version_status"][0]["version"] == "1"
    for path, code in {"numbers/versions/7": 404, "numbers/labels/new": 400, "letters": 404}.items():
        with Client(url_of(labelled, protocol, path)) as client, pytest.raises(ServerError) as refused:
            client.translate("one")
        assert refused.value.code == code


def test_a_server_that_refuses_says_why(client):
    with pytest.raises(ServerError, match='Serving signature name: "n_bset" not found') as refused:
        client.predict("n_bset", {"text": ["one"]})
    assert refused.value.code == 400
    assert str(refused.value).startswith(f"{client.url} answers ")


def test_a_request_that_is_too_large_is_told_at_once(client):
    began = time.monotonic()
    with pytest.raises(ServerError) as refused:
        client.translate("one " * 1_300_000)  # 5 MB
    assert refused.value.code == 413
    assert time.monotonic() - began < 2  # the second wait between tries


def test_texts_that_are_too_large_together_are_sent_in_several_requests(client, pairs):
    """Each has 12 KB, of 16 KB that a text may have, and a request may have 64 KB."""
    texts = ["one " * 3000, "two " * 3000, *(source for source, _ in pairs[:3])] * 4
    found = client.translate(texts)
    assert len(found) == 20
    assert found[2:5] == [target for _, target in pairs[:3]]
    assert found[0:10] == found[10:20]


def test_outputs_of_unlike_sizes_are_filled_up_where_there_are_several_requests(client):
    """As the model fills up those of texts of unlike lengths in one request."""
    texts = [*["one"] * 32, "one two three"]
    found, alone = (client.predict("translate_detailed", {"text": some}) for some in (texts, texts[-2:]))
    assert found["target_token"].shape == (33, alone["target_token"].shape[1])
    assert found.keys() == alone.keys()
    for name, values in alone.items():
        assert found[name].dtype == values.dtype
        same = found[name][-2:] == values if values.dtype == object else np.isclose(found[name][-2:], values, atol=1e-5)
        assert same.all(), name


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_token_and_an_own_authority_are_used(plain_export_folder, tmp_path, protocol, capfd, monkeypatch):
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "other.pem"))  # ca_file goes before it
    settings = ServerSettings(
        [ModelSettings("numbers", plain_export_folder)], rest_port=0, grpc_port=0, token="open sesame",
        certificate=tmp_path / "server.pem", key=tmp_path / "server.pem",
    )  # fmt: skip
    with running(settings) as server:
        url = url_of(server, protocol).replace("http:", "https:").replace("grpc:", "grpcs:")
        with Client(url, token="open sesame", ca_file=tmp_path / "ca.pem") as client:
            assert client.translate("one two") == "dos uno"
        for token in (None, "open"):
            client = Client(url, token=token, ca_file=tmp_path / "ca.pem")
            with client, pytest.raises(ServerError, match="The token is missing or wrong.") as refused:
                client.translate("one two")
            assert refused.value.code == 401
        began = time.monotonic()
        told = r"(?i)certificate.verify.failed.*\. Trust its authority: ca_file of the client, or the variable"
        with Client(url) as client, pytest.raises(ServerError, match=told):
            client.translate("one two")
        assert time.monotonic() - began < 2  # the second wait between tries
        assert "Handshake failed" not in capfd.readouterr().err
        if protocol == "rest":
            plain, told = url.replace("https", "http"), "If it is a port with TLS, name it by https"
            with Client(plain, tries=1) as client, pytest.raises(ServerError, match=told):
                client.translate("one two")


@pytest.mark.parametrize("read_first", [True, False], ids=["closed", "reset"])
def test_tls_is_named_where_a_connection_ends_without_an_answer(read_first):
    """The system resets a connection that is closed while bytes of the request are unread."""
    told = "If it is a port with TLS, name it by https"
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def end_a_connection():
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536 if read_first else 1)

        thread = threading.Thread(target=end_a_connection)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1/models/numbers"
        with Client(url, tries=1) as client, pytest.raises(ServerError, match=told):
            client.status()
        thread.join()


def test_another_protocol_behind_a_port_is_told(served):
    url = f"http://{served.grpc_address}/v1/models/numbers"
    with (
        Client(url, tries=1) as client,
        pytest.raises(ServerError, match=r"no HTTP. If it is a port of gRPC, name it by"),
    ):
        client.translate("one two")
    with (
        Client(f"grpcs://{served.grpc_address}/numbers") as client,
        pytest.raises(ServerError, match="has no TLS, name"),
    ):
        client.translate("one two")


def test_a_proxy_that_grpc_goes_by_is_named(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    with (
        Client("grpc://localhost:1/numbers", tries=1) as client,
        pytest.raises(ServerError, match="variable http_proxy n"),
    ):
        client.translate("one two")
    monkeypatch.setenv("no_proxy", "localhost")
    with Client("grpc://localhost:1/numbers", tries=1) as client, pytest.raises(ServerError) as refused:
        client.translate("one two")
    assert "proxy" not in str(refused.value)


def test_threads_may_share_a_client(client, pairs):
    found = {}

    def ask(number):
        source, _ = pairs[number]
        found[number] = client.translate(source)

    threads = [threading.Thread(target=ask, args=[number]) for number in range(13)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: pairs[number][1] for number in range(13)}
