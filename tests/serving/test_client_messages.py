"""What `kformer.client.Client` sends, and what it makes of the answers."""

import inspect
import json

import grpc
import numpy as np
import pytest
import trustme
from scripted_grpc import ScriptedGrpc
from scripted_rest import METADATA, ScriptedRest

from kformer.client import Client, ServerError
from kformer.client.retries import LONGEST_WAIT

pytestmark = pytest.mark.tensorflow_only


# What goes over the wire


def test_rest_has_texts_as_strings_and_other_bytes_as_base64():
    with ScriptedRest([(400, "{}")]) as server, Client(server.url) as client, pytest.raises(ServerError):
        client.predict("serving_default", {"text": ["é\0", "é\0".encode(), b"\xff\xfe", "\ufeff\u2028"]})
    assert server.requests == [
        (
            "/v1/models/m:predict",
            {"signature_name": "serving_default", "inputs": {"text": ["é\0", "é\0", {"b64": "//4="}, "\ufeff\u2028"]}},
        )
    ]


def test_rest_has_numbers_and_booleans_as_they_are():
    inputs = {"rows": [[1, 2], [3, 4]], "halves": [0.5], "flags": [True, False]}
    with ScriptedRest([(400, "{}")]) as server, Client(server.url) as client, pytest.raises(ServerError):
        client.predict("serving_default", inputs)
    assert server.requests[0][1]["inputs"] == inputs


def test_grpc_has_the_bytes_of_texts():
    with ScriptedGrpc() as server, Client(server.url) as client:
        assert client.translate(["é\0", "é\0".encode(), "a\0\0"]) == ["é\0", "é\0", "A\0\0"]  # the capitals of bytes
        with pytest.raises(UnicodeDecodeError):
            client.translate([b"\xff\xfe"])  # as this server sends it back
    assert [*server.requests[1].inputs["text"].string_val] == [b"\xff\xfe"]


@pytest.mark.parametrize("with_tls", [False, True])
def test_messages_may_be_larger_than_grpc_allows_by_itself(with_tls, tmp_path):
    """It allows 4 MiB."""
    text, credentials, settings = "a" * (5 * 1024 * 1024), None, {}
    if with_tls:
        authority = trustme.CA()
        issued = authority.issue_cert("127.0.0.1")
        chain = b"".join(part.bytes() for part in issued.cert_chain_pems)
        credentials = grpc.ssl_server_credentials([(issued.private_key_pem.bytes(), chain)])
        authority.cert_pem.write_to_path(tmp_path / "ca.pem")
        settings = {"ca_file": tmp_path / "ca.pem"}
    with ScriptedGrpc(credentials=credentials) as server, Client(server.url, **settings) as client:
        assert client.translate(text) == text.upper()


@pytest.mark.parametrize("kind", [ScriptedRest, ScriptedGrpc])
def test_the_token_goes_with_every_request(kind):
    with kind() as server, Client(server.url, token="abc") as client:
        client.translate(["one"] * 40)
        sent = server.headers if kind is ScriptedRest else server.metadata
        name = "Authorization" if kind is ScriptedRest else "authorization"
        assert {headers[name] for headers in sent} == {"Bearer abc"}
        assert len(sent) >= 2


def test_the_token_goes_before_the_password_of_a_netrc(tmp_path, monkeypatch):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login somebody password secret")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with ScriptedRest() as server, Client(server.url, token="abc") as client:
        client.translate("one")
    assert {headers["Authorization"] for headers in server.headers} == {"Bearer abc"}


# Inputs and outputs


def test_more_texts_than_the_batch_size_go_in_several_requests():
    texts = [f"text {number}" for number in range(11)]
    with ScriptedRest() as server, Client(server.url, batch_size=4) as client:
        assert client.translate(texts) == [text.upper() for text in texts]
    assert [len(body["inputs"]["text"]) for body in server.predictions] == [4, 4, 3]


def test_texts_that_are_too_large_together_are_halved_and_the_next_ones_are_not():
    too_large = (413, json.dumps({"error": "too large"}))
    texts = [f"text {number}" for number in range(9)]
    with ScriptedRest() as server, Client(server.url, batch_size=4) as client:
        client.translate("one")  # so that the types of the outputs are known
        server.answers += [too_large] * 2
        assert client.translate(texts) == [text.upper() for text in texts]
        server.answers += [too_large] * 3  # now a text is too large by itself
        with pytest.raises(ServerError, match="answers 413: too large"):
            client.translate(texts)
    assert [len(body["inputs"]["text"]) for body in server.predictions[1:]] == [4, 2, 1, 4, 4, 4, 2, 1]


def test_outputs_that_are_not_a_batch_cannot_be_put_together():
    one = (200, json.dumps({"outputs": {"translation": ["A"], "score": [0.0]}}))
    with ScriptedRest([one]) as server, Client(server.url, batch_size=2) as client:
        server.answers += [(200, json.dumps(server.usual_answer(None)))]
        with pytest.raises(ValueError, match=r"translation has the shape \(1,\) for 2 inputs. Give at most batch"):
            client.translate(["one", "two", "three"])


def test_a_single_output_gets_its_name_and_type_from_the_metadata():
    with ScriptedRest() as server, Client(server.url) as client:
        found = client.predict("lengths", {"text": ["one", "three"]})
    assert {name: (value.dtype, value.tolist()) for name, value in found.items()} == {"length": (np.int64, [3, 5])}


def test_the_metadata_are_asked_for_once_and_again_when_a_version_has_other_outputs():
    other = {"outputs": {"translation": ["A"], "tokens": [2]}}
    signatures = {"serving_default": {"outputs": {**METADATA["serving_default"]["outputs"]}}}
    signatures["serving_default"]["outputs"]["tokens"] = {"dtype": "DT_INT32"}
    del signatures["serving_default"]["outputs"]["score"]
    metadata = {"metadata": {"signature_def": {"signature_def": signatures}}}
    with ScriptedRest() as server, Client(server.url) as client:
        for _ in range(3):
            client.translate("one")
        assert [path for path, _ in server.requests].count("/v1/models/m/metadata") == 1
        server.answers += [(200, json.dumps(other)), (200, json.dumps(metadata))]
        found = client.predict("serving_default", {"text": ["one"]})
        assert (found["tokens"].dtype, found["tokens"].tolist()) == (np.int32, [2])
        server.answers += [(200, json.dumps({"outputs": {"x": [1], "y": [2]}}))]
        with pytest.raises(ServerError, match="gives other outputs of serving_default than its metadata describe"):
            client.predict("serving_default", {"text": ["one"]})


def test_another_program_behind_the_url_is_told():
    with ScriptedRest([(200, "<html>Welcome!</html>")]) as server, Client(server.url) as client:
        message = "does not answer like TensorFlow Serving's REST: 'outputs' is missing.*Welcome!"
        with pytest.raises(ServerError, match=message):
            client.translate("one")


def test_another_model_behind_the_url_is_told():
    signatures = {"serving_default": METADATA["lengths"]}
    metadata = {"metadata": {"signature_def": {"signature_def": signatures}}}
    answers = [(200, json.dumps({"outputs": [3]})), (200, json.dumps(metadata))]
    with ScriptedRest(answers) as server, Client(server.url) as client:
        message = "is no translator: its signature serving_default gives no translation, but length. Use predict."
        with pytest.raises(ValueError, match=message):
            client.translate("one")


@pytest.mark.parametrize("wrong", [["one", 2], [[1], [2, 3]], [None]], ids=str)
def test_inputs_that_are_no_tensor_are_refused(wrong):
    with Client("http://127.0.0.1:1/v1/models/m") as client, pytest.raises(ValueError, match="same length|shape"):
        client.predict("serving_default", {"text": wrong})


def test_what_is_for_all_texts_goes_with_every_request():
    texts = [f"text {number}" for number in range(10)]
    inputs = {"text": texts, "target_prefix": ["a"], "top_k": np.array(3, "int32")}
    with ScriptedRest() as server, Client(server.url, batch_size=4) as client:
        assert len(client.predict("serving_default", inputs)["translation"]) == 10
    sent = [body["inputs"] for body in server.predictions]
    assert [(len(one["text"]), one["target_prefix"], one["top_k"]) for one in sent] == [
        (4, ["a"], 3),
        (4, ["a"], 3),
        (2, ["a"], 3),
    ]


@pytest.mark.parametrize(
    ("dtype", "values", "expected"),
    [
        ("DT_DOUBLE", [0.1], np.array([0.1])),
        ("DT_FLOAT", [0.1], np.array([0.1], "float32")),
        ("DT_INT64", [2**40], np.array([2**40])),
        ("DT_BOOL", [True], np.array([True])),
        ("DT_STRING", [{"b64": "/w=="}], np.array([b"\xff"], object)),
        ("DT_HALF", [0.1], np.array([0.1], "float16")),
        ("DT_INT8", [-128], np.array([-128], "int8")),
        ("DT_UINT8", [255], np.array([255], "uint8")),
        ("DT_INT16", [-(2**15)], np.array([-(2**15)], "int16")),
        ("DT_INT32", [-(2**31)], np.array([-(2**31)], "int32")),
        ("DT_UINT32", [2**32 - 1], np.array([2**32 - 1], "uint32")),
        ("DT_UINT64", [2**64 - 1], np.array([2**64 - 1], "uint64")),
    ],
)
def test_outputs_have_the_type_of_the_metadata(dtype, values, expected):
    signatures = {"odd": {"inputs": {}, "outputs": {"image_bytes": {"dtype": dtype}}}}
    metadata = {"metadata": {"signature_def": {"signature_def": signatures}}}
    answers = [(200, json.dumps({"outputs": values})), (200, json.dumps(metadata))]
    with ScriptedRest(answers) as server, Client(server.url) as client:
        (found,) = client.predict("odd", {"text": ["one"]}).values()
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_the_usual_patience_of_a_client():
    """Up to a minute for an answer, six tries, and never a wait of more than a minute."""
    chosen = {name: parameter.default for name, parameter in inspect.signature(Client).parameters.items()}
    assert (chosen["timeout"], chosen["tries"], LONGEST_WAIT) == (60.0, 6, 60.0)
    busy = [(503, json.dumps({"error": "busy"}))] * 10
    with (
        ScriptedRest(busy) as server,
        Client(server.url, backoff_factor=0.0) as client,
        pytest.raises(ServerError, match="busy"),
    ):
        client.translate("one")
    assert len(server.predictions) == 6


def test_a_client_is_closed_at_the_end_of_its_block():
    with ScriptedGrpc() as server:
        with Client(server.url) as client:
            assert client.translate("one") == "ONE"
        with pytest.raises(ValueError, match="closed channel"):
            client.translate("one")
