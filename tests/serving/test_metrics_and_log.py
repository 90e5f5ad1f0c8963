"""What a server counts and logs, without a server."""

import asyncio
import json
import logging
import os
import sys
import time
import types
import warnings

import grpc
import pytest
from starlette.testclient import TestClient
from tensorflow_serving.apis import get_model_status_pb2

from kformer.runtime.status_codes import Code
from kformer.serving import logs
from kformer.serving.batching import ClosedError
from kformer.serving.errors import ServingError
from kformer.serving.grpc_service import ModelService
from kformer.serving.logs import JsonLines, start_logging
from kformer.serving.metrics import Metrics
from kformer.serving.predict import Answerer
from kformer.serving.rest import application
from kformer.serving.settings import Limits, ServerSettings

pytestmark = pytest.mark.tensorflow_only


def samples(metrics):
    lines = metrics.page().decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


def test_seconds_are_those_of_requests_that_were_answered():
    metrics = Metrics()
    metrics.count("m", "OK", 0.25)
    metrics.count("m", "OK", 0.5)
    metrics.count("m", "RESOURCE_EXHAUSTED", 8.0)
    found = samples(metrics)
    assert found['kformer_requests_total{code="OK",model="m"}'] == 2
    assert found['kformer_requests_total{code="RESOURCE_EXHAUSTED",model="m"}'] == 1
    assert found['kformer_request_seconds_sum{model="m"}'] == 0.75


def test_texts_and_seconds_of_batches():
    metrics = Metrics()
    metrics.batch("m", "serving_default", 8, 0.25)
    found = samples(metrics)
    assert found['kformer_batch_texts_sum{model="m",signature="serving_default"}'] == 8
    assert found['kformer_batch_seconds_sum{model="m",signature="serving_default"}'] == 0.25


def test_batches_of_up_to_128_texts_and_the_memory_of_the_process_are_shown():
    metrics = Metrics()
    for texts in (64, 65, 128, 129):
        metrics.batch("m", "s", texts, 0.25)
    found = samples(metrics)
    bucket = 'kformer_batch_texts_bucket{{le="{}",model="m",signature="s"}}'.format
    assert [found[bucket(most)] for most in ("32.0", "64.0", "128.0", "+Inf")] == [0, 1, 3, 4]
    assert found["process_resident_memory_bytes"] > 0


def test_of_a_model_that_is_served_no_more_nothing_is_shown():
    metrics = Metrics()
    for model in ("m", "other"):
        for code in ("OK", "NOT_FOUND"):
            metrics.count(model, code, 0.25)
        metrics.batch(model, "serving_default", 8, 0.25)
    before = samples(metrics)
    metrics.forget_model("m")
    metrics.forget_model("never there")
    others = {name for name in before if name.startswith("kformer") and 'model="m"' not in name}
    assert {name for name in samples(metrics) if name.startswith("kformer")} == others
    assert 'kformer_requests_total{code="OK",model="other"}' in others


class Names:
    """A manager that knows the name m."""

    def names(self):
        return ["m"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RuntimeError("a fault of ours"), "INTERNAL"),
        (ServingError(Code.NOT_FOUND, "no such version"), "NOT_FOUND"),
        (asyncio.CancelledError(), "CANCELLED"),
    ],
)
def test_a_request_is_counted_by_how_it_ends(error, code):
    metrics = Metrics()
    answerer = Answerer(Names(), Limits(), metrics)
    with pytest.raises(type(error)), answerer.counted("m"):
        raise error
    with answerer.counted("m"):
        pass
    found = samples(metrics)
    assert found[f'kformer_requests_total{{code="{code}",model="m"}}'] == 1
    assert found['kformer_requests_total{code="OK",model="m"}'] == 1


def test_a_fault_of_the_server_is_told_in_its_log_alone(caplog):
    def fail(*_):
        raise RuntimeError("a secret")

    async def endpoint(request):
        fail()

    async def abort(code, message):
        told.append((code, message))

    told, words = [], "The server failed. Its log says why."
    answer = TestClient(application(endpoint)).get("/v1/models/m")
    assert (answer.status_code, answer.json()) == (500, {"error": words})
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "m"
    service, context = ModelService(types.SimpleNamespace(status=fail)), types.SimpleNamespace(abort=abort)
    asyncio.run(service.GetModelStatus(request, context))
    assert told == [(grpc.StatusCode.INTERNAL, words)]
    assert caplog.text.count("RuntimeError: a secret") == 2


def test_a_request_to_a_version_that_is_let_go_goes_to_the_next_one():
    class Swapped(Names):
        """Its first version is unloaded when it is asked."""

        asked = 0

        def servable(self, *_):
            return self

        def signature(self, _):
            return self

        def complete(self, inputs):
            return inputs

        def check_outputs(self, names):
            pass

        def submit(self, signature, inputs, client, seconds):
            self.asked += 1
            if self.asked < 3:
                raise ClosedError
            import concurrent.futures

            answer = concurrent.futures.Future()
            answer.set_result({"translation": ["uno"]})
            return answer

    manager = Swapped()
    _, _, outputs = asyncio.run(Answerer(manager, Limits(), Metrics()).predict("m", lambda _: {}))
    assert outputs == {"translation": ["uno"]}
    manager.asked = -10
    with pytest.raises(ServingError, match="is being unloaded"):
        asyncio.run(Answerer(manager, Limits(), Metrics()).predict("m", lambda _: {}))


def test_a_message_is_cut_off_where_a_client_would_refuse_it():
    assert str(ServingError(Code.NOT_FOUND, "x" * 500)) == "x" * 500
    assert str(ServingError(Code.NOT_FOUND, "x" * 501)) == "x" * 500 + " ..."


@pytest.fixture
def _in_tokyo(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_in_tokyo")
def test_times_in_the_log_are_utc_wherever_the_server_stands():
    record = logging.LogRecord("kformer.serving", logging.INFO, "", 0, "ready", (), None)
    for milliseconds, written in ((250.0, "250"), (7.0, "007"), (0.9, "000")):
        record.created, record.msecs = 1_700_000_000 + milliseconds / 1000, milliseconds
        assert json.loads(JsonLines().format(record)) == {
            "time": f"2023-11-14T22:13:20.{written}Z", "level": "info", "event": "ready",
        }  # fmt: skip


@pytest.mark.parametrize(("level", "expected"), [("debug", logging.DEBUG), ("error", logging.ERROR)])
def test_the_level_of_the_log_is_the_one_that_is_asked_for(level, expected, monkeypatch):
    logger, libraries = logging.getLogger("kformer.serving"), logging.getLogger()
    before, warned = (logger.level, libraries.level, libraries.handlers), []
    monkeypatch.setattr(logging, "raiseExceptions", True)
    logging.captureWarnings(False)  # an earlier test may have started the log
    try:
        start_logging(level)
        assert logger.getEffectiveLevel() == expected
        assert libraries.level == max(expected, logging.WARNING)
        assert not logging.raiseExceptions  # a log that cannot be written is no reason to write more
        (handler,) = libraries.handlers
        messages = [logging.LogRecord("uvicorn", logging.ERROR, "", 0, "Invalid", (), None) for _ in range(2)]
        assert [bool(handler.filter(message)) for message in messages] == [True, False]
        monkeypatch.setattr(handler, "emit", lambda record: warned.append(record.getMessage()))
        with warnings.catch_warnings(action="default"):
            warnings.warn("slow here", stacklevel=1)
        assert len(warned) == (level != "error")
    finally:
        logging.captureWarnings(False)
        logger.setLevel(before[0])
        libraries.setLevel(before[1])
        libraries.handlers = before[2]


def test_a_failure_is_written_with_its_traceback():
    try:
        raise ValueError("a fault of ours")
    except ValueError:
        record = logging.LogRecord("kformer.serving", logging.ERROR, "", 0, "failed", (), sys.exc_info())
    line = json.loads(JsonLines().format(record))
    assert line["event"] == "failed"
    assert line["exception"].endswith("ValueError: a fault of ours")


def test_what_happens_often_is_written_once_a_minute_with_how_often_it_was_left_out(caplog, clock):
    rarely = logs.Rarely(logging.getLogger("kformer.serving.test"))
    for seconds in (0, 1, 59.9, 60, 61, 120):
        clock[0] = 1000.0 + seconds
        rarely.warning("crowded", connections=seconds)
    rarely.warning("no descriptor")  # another event
    assert [(record.getMessage(), record.fields) for record in caplog.records] == [
        ("crowded", {"connections": 0}),
        ("crowded", {"connections": 60, "left_out": 2}),
        ("crowded", {"connections": 120, "left_out": 1}),
        ("no descriptor", {}),
    ]


def test_a_library_writes_the_same_message_once_a_minute_and_the_server_each(clock):
    def written(name, message, *arguments):
        record = logging.LogRecord(name, logging.WARNING, "", 0, message, arguments, None)
        return getattr(record, "fields", {}) if filtered.filter(record) else None

    filtered = logs.RarelyFromLibraries()
    assert [written("uvicorn", "Invalid: %s", number) for number in range(3)] == [{}, None, None]
    assert written("asyncio", "Invalid: %s", 4) == written("uvicorn", "Other: %s", 5) == {}
    assert [written("kformer.serving", "refused") for _ in range(2)] == [{}, {}]
    clock[0] += 60
    assert written("uvicorn", "Invalid: %s", 6) == {"left_out": 2}


def logger_of(handler):
    logger = logging.Logger("test")
    handler.setFormatter(JsonLines())
    logger.addHandler(handler)
    return logger


def test_who_writes_to_the_log_does_not_wait_for_who_reads_it(monkeypatch):
    """The pipe holds 64 KB. Then 100 lines wait, and the others are counted."""
    monkeypatch.setattr(logs, "LINES_AHEAD", 100)
    reading, writing = os.pipe()
    logger = logger_of(logs.WithoutWaiting(writing))
    for number in range(5000):
        logger.info("refused", extra={"fields": {"number": number}})
    lines = []
    with os.fdopen(reading) as log:
        for line in log:
            lines.append(json.loads(line))
            if len(lines) == 50:  # now there is room
                time.sleep(0.2)
                logger.info("last")
            if lines[-1]["event"] == "last":
                break
    numbers = [line["number"] for line in lines[:-1]]
    assert numbers == sorted(numbers)
    assert sum(line.get("lost", 0) for line in lines) + len(lines) == 5001
    assert sum(line.get("lost", 0) for line in lines) > 1000


def test_lines_that_wait_are_written_before_the_process_ends(tmp_path):
    with (tmp_path / "log").open("wb") as log:
        handler = logs.WithoutWaiting(log.fileno())
        logger = logger_of(handler)
        for _ in range(500):
            logger.info("one")
        handler.flush()
    assert len((tmp_path / "log").read_text().splitlines()) == 500


def test_folders_are_looked_at_every_second():
    assert ServerSettings([]).poll_seconds == 1.0
