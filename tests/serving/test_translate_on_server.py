"""`kformer translate --server`: the lines go to a server, and everything else is as with a model on this machine."""

import os
import re
import select
import subprocess
import sys
import time
import types

import numpy as np
import pytest
from scripted_rest import METADATA, ScriptedRest
from typer.testing import CliRunner

from kformer.cli.main import app
from kformer.client import Client, ServerError
from kformer.client.batches import REQUESTS_AT_ONCE, answer_batch
from kformer.text.batches import RefusedTextError

pytestmark = pytest.mark.tensorflow_only


def kformer(*arguments, stdin=b"", **variables):
    command = [sys.executable, "-m", "kformer", "translate", *map(str, arguments)]
    environment = {**os.environ, **variables}
    return subprocess.run(command, input=stdin, capture_output=True, check=False, env=environment)


def invoke(*arguments):
    """Runs the command in this process; its error, if there is one, is raised."""
    answer = CliRunner().invoke(app, ["translate", *map(str, arguments)], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output


@pytest.fixture
def lines(tmp_path, pairs):
    """A file of 40 lines, which a server takes in two requests."""
    path = tmp_path / "lines"
    path.write_text("".join(f"{source}\n" for source, _ in pairs))
    return path


def test_it_is_a_unix_filter_that_needs_no_tensorflow(served):
    url = f"{served.url}/v1/models/numbers"
    answer = kformer("--server", url, stdin=b"one two three\n\nsix one\r\nfive \xff two", PYTHONPROFILEIMPORTTIME="1")
    found = answer.stdout.decode("utf-8").split("\n")
    assert found[:3] == ["tres dos uno", "", "uno seis"]
    assert len(found) == 5
    imported = {*re.findall(r"\| +(\S+)\n", answer.stderr.decode())}
    assert "kformer.client.rest" in imported
    assert not {"tensorflow", "keras", "grpc", "starlette", "kformer.runtime.c_api"} & imported


def test_the_lines_of_a_file_come_back_in_order(served, lines, pairs, tmp_path):
    invoke("--server", f"{served.url}/v1/models/numbers", "--input", lines, "--output", tmp_path / "out")
    assert (tmp_path / "out").read_text().splitlines() == [target for _, target in pairs]


def test_n_best_over_grpc(served, lines, pairs, tmp_path):
    server = f"grpc://{served.grpc_address}/numbers"
    invoke("--server", server, "--input", lines, "--output", tmp_path / "out", "--n-best", 3)
    found = [line.split(" ||| ") for line in (tmp_path / "out").read_text().splitlines()]
    assert [line[0] for line in found] == [str(number) for number in range(40) for _ in range(3)]
    assert [line[1] for line in found[::3]] == [target for _, target in pairs]
    assert all(float(best[2]) >= float(next_best[2]) for best, next_best in zip(found[::3], found[1::3], strict=True))


@pytest.mark.parametrize("n_best", [2, 4])
def test_a_text_has_as_many_hypotheses_as_are_asked_for(served, n_best):
    """The server gives four."""
    with Client(f"{served.url}/v1/models/numbers") as client:
        first, second = answer_batch(client, n_best=n_best)([b"one two", b"three"])
    assert (len(first), len(second)) == (n_best, n_best)
    assert (first[0].text, second[0].text) == ("dos uno", "tres")


def test_several_requests_are_under_way_at_once(tmp_path):
    (tmp_path / "in").write_text("".join(f"line {number}\n" for number in range(200)))
    with ScriptedRest() as server:
        usual = server.usual_answer

        def slow(body):
            time.sleep(0.1)
            return usual(body)

        server.usual_answer = slow
        invoke("--server", server.url, "--input", tmp_path / "in", "--output", tmp_path / "out")
    assert (tmp_path / "out").read_text().splitlines() == [f"LINE {number}" for number in range(200)]
    assert sorted(len(body["inputs"]["text"]) for body in server.predictions) == [8, 32, 32, 32, 32, 32, 32]
    assert server.most_at_once == REQUESTS_AT_ONCE


def test_a_caller_that_writes_one_line_and_waits_is_answered():
    with ScriptedRest() as server:
        command = [sys.executable, "-m", "kformer", "translate", "--server", server.url]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
            for line in (b"one\n", b"two\n"):
                process.stdin.write(line)
                assert select.select([process.stdout], [], [], 60)[0], "no answer"
                assert process.stdout.readline() == line.upper()
            process.stdin.close()
    assert process.returncode == 0


@pytest.mark.parametrize("way", ["file", "variable"])
def test_a_token_is_read_from_a_file_or_a_variable(way, lines, tmp_path, monkeypatch):
    options = []
    if way == "file":
        (tmp_path / "token").write_text("abc\n", encoding="utf-8-sig")  # as Notepad writes it
        options = ["--token-file", tmp_path / "token"]
    monkeypatch.setenv("KFORMER_TOKEN", "of another server" if way == "file" else "abc")
    with ScriptedRest() as server:
        invoke("--server", server.url, "--input", lines, "--output", tmp_path / "out", *options)
    assert {headers["Authorization"] for headers in server.headers} == {"Bearer abc"}


REFUSED = {
    "a model beside it": ("--server {url} nowhere", "Name one model: --server URL names the server's. Leave out MODEL"),
    "a preset beside it": ("--server {url} --preset cmudict", "Name one model: --server URL names the server's."),
    "a beam": ("--server {url} --beam-size 2", "searches as its model was exported. Leave out --beam-size, or name"),
    "a length penalty": ("--server {url} --length-penalty 1", "searches as its model was exported."),
    "a recipe": ("--server {url} --recipe cmudict", "searches as its model was exported."),
    "another URL": ("--server localhost:8501", "must be http://HOST:8501/v1/models/NAME for REST, or grpc://HOST:8500/NA"),
    "port 0": ("--server http://localhost:0/v1/models/m", "must be http://HOST:8501/v1/models/NAME for REST, or grpc:"),
    "a token without a server": ("--preset cmudict --token-file {empty}", "--token-file is for a server."),
    "an empty token": ("--server {url} --token-file {empty}", "empty is empty. Write the token into it."),
    "too many hypotheses": ("--server {url} --n-best 5", "gives 4 hypotheses per text. Received: n_best=5. Ask for no"),
    "another model": ("--server {url}x", "answers 404: Servable not found for request: Latest(numbersx)"),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_what_a_server_cannot_do_is_told(arguments, message, served, lines, tmp_path):
    (tmp_path / "empty").write_text("\n")
    places = {"url": f"{served.url}/v1/models/numbers", "empty": tmp_path / "empty"}
    with pytest.raises((ValueError, OSError)) as refused:
        invoke(*arguments.format(**places).split(), "--input", lines, "--output", tmp_path / "out")
    assert message in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_a_server_whose_model_has_no_n_best_is_told_before_the_work(lines, tmp_path):
    with ScriptedRest() as server:
        with pytest.raises(ValueError, match="has no signature n_best, but lengths, serving_default. Leave out"):
            invoke("--server", server.url, "--input", lines, "--output", tmp_path / "out", "--n-best", 2)
        assert server.predictions == []


def test_a_server_that_refuses_is_one_line_without_a_traceback():
    with ScriptedRest([(400, '{"error": "Batch too large"}')]) as server:
        answer = kformer("--server", server.url, stdin=b"one\n")
    assert answer.returncode == 1
    assert answer.stderr.decode() == f"kformer: {server.url} answers 400: Batch too large\n"


def test_the_lines_before_a_line_that_a_server_refuses_are_written_and_its_number_is_told(served):
    """The longest line is asked for first."""
    url = f"{served.url}/v1/models/numbers"
    lines = [b"one two", b"three", b"one " * 4500, b"four", b"two " * 5000]
    answer = kformer("--server", url, stdin=b"\n".join(lines))
    assert answer.returncode == 1
    assert answer.stdout.split(b"\n") == [b"dos uno", b"tres", b""]
    assert answer.stderr.decode().startswith(
        f"kformer: Line 3: {url} answers 413: A text may have 16384 bytes. Received"
    )


@pytest.mark.parametrize("code", [400, 413, 503])
def test_of_a_batch_that_a_server_refuses_the_texts_are_asked_for_one_by_one(code):
    asked = []

    def predict(signature, inputs):
        asked.append(inputs["text"])
        if len(inputs["text"]) > 1 or inputs["text"] == [b"bad"]:
            raise ServerError("refused", code)
        return {"translation": np.array(inputs["text"], object), "score": np.zeros(1, np.float32)}

    metadata = {"metadata": {"signature_def": {"signature_def": METADATA}}}
    answer = answer_batch(types.SimpleNamespace(predict=predict, metadata=lambda: metadata, url="the server"))
    if code == 503:  # of the server, not of a text
        with pytest.raises(ServerError):
            answer([b"one", b"bad"])
        assert len(asked) == 1
        return
    assert [best[0].text for best in answer([b"one", b"two"])] == ["one", "two"]
    with pytest.raises(RefusedTextError, match="refused") as refused:
        answer([b"three", b"bad", b"four"])
    assert refused.value.text == b"bad"
    assert asked[3:] == [[b"three", b"bad", b"four"], [b"three"], [b"bad"]]


def test_equal_texts_of_a_batch_that_a_server_refuses_are_drawn_with_seeds_of_their_own():
    asked = []

    def predict(signature, inputs):
        asked.append((inputs["text"], int(inputs["seed"])))
        if len(inputs["text"]) > 1:
            raise ServerError("refused", 413)
        return {"translation": np.array(inputs["text"], object), "score": np.zeros(1, np.float32)}

    signatures = {**METADATA, "translate_with_options": METADATA["serving_default"]}
    metadata = {"metadata": {"signature_def": {"signature_def": signatures}}}
    client = types.SimpleNamespace(predict=predict, metadata=lambda: metadata, url="the server")
    answer = answer_batch(client, options={"temperature": 1.0, "seed": 7})
    assert len(answer([b"one", b"one", b"one"], seed=9)) == 3
    assert asked[0] == ([b"one"] * 3, 9)
    assert [texts for texts, _ in asked[1:]] == [[b"one"]] * 3
    assert len({seed for _, seed in asked[1:]}) == 3
