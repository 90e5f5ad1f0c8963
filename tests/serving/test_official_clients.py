"""What others use for TensorFlow Serving, unchanged against `kformer serve`: curl, the official stubs, plain Python.

The forms of requests and answers are those of https://www.tensorflow.org/tfx/serving/api_rest.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from typing import NamedTuple

import pytest
from servers import running

from kformer.export.operations import read
from kformer.serving.model_settings import ModelSettings
from kformer.serving.settings import ServerSettings

pytestmark = pytest.mark.tensorflow_only
EXPORT = pathlib.Path(__file__).parents[2] / "export"
TEXTS = {"TEXT": "one two three", "MORE": "six one", "TRANSLATION": "tres dos uno"}

# "GET http://host:port/v1/models/${MODEL_NAME}[/versions/${VERSION}|/labels/${LABEL}][/metadata]"
GET = r"http://[^/]+/v1/models/[^/:]+(/versions/\d+|/labels/[^/:]+)?(/metadata)?"
# "POST http://host:port/v1/models/${MODEL_NAME}[/versions/${VERSION}|/labels/${LABEL}]:predict"
POST = r"http://[^/]+/v1/models/[^/:]+(/versions/\d+|/labels/[^/:]+)?:predict"


class Shown(NamedTuple):
    """A command that the script shows, and its answer."""

    command: list[str]
    answer: str

    @property
    def url(self):
        return self.command[-1]

    @property
    def body(self):
        """What is sent; None where nothing is."""
        return json.loads(self.command[self.command.index("-d") + 1]) if "-d" in self.command else None


def show(server):
    """What the script shows, by its headings."""
    done = subprocess.run(
        ["bash", EXPORT / "client_curl.sh", server.url, "numbers"],
        env={**os.environ, **TEXTS}, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stderr == ""
    sections = re.findall(r"^# (.*)\n\$ (.*)\n((?:(?!# ).*\n)*)", done.stdout, re.MULTILINE)
    return {heading: Shown(shlex.split(command), answer) for heading, command, answer in sections}


@pytest.fixture(scope="module")
def shown(served):
    return show(served)


needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")


@needs_curl
def test_the_requests_have_the_forms_of_the_documentation(shown):
    assert len(shown) == 14
    for request in shown.values():
        assert request.command[0] == "curl"
        if request.body is None:
            assert re.fullmatch(GET, request.url)
            continue
        assert re.fullmatch(POST, request.url)
        assert request.command[-3:-1] == ["-X", "POST"]
        # "A request can have either of them but NOT both."
        assert len({*request.body} & {"instances", "inputs"}) == 1
        assert {*request.body} <= {"signature_name", "instances", "inputs"}


@needs_curl
@pytest.mark.parametrize(
    ("heading", "predictions"),
    [
        ("Row format: the values of the only input", ["tres dos uno"]),
        ("Row format: an object for each text", ["tres dos uno"]),
        ("Row format: a batch, of at most 32 texts", ["tres dos uno", "uno seis"]),
        ("Bytes in base64, which need not be UTF-8", ["tres dos uno"]),
        ("A version by its number", ["tres dos uno"]),
        ("A signature by its name", ["tres dos uno"]),
    ],
)
def test_rows_have_a_list_of_objects_as_predictions(shown, heading, predictions):
    answer = json.loads(shown[heading].answer)
    assert {*answer} == {"predictions"}
    assert [row["translation"] for row in answer["predictions"]] == predictions
    assert all({*row} == {"translation", "score"} and isinstance(row["score"], float) for row in answer["predictions"])


@needs_curl
@pytest.mark.parametrize(
    "heading", ["Column format: a list for each input", "Column format: the list of the only input"]
)
def test_columns_have_an_object_of_lists_as_outputs(shown, heading):
    answer = json.loads(shown[heading].answer)
    assert {*answer} == {"outputs"}
    assert {*answer["outputs"]} == {"translation", "score"}
    assert answer["outputs"]["translation"] == ["tres dos uno", "uno seis"]


@needs_curl
@pytest.mark.parametrize("signatures", [{"serving_default"}, {"serving_default", "translate_detailed"}])
def test_only_signatures_that_the_model_has_are_asked_for(cold_export_folder, tmp_path, signatures):
    version = shutil.copytree(cold_export_folder / "1", tmp_path / "numbers" / "1")
    model = read(version)
    for name in {*model.meta_graphs[0].signature_def} - signatures:
        if not name.startswith("__"):
            del model.meta_graphs[0].signature_def[name]
    (version / "saved_model.pb").write_bytes(model.SerializeToString())
    with running(ServerSettings([ModelSettings("numbers", version.parent)], rest_port=0, grpc_port=0)) as server:
        requests = show(server)
    assert len(requests) == 12
    failed = [heading for heading, request in requests.items() if '"error"' in request.answer]
    assert failed == ["An error: a model that is not served", "An error: a request without inputs"]


@needs_curl
def test_other_signatures_have_several_values_and_several_inputs(shown):
    (best,) = json.loads(shown["Outputs of several values"].answer)["predictions"]
    assert best["translation"][0] == "tres dos uno"
    assert len(best["translation"]) == len(best["score"]) == 4  # the width of the beam
    (pair,) = json.loads(shown["Several inputs"].answer)["predictions"]
    assert shown["Several inputs"].body["instances"] == [{"text": "one two three", "translation": "tres dos uno"}]
    assert (pair["tokens"], pair["truncated"]) == (4, False)


@needs_curl
def test_the_status_is_a_get_model_status_response(shown):
    status = {"error_code": "OK", "error_message": ""}
    assert json.loads(shown["The status of every version"].answer) == {
        "model_version_status": [{"version": "1", "state": "AVAILABLE", "status": status}]
    }


@needs_curl
def test_the_metadata_are_a_get_model_metadata_response(shown):
    answer = json.loads(shown["The metadata: the signatures, their inputs and outputs"].answer)
    assert answer["model_spec"] == {"name": "numbers", "signature_name": "", "version": "1"}
    assert {*answer["metadata"]} == {*answer["metadata"]["signature_def"]} == {"signature_def"}
    default = answer["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert default["method_name"] == "tensorflow/serving/predict"
    tensor_shape = {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False}
    for tensors, types in (
        ("inputs", {"text": "DT_STRING"}),
        ("outputs", {"translation": "DT_STRING", "score": "DT_FLOAT"}),
    ):
        assert {name: tensor["dtype"] for name, tensor in default[tensors].items()} == types
        assert all(tensor["tensor_shape"] == tensor_shape for tensor in default[tensors].values())


@needs_curl
@pytest.mark.parametrize(
    ("heading", "status", "error"),
    [
        # The documentation's own words: "Servable not found for request: Latest(half)".
        (
            "An error: a model that is not served",
            "404 Not Found",
            "Servable not found for request: Latest(no-such-model)",
        ),
        ("An error: a request without inputs", "400 Bad Request", "No values in 'instances' array"),
    ],
)
def test_an_error_is_an_object_with_the_key_error(shown, heading, status, error):
    head, _, body = shown[heading].answer.partition("\n\n")
    first, *headers = head.splitlines()
    assert first == f"HTTP/1.1 {status}"
    assert "content-type: application/json" in [header.lower() for header in headers]
    assert json.loads(body) == {"error": error}


def test_the_official_stubs_work_unchanged(served):
    command = [sys.executable, EXPORT / "client_grpc.py", "--server", served.grpc_address, "--model", "numbers"]
    done = subprocess.run(
        [*command, "one two three", "six one"], capture_output=True, text=True, check=True, timeout=60
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "status: version 1 is AVAILABLE"
    assert lines[1] == "signature known_tags: text DT_STRING (-1) -> tags DT_STRING (-1, 0)"
    assert lines[2:5] == [
        "signature n_best: text DT_STRING (-1) -> score DT_FLOAT (-1, 4), translation DT_STRING (-1, 4)",
        "signature score: text DT_STRING (-1), translation DT_STRING (-1) -> log_probability DT_FLOAT (-1), "
        "score DT_FLOAT (-1), tokens DT_INT32 (-1), truncated DT_BOOL (-1)",
        "signature serving_default: text DT_STRING (-1) -> score DT_FLOAT (-1), translation DT_STRING (-1)",
    ]
    assert lines[5].startswith("signature translate_detailed: text DT_STRING (-1) -> alignment DT_FLOAT (-1, -1, -1), ")
    assert lines[6].startswith("signature translate_with_options: length_penalty DT_FLOAT (), max_length DT_INT32 (), ")
    assert re.fullmatch(r"version 1 translates: one two three -> tres dos uno \(-\d\.\d{3}\)", lines[7])
    assert re.fullmatch(r"version 1 translates: six one -> uno seis \(-\d\.\d{3}\)", lines[8])
    assert lines[9:] == ["refused: NOT_FOUND Servable not found for request: Latest(no-such-model)"]


@pytest.mark.slow
def test_the_official_stubs_tell_a_server_that_is_not_there():
    command = [sys.executable, EXPORT / "client_grpc.py", "--server", "127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "client_grpc.py: UNAVAILABLE: failed to connect" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_client_in_plain_python_works_unchanged(served, pairs):
    command = [sys.executable, EXPORT / "client_rest.py", "--url", f"{served.url}/v1/models/numbers"]
    lines = "".join(f"{source}\n" for source, _ in pairs)  # 40: two requests
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == [target for _, target in pairs]
