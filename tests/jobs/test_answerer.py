"""What answers the batches of a job."""

import pickle
import shutil
import socket
import time

import pytest
from scripted_rest import METADATA, ScriptedRest

from kformer.client import ServerError
from kformer.inference import Model
from kformer.inference.find import find_model
from kformer.inference.fingerprint import fingerprint
from kformer.jobs.answerer import LocalModel, ServedModel
from kformer.jobs.asking import AskedAnswers
from kformer.text.batches import Hypothesis

pytestmark = pytest.mark.tensorflow_only


def test_a_model_that_has_changed_answers_nothing(numbers_plain_export, tmp_path):
    folder = shutil.copytree(numbers_plain_export, tmp_path / "export")
    sums = fingerprint(find_model(folder))
    with pickle.loads(pickle.dumps(LocalModel(Model(folder), sha256=sums))).opened() as answer:
        assert [found[0].text for found in answer([b"one two", b"six"], 0).found] == ["dos uno", "seis"]
    with open(next(folder.rglob("variables.data*")), "r+b") as file:
        file.write(b"\1")
    with pytest.raises(ValueError, match="has changed since the job began. Restore the model"):
        LocalModel(Model(folder), sha256=sums).opened().__enter__()


def test_short_answers_are_noted(numbers_plain_export):
    with LocalModel(Model(numbers_plain_export), short_ratio=0.75).opened() as answer:
        answers = answer([b"one", b"three three three three", b"two"], 0)
    assert [found[0].text for found in answers.found] == ["uno", "tres tres tres tres", "dos"]
    assert answers.notes == {}
    with LocalModel(Model(numbers_plain_export), short_ratio=0.9).opened() as answer:
        answers = answer([b"one", b"three three three three", b"two"], 0)
    assert answers.notes == {"short": [1]}  # 19 characters for 23
    assert isinstance(answers.found[0][0], Hypothesis)


def test_a_server_is_asked_for_no_more_texts_at_once_than_servers_take():
    texts = [b"text %d" % number for number in range(70)]
    with ScriptedRest() as server, ServedModel(server.url).opened() as answer:
        found = answer(texts, 7).found
        assert [one.text for [one] in found] == [text.decode().upper() for text in texts]
        assert [len(body["inputs"]["text"]) for body in server.predictions] == [32, 32, 6]


def test_a_server_that_does_not_answer_in_time_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1/models/numbers"
        began = time.monotonic()
        with pytest.raises(ServerError), ServedModel(url, timeout=0.5).opened() as answer:
            answer([b"one"], 0)
        assert time.monotonic() - began < 20  # a client waits for 60 seconds where nothing else is said


def test_requests_that_a_batch_needs_draw_with_seeds_of_their_own(monkeypatch):
    """Equal texts would be drawn alike otherwise."""
    monkeypatch.setitem(METADATA, "translate_with_options", METADATA["serving_default"])
    drawn = AskedAnswers(options={"temperature": 1.0})
    with ScriptedRest() as server, ServedModel(server.url, asking=drawn).opened() as answer:
        answer([b"one"] * 70, 7)
    seeds = [body["inputs"]["seed"] for body in server.predictions]
    assert seeds == [7, 7 + (32 << 32), 7 + (64 << 32)]  # by the number of texts before
