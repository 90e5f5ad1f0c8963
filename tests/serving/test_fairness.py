"""Shares of clients, lanes of small and large requests, and how long a request may have to wait."""

import asyncio
import concurrent.futures
import threading
import types

import numpy as np
import pytest
from starlette.testclient import TestClient

from kformer.runtime.status_codes import Code
from kformer.serving import scheduling
from kformer.serving.batching import Batcher
from kformer.serving.costs import Costs
from kformer.serving.errors import ServingError
from kformer.serving.fair_queue import FairQueue, Request
from kformer.serving.model_settings import Batching
from kformer.serving.predict import Answerer
from kformer.serving.rest import application
from kformer.serving.scheduling import Lanes
from kformer.serving.settings import Limits

pytestmark = pytest.mark.tensorflow_only


def request(client="", rows=1, seconds=1.0, size=5):
    return Request("s", {}, rows, rows, size, size, True, client, seconds)


def filled(*requests, max_rows=1):
    queue = FairQueue(max_rows)
    for entry in requests:
        queue.put(entry)
    return queue


def order(queue):
    return [request.client for _ in range(len(queue)) for request in queue.take()]


# What a request costs


def test_costs_are_the_times_that_batches_of_like_texts_have_taken():
    costs = Costs()
    assert costs.seconds("s", 5, 1) == 0  # nothing is known
    costs.note("s", longest=5, rows=1, seconds=0.1)
    assert costs.seconds("s", 7, 3) == pytest.approx(0.3)  # texts of 4 to 7 bytes are alike
    costs.note("s", longest=5, rows=8, seconds=0.4)  # in a full batch a row takes half
    assert costs.seconds("s", 5, 2) == pytest.approx(0.1)
    costs.note("s", longest=5, rows=8, seconds=0.8)  # a slower batch weighs a fifth: 0.8 * 0.05 + 0.2 * 0.1
    assert costs.seconds("s", 5, 1) == pytest.approx(0.06)
    costs.note("s", longest=5, rows=8, seconds=0.32)  # a faster one a half: 0.5 * 0.06 + 0.5 * 0.04
    assert costs.seconds("s", 5, 1) == pytest.approx(0.05)
    assert costs.seconds("s", 8, 1) == pytest.approx(2 * 0.05)  # 8 to 15 bytes, twice as many, unknown
    assert costs.seconds("s", 3, 1) == pytest.approx(0.05 / 2)
    assert costs.seconds("s", 4000, 1) == pytest.approx(4 * 0.05)  # but what is unknown is never much more
    assert costs.seconds("s", 5, 9999) == pytest.approx(64 * 0.05)  # neither for rows: four times 16, which 8 count as
    costs.note("s", longest=40, rows=8, seconds=4)
    assert costs.seconds("s", 40, 1) == pytest.approx(0.5)
    assert costs.seconds("other", 5, 1) == 0


# Shares of a queue


def test_clients_are_served_in_turns_however_much_each_asks():
    queue = filled(*[request("many") for _ in range(4)], request("one"), request("other"))
    assert order(queue) == ["many", "one", "other", "many", "many", "many"]


def test_a_request_counts_by_its_cost():
    """Two seconds of one client against one second of the other, each time."""
    queue = filled(*[request("slow", seconds=2) for _ in range(3)], *[request("fast") for _ in range(5)])
    assert order(queue) == ["slow", "fast", "fast", "slow", "fast", "fast", "slow", "fast"]


def test_where_no_cost_is_known_rows_count():
    two = [request("two", rows=2, seconds=0.0) for _ in range(2)]
    queue = filled(*two, *[request("one", seconds=0.0) for _ in range(4)])
    assert order(queue) == ["two", "one", "one", "two", "one", "one"]


def test_those_who_stay_keep_their_turns_when_others_leave():
    gone = request("a")
    queue = filled(gone, request("a"), request("b"), request("a"))
    gone.answer.cancel()
    queue.drop_cancelled()
    assert order(queue) == ["b", "a", "a"]


def test_who_has_been_served_before_has_no_claim_and_no_debt():
    queue = filled(*[request("a") for _ in range(3)])
    assert order(queue) == ["a", "a", "a"]
    for client in ("a", "b", "a"):
        queue.put(request(client))
    assert order(queue) == ["a", "b", "a"]


def test_before_a_clients_request_others_have_as_much_as_itself_at_most():
    queue = filled(*[request("many", rows=2, seconds=3) for _ in range(4)], request("one", seconds=1))
    assert (queue.rows_before("many"), queue.seconds_before("many")) == (9, 13)
    assert (queue.rows_before("one"), queue.seconds_before("one")) == (2, 2)
    assert (queue.rows_before("new"), queue.seconds_before("new")) == (0, 0)


# Bounds of waiting


def lanes(**options):
    return Lanes(Batching(**{"max_batch_size": 32, "num_batch_threads": 2, **options}))


def test_what_is_computed_is_waited_for_unless_another_thread_is_free(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(scheduling.time, "monotonic", lambda: now[0])
    target = lanes()
    put(target, request("a", seconds=8.0))
    target.next(at_once=True)
    put(target, request("a", seconds=6.0), seconds=0.0)  # the other thread takes it
    target.next(at_once=True)
    now[0] += 2.0  # 6 and 4 seconds are left of two threads
    with pytest.raises(ServingError, match="0 texts wait already, and take about 5.0 seconds"):
        put(target, request("b"), seconds=4.9)
    now[0] += 4.5  # 1.5 seconds, and what takes longer than was expected counts as nothing
    put(target, request("b"), seconds=0.8)


def test_a_request_that_is_larger_than_the_queue_is_taken_where_nothing_waits():
    target = lanes(max_enqueued_batches=1)
    put(target, request("a", rows=40, seconds=0.0))
    with pytest.raises(ServingError, match="The server is busy: 40 texts wait already"):
        put(target, request("a", rows=5, seconds=0.0))


def put(target, entry, seconds=10.0):
    target.put(entry, "key", 32, seconds)


def test_a_request_that_would_wait_too_long_is_refused_and_told_when_to_come_back():
    target = lanes()
    for _ in range(5):
        put(target, request("a", seconds=4.0))  # 20 seconds of two threads
    with pytest.raises(
        ServingError, match="The server is busy: 5 texts wait already, and take about 10.0 seconds"
    ) as told:
        put(target, request("a"), seconds=7.5)
    assert (told.value.code, told.value.retry_seconds) == (Code.RESOURCE_EXHAUSTED, 3)
    put(target, request("a"), seconds=10.0)
    put(target, request("b"), seconds=0.1)  # another client has its share


def test_a_client_of_rest_is_told_when_to_come_back():
    """After the 2.5 seconds by which the wait of 10 is too long, and the half that its own second takes two threads."""
    target = lanes()
    for _ in range(5):
        put(target, request("a", seconds=4.0))

    async def endpoint(asked):
        put(target, request("a"), seconds=7.5)

    answer = TestClient(application(endpoint)).get("/")
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "3")


def test_those_that_are_refused_come_back_one_after_the_other():
    target = lanes()
    for _ in range(5):
        put(target, request("a", seconds=4.0))  # 10 seconds of both threads

    def told():
        with pytest.raises(ServingError) as error:
            put(target, request("a", seconds=4.0), seconds=9.5)
        return error.value.retry_seconds

    # There is room for the first after 0.5 seconds and its own 2; and nobody comes when all work has long been done.
    assert [told() for _ in range(6)] == [3, 5, 7, 9, 10, 10]


def test_a_client_that_asks_at_once_again_does_not_put_off_the_turns_of_others_for_long(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(scheduling.time, "monotonic", lambda: now[0])
    target = lanes()
    for _ in range(5):
        put(target, request("a", seconds=4.0))

    def told():
        with pytest.raises(ServingError) as error:
            put(target, request("a", seconds=4.0), seconds=9.5)
        return error.value.retry_seconds

    assert [told() for _ in range(100)][-1] == 10
    now[0] += 10.0  # nobody was refused meanwhile
    assert told() == 3


def test_a_client_cannot_fill_the_queue_of_others():
    target = lanes(max_enqueued_batches=2)
    for _ in range(64):
        put(target, request("flood", seconds=0.0))
    with pytest.raises(ServingError):
        put(target, request("flood", seconds=0.0))
    for _ in range(32):  # with as many of the flood before them, these are 64, two batches
        put(target, request("other", seconds=0.0))
    with pytest.raises(ServingError):
        put(target, request("other", seconds=0.0))


# Lanes


def predicted(submit, **options):
    """What a predictor makes of one text, with a model that has this `submit`."""
    signature = types.SimpleNamespace(complete=lambda inputs: inputs, check_outputs=lambda names: None)
    servable = types.SimpleNamespace(signature=lambda name: signature, submit=submit)
    manager = types.SimpleNamespace(servable=lambda *which: servable)
    inputs = {"text": np.array([b"one"], object)}
    return asyncio.run(Answerer(manager, Limits(), None).predict("m", lambda signature: inputs, **options))


def test_a_request_without_time_left_is_too_late_and_not_one_too_many():
    batcher = Batcher(lambda signature, inputs: inputs, Batching(num_batch_threads=1), on_batch=lambda *_: None)
    with pytest.raises(ServingError, match="than the client waits") as late:
        predicted(
            lambda signature, inputs, client, seconds: batcher.submit("s", inputs, True, client, seconds),
            seconds=-0.01,
        )
    assert late.value.code == Code.DEADLINE_EXCEEDED


def test_a_client_has_one_share_whether_the_server_listens_on_ipv4_or_ipv6():
    clients = []

    def submit(signature, inputs, client, seconds):
        clients.append(client)
        answer = concurrent.futures.Future()
        answer.set_result(inputs)
        return answer

    for address in ("1.2.3.4", "::ffff:1.2.3.4", "2001:db8::1"):
        predicted(submit, client=address)
    assert clients == ["1.2.3.4", "1.2.3.4", "2001:db8::1"]


def take(target):
    found = target.next(at_once=True)
    return found, [entry.client for entry in found.requests]


def test_small_requests_do_not_wait_behind_large_ones_and_share_no_batch_with_them():
    target = lanes()
    for _ in range(3):
        put(target, request("large", rows=32))
    put(target, request("small"))
    _, clients = take(target)
    assert clients == ["small"] or clients == ["large"]
    _, more = take(target)
    assert {*clients, *more} == {"large", "small"}
    assert 0 < target.next(at_once=True) <= 5  # for so long the second thread is kept for small requests
    put(target, request("small"))
    assert take(target)[1] == ["small"]


@pytest.mark.parametrize(("max_batch_size", "texts"), [(1, 4), (8, 4), (32, 4), (128, 16)])
def test_a_request_is_small_up_to_four_texts_or_an_eighth_of_a_batch(max_batch_size, texts):
    target = lanes(max_batch_size=max_batch_size)
    put(target, request("small", rows=texts))
    put(target, request("large", rows=texts + 1))
    assert sorted(take(target)[1] + take(target)[1]) == ["large", "small"]  # in batches of their own
    put(target, request("small", rows=1))
    put(target, request("small", rows=texts))
    assert take(target)[1] == ["small", "small"]


def test_while_large_requests_are_at_work_small_ones_expect_one_thread():
    target = lanes()
    put(target, request("large", rows=32))
    large, _ = take(target)
    for _ in range(5):
        put(target, request("a", seconds=4.0), seconds=20.0)
    with pytest.raises(ServingError, match="5 texts wait already, and take about 20.0 seconds"):
        put(target, request("a"), seconds=7.5)
    target.end(large, 1.0)
    with pytest.raises(ServingError, match="5 texts wait already, and take about 10.0 seconds"):
        put(target, request("a"), seconds=7.5)


def test_while_large_requests_wait_small_ones_expect_one_thread():
    target = lanes()
    put(target, request("large", rows=32))
    for _ in range(5):
        put(target, request("a", seconds=4.0), seconds=20.0)
    with pytest.raises(ServingError, match="5 texts wait already, and take about 20.0 seconds"):
        put(target, request("a"), seconds=7.5)


def test_long_requests_leave_a_thread_to_others_and_know_it():
    target = lanes(num_batch_threads=3)
    for _ in range(5):
        put(target, request("long", size=9000, seconds=4.0), seconds=20.0)
    with pytest.raises(ServingError, match="5 texts wait already, and take about 10.0 seconds"):
        put(target, request("long", size=9000), seconds=1.0)
    first, second = take(target)[0], take(target)[0]
    assert target.next(at_once=True) is None  # the third thread waits until one of them ends
    target.end(first, 4.0)
    third = take(target)[0]
    assert target.next(at_once=True) is None
    for batch in (second, third):
        target.end(batch, 4.0)
    assert [take(target)[1], take(target)[1]] == [["long"], ["long"]]


def test_a_request_is_small_up_to_a_kilobyte_of_text():
    target = lanes()
    put(target, request("small", size=1024))
    put(target, request("large", size=1025))
    assert sorted(take(target)[1] + take(target)[1]) == ["large", "small"]  # in batches of their own
    put(target, request("small", size=1024))
    put(target, request("small", size=1))
    assert take(target)[1] == ["small", "small"]


def test_large_requests_that_wait_keep_their_claim_when_more_of_them_come():
    target = lanes(num_batch_threads=1)
    for _ in range(3):
        target.put(request("small"), "one by one", 1, 100)
    put(target, request("large", rows=32))
    had = []
    for _ in range(4):
        batch, clients = take(target)
        had += clients
        put(target, request("large", rows=32))
        target.end(batch, 1.0)
    assert had == ["small", "large", "small", "large"]


def test_without_small_requests_large_ones_have_all_threads():
    target = lanes()
    for _ in range(3):
        put(target, request("large", rows=32))
    assert take(target)[1] == take(target)[1] == ["large"]


def test_one_thread_gives_both_lanes_equal_time():
    target = lanes(num_batch_threads=1)
    for _ in range(10):
        put(target, request("large", rows=32), seconds=100)
        target.put(request("small"), "one by one", 1, 100)
    had = {"large": 0.0, "small": 0.0}
    for _ in range(8):
        batch, clients = take(target)
        seconds = 3.0 if clients[0] == "large" else 1.0
        had[clients[0]] += seconds
        target.end(batch, seconds)
    assert abs(had["large"] - had["small"]) <= 3.0


def test_who_sends_the_next_large_request_when_one_is_answered_gets_no_more_than_equal_time():
    """The lane has no work for a moment each time, and what it has had is not forgotten."""
    target = lanes(num_batch_threads=1)
    for _ in range(13):
        target.put(request("small"), "one by one", 1, 100)
    had, waits = {"large": 0.0, "small": 0.0}, False
    for _ in range(13):
        if not waits:
            put(target, request("large", rows=32), seconds=100)
        batch, clients = take(target)
        waits = clients == ["small"]
        seconds = 1.0 if waits else 3.0
        had[clients[0]] += seconds
        target.end(batch, seconds)
    assert abs(had["large"] - had["small"]) <= 3.0


def test_a_lane_that_was_idle_gets_no_extra_time_for_that():
    target = lanes(num_batch_threads=1)
    for _ in range(20):
        target.put(request("small"), "one by one", 1, 100)
        target.end(take(target)[0], 1.0)
    for _ in range(4):
        put(target, request("large", rows=32), seconds=100)
        target.put(request("small"), "one by one", 1, 100)
    had = []
    for _ in range(4):
        batch, clients = take(target)
        had += clients
        target.end(batch, 1.0)
    assert sorted(had) == ["large", "large", "small", "small"]


def test_large_requests_whose_clients_have_gone_take_no_thread_for_ever():
    target = lanes(num_batch_threads=1)
    for _ in range(3):
        gone = request("gone", rows=32)
        put(target, gone)
        gone.answer.cancel()
        assert take(target)[1] == []
    put(target, request("live", rows=32))
    assert take(target)[1] == ["live"]


def test_of_several_signatures_the_one_with_the_oldest_request_is_next():
    target = lanes(num_batch_threads=1)
    for client, key in (("a", "one"), ("b", "two"), ("c", "one")):
        target.put(request(client), key, 1, 100)
    clients = []
    for _ in range(3):
        batch, found = take(target)
        clients += found
        target.end(batch, 0.0)
    assert clients == ["a", "b", "c"]


def test_a_newcomer_does_not_overtake_all_who_wait():
    queue = filled(*[request("old") for _ in range(4)])
    assert [queue.take()[0].client for _ in range(3)] == ["old"] * 3
    for _ in range(3):
        queue.put(request("new"))
    assert order(queue) == ["new", "old", "new", "new"]


def test_what_was_taken_waits_no_more():
    queue = filled(*[request("a", seconds=3.0) for _ in range(2)])
    queue.take()
    assert (queue.seconds_before("a"), queue.rows_before("a")) == (3.0, 1)


class Slow:
    """Holds up batches of more than four texts."""

    def __init__(self):
        self.gate = threading.Event()
        self.begun = threading.Semaphore(0)

    def __call__(self, signature, inputs):
        self.begun.release()
        if len(inputs["text"]) > 4:
            self.gate.wait(10)
        return {"size": np.array([len(text) for text in inputs["text"]])}


@pytest.fixture
def slow():
    """A function that asks a batcher of two threads, and what the batcher runs."""
    run = Slow()
    target = Batcher(run, Batching(num_batch_threads=2, batch_timeout_micros=0), on_batch=lambda *_: None)
    target.start()
    yield lambda texts, client: target.submit("size", {"text": np.array([b"word"] * texts, object)}, True, client), run
    run.gate.set()
    target.close()


def test_a_word_is_answered_while_large_requests_fill_the_server(slow):
    ask, run = slow
    ask(1, "one").result(5)
    large = [ask(32, "many") for _ in range(20)]
    for _ in range(5):
        assert ask(1, "one").result(5)["size"].tolist() == [4]
    assert not any(answer.done() for answer in large)
    run.gate.set()
    assert all(answer.result(10)["size"].tolist() == [4] * 32 for answer in large)


def test_a_thread_that_was_kept_for_small_requests_goes_on_when_none_comes(slow, monkeypatch):
    ask, run = slow
    monkeypatch.setattr(scheduling, "SECONDS_KEPT", 0.3)
    ask(1, "one").result(5)
    for _ in range(2):
        ask(32, "many")
    assert all(run.begun.acquire(timeout=5) for _ in range(3))  # the word, and both large ones at the same time
