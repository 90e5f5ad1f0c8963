"""Requests that share batches, over a model that anybody can compute: it doubles numbers."""

import concurrent.futures
import math
import threading
import time

import numpy as np
import pytest
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from kformer.runtime.status_codes import Code
from kformer.serving import batching as batching_module
from kformer.serving.batching import Batcher, ClosedError
from kformer.serving.errors import ServingError
from kformer.serving.fair_queue import BATCH_BYTES
from kformer.serving.model_settings import Batching
from kformer.serving.signatures import Signature

pytestmark = pytest.mark.tensorflow_only


class Doubling:
    """Gives twice `x`. It notes its batches, refuses the number 13, and waits while `gate` is closed."""

    def __init__(self):
        self.batches = []
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Event()

    def __call__(self, signature, inputs):
        self.batches.append(inputs["x"].tolist())
        self.begun.set()
        self.gate.wait(10)
        if 13 in inputs["x"]:
            raise ValueError("13 brings bad luck")
        return {"twice": inputs["x"] * 2}


def batcher(run, **options):
    options = {"max_batch_size": 5, "batch_timeout_micros": 50_000, "num_batch_threads": 1, **options}
    made = Batcher(run, Batching(**options), on_batch=lambda *_: None)
    made.start()
    return made


def submit(target, *numbers, signature="double", shared=True):
    return target.submit(signature, {"x": np.array(numbers)}, shared)


def test_requests_that_come_together_share_a_batch_and_get_their_own_rows():
    run = Doubling()
    target = batcher(run)
    answers = [submit(target, 1), submit(target, 2, 3), submit(target, 4, 5)]
    assert [answer.result(5)["twice"].tolist() for answer in answers] == [[2], [4, 6], [8, 10]]
    assert run.batches == [[1, 2, 3, 4, 5]]  # five fill a batch, so nobody waits for more


def test_a_request_alone_waits_for_company_as_long_as_it_is_told():
    run = Doubling()
    target = batcher(run, batch_timeout_micros=100_000)
    began = time.monotonic()
    submit(target, 1).result(5)
    assert 0.1 <= time.monotonic() - began < 2


def test_a_batch_is_never_larger_than_allowed():
    run = Doubling()
    target = batcher(run)
    run.gate.clear()
    first = submit(target, 0)
    run.begun.wait(5)
    answers = [submit(target, number, number) for number in (1, 2, 3)]
    run.gate.set()
    assert [answer.result(5)["twice"].tolist() for answer in (first, *answers)] == [[0], [2, 2], [4, 4], [6, 6]]
    assert run.batches == [[0], [1, 1, 2, 2], [3, 3]]


def test_a_long_text_has_its_batch_for_itself():
    batches = []

    def run(signature, inputs):
        batches.append([len(text) for text in inputs["text"]])
        return {"length": np.array(batches[-1])}

    target = Batcher(run, Batching(batch_timeout_micros=50_000, num_batch_threads=1), on_batch=lambda *_: None)
    target.start()
    sizes = [10, BATCH_BYTES, 20, 30]
    answers = [target.submit("s", {"text": np.array([b"x" * size], object)}, True) for size in sizes]
    assert [answer.result(5)["length"].tolist() for answer in answers] == [[size] for size in sizes]
    assert sorted(batches) == [[10, 20, 30], [BATCH_BYTES]]


def test_signatures_do_not_share_batches_nor_do_those_that_cannot():
    run = Doubling()
    target = batcher(run, batch_timeout_micros=1000)
    answers = [submit(target, 1), submit(target, 2, signature="other")]
    answers += [submit(target, 3, shared=False), submit(target, 4, shared=False)]
    assert [answer.result(5)["twice"].tolist() for answer in answers] == [[2], [4], [6], [8]]
    assert sorted(run.batches) == [[1], [2], [3], [4]]


def test_the_neighbours_of_a_request_that_fails_get_their_answers():
    run = Doubling()
    target = batcher(run)
    good, bad, other = submit(target, 1, 2), submit(target, 13), submit(target, 3, 4)
    assert (good.result(5)["twice"].tolist(), other.result(5)["twice"].tolist()) == ([2, 4], [6, 8])
    with pytest.raises(ValueError, match="bad luck"):
        bad.result(5)


def test_what_a_client_no_longer_waits_for_is_not_computed():
    run = Doubling()
    target = batcher(run)
    run.gate.clear()
    submit(target, 0)
    run.begun.wait(5)
    gone, waiting = submit(target, 1), submit(target, 2)
    assert gone.cancel()
    run.gate.set()
    assert waiting.result(5)["twice"].tolist() == [4]
    assert run.batches == [[0], [2]]


def test_a_full_queue_refuses_at_once():
    run = Doubling()
    target = batcher(run, max_batch_size=2, max_enqueued_batches=3)
    run.gate.clear()
    submit(target, 0, 0)
    run.begun.wait(5)
    answers = [submit(target, number, number) for number in range(3)]  # three batches of two
    with pytest.raises(ServingError, match="The server is busy: 6 texts wait already") as refused:
        submit(target, 9)
    assert refused.value.code == Code.RESOURCE_EXHAUSTED
    assert target.waiting() == 6
    run.gate.set()
    assert [answer.result(5)["twice"].tolist() for answer in answers] == [[0, 0], [2, 2], [4, 4]]


def test_requests_whose_clients_are_gone_take_no_room_in_the_queue():
    run = Doubling()
    target = batcher(run, max_batch_size=2, max_enqueued_batches=3)
    run.gate.clear()
    submit(target, 0, 0)
    run.begun.wait(5)
    gone = [submit(target, number, number) for number in range(3)]  # three batches of two: the queue is full
    for answer in gone[:2]:
        answer.cancel()
    assert target.waiting() == 2
    waiting = submit(target, 7, 8)
    run.gate.set()
    assert waiting.result(5)["twice"].tolist() == [14, 16]
    assert run.batches == [[0, 0], [2, 2], [7, 8]]


def test_a_queue_full_of_requests_whose_clients_are_gone_takes_a_new_one():
    run = Doubling()
    target = batcher(run, max_batch_size=2, max_enqueued_batches=1)
    run.gate.clear()
    submit(target, 0, 0)
    run.begun.wait(5)
    submit(target, 1, 1).cancel()
    waiting = submit(target, 2, 2)
    run.gate.set()
    assert waiting.result(5)["twice"].tolist() == [4, 4]


def test_requests_with_much_text_have_no_company_and_leave_one_thread_to_the_others():
    class Slow:
        """Holds up what begins with a long text."""

        def __init__(self):
            self.batches = []
            self.gate = threading.Event()

        def __call__(self, signature, inputs):
            self.batches.append([len(text) for text in inputs["text"]])
            if len(inputs["text"][0]) > 5:
                self.gate.wait(10)
            return {"size": np.array([len(text) for text in inputs["text"]])}

    def ask(*sizes):
        return target.submit("size", {"text": np.array([b"x" * size for size in sizes], object)}, shared=True)

    run = Slow()
    target = batcher(run, num_batch_threads=3, batch_timeout_micros=0)
    long = [ask(8193), ask(8191, 2), ask(9000)]  # more than LONG_BYTES each
    assert [ask(5).result(5)["size"].tolist() for _ in range(3)] == [[5]] * 3
    assert [answer.done() for answer in long] == [False] * 3
    run.gate.set()
    assert [answer.result(5)["size"].tolist() for answer in long] == [[8193], [8191, 2], [9000]]
    target.close()
    assert sorted(run.batches) == [[5]] * 3 + [[8191, 2], [8193], [9000]]


def test_batches_are_filled_up_to_a_size_that_is_allowed():
    run = Doubling()
    target = batcher(run, allowed_batch_sizes=(3, 5), batch_timeout_micros=0)
    assert submit(target, 7, 8).result(5)["twice"].tolist() == [14, 16]
    assert run.batches == [[7, 8, 7]]


def test_a_request_without_a_text_is_answered():
    assert submit(batcher(Doubling())).result(5)["twice"].tolist() == []


def test_requests_that_share_no_batch_count_as_one_batch_each_in_the_queue():
    run = Doubling()
    target = batcher(run, max_enqueued_batches=2)
    run.gate.clear()
    submit(target, 0, shared=False)
    run.begun.wait(5)
    answers = [submit(target, number, number, number, shared=False) for number in (1, 2)]
    with pytest.raises(ServingError, match="6 texts wait already"):
        submit(target, 3, shared=False)
    run.gate.set()
    assert [answer.result(5)["twice"].tolist() for answer in answers] == [[2, 2, 2], [4, 4, 4]]


class Timed:
    """Holds up its first batch. By its clock, each text of a batch takes a second."""

    def __init__(self, monkeypatch):
        self.now, self.batches = 0.0, []
        self.begun, self.gate = threading.Event(), threading.Event()
        monkeypatch.setattr(batching_module.time, "perf_counter", lambda: self.now)

    def __call__(self, signature, inputs):
        self.batches.append([len(text) for text in inputs["text"]])
        self.now += len(inputs["text"])
        self.begun.set()
        self.gate.wait(10)
        return {"length": np.array(self.batches[-1])}


def asking(target):
    """A function that asks for texts of these lengths."""
    return lambda *sizes, shared=True, **options: target.submit(
        "s", {"text": np.array([b"x" * size for size in sizes], object)}, shared, **options
    )


@pytest.mark.parametrize(
    ("before", "shared", "asked", "told"),
    [
        ([(10,)], True, (10,) * 4, "4 texts wait already, and take about 4.0 seconds"),
        ([(10,), (40,)], True, (40,), "1 texts wait already, and take about 1.0 seconds"),  # they share a batch
        ([(10,) * 3], False, (10,) * 3, "3 texts wait already, and take about 3.0 seconds"),
    ],
    ids=["texts of one length", "the longest text of a batch counts", "without company"],
)
def test_what_waits_is_expected_to_take_what_such_texts_have_taken(before, shared, asked, told, monkeypatch):
    run = Timed(monkeypatch)
    run.gate.set()
    target = batcher(run, max_batch_size=len(before) if shared else 5)
    ask = asking(target)
    ask(10, shared=shared).result(5)  # the first batch of a signature is no measure of others
    for answer in [ask(*sizes, shared=shared) for sizes in before]:
        answer.result(5)
    run.gate.clear()
    run.begun.clear()
    target.submit("other", {"text": np.array([b"x"], object)}, False)  # of which nobody knows how long it takes
    run.begun.wait(5)
    waiting = ask(*asked, shared=shared)
    with pytest.raises(ServingError, match=told):
        ask(*asked, shared=shared, seconds=0.5)
    run.gate.set()
    waiting.result(5)


def test_large_requests_have_had_the_time_that_they_took_and_not_what_was_expected(monkeypatch):
    """When they come, nothing is known of their costs."""
    run = Timed(monkeypatch)
    target = batcher(run, max_batch_size=32, batch_timeout_micros=0)
    ask = asking(target)
    ask(1)
    run.begun.wait(5)
    answers = [ask(*[2] * 32), ask(*[3] * 32), ask(4)]
    run.gate.set()
    for answer in answers:
        answer.result(5)
    assert [batch[0] for batch in run.batches] == [1, 2, 4, 3]


def test_all_texts_of_a_request_make_it_large():
    lengths = []

    def run(signature, inputs):
        lengths.append([len(text) for text in inputs["text"]])
        return {"length": np.array(lengths[-1])}

    ask = asking(batcher(run))
    for answer in [ask(600, 600), ask(5)]:  # more than a kilobyte together
        answer.result(5)
    assert sorted(lengths) == [[5], [600, 600]]


def test_closing_ends_a_thread_that_long_requests_have_left_to_others():
    gate, begun = threading.Event(), threading.Event()

    def run(signature, inputs):
        begun.set()
        gate.wait(10)
        return {"length": np.array([len(text) for text in inputs["text"]])}

    target = batcher(run, num_batch_threads=2, batch_timeout_micros=0)
    answers = [asking(target)(9000) for _ in range(2)]
    begun.wait(5)
    closing = threading.Thread(target=target.close, daemon=True)
    closing.start()
    gate.set()
    closing.join(5)
    assert not closing.is_alive()
    assert [answer.result(0)["length"].tolist() for answer in answers] == [[9000], [9000]]


def test_a_request_that_shares_no_batch_does_not_wait_behind_a_long_one_that_may_not_begin():
    gate = threading.Event()

    def run(signature, inputs):
        if len(inputs["text"][0]) == 9000:
            gate.wait(10)
        return {"length": np.array([len(text) for text in inputs["text"]])}

    ask = asking(batcher(run, num_batch_threads=3, batch_timeout_micros=0))
    long = [ask(9000) for _ in range(3)]  # two threads take two of them
    assert ask(2000, shared=False).result(5)["length"].tolist() == [2000]
    gate.set()
    assert [answer.result(5)["length"].tolist() for answer in long] == [[9000]] * 3


def test_closing_answers_what_waits_and_takes_no_more():
    run = Doubling()
    target = batcher(run, batch_timeout_micros=10_000_000)
    answers = [submit(target, 1), submit(target, 2)]
    target.close()
    assert [answer.result(0)["twice"].tolist() for answer in answers] == [[2], [4]]
    with pytest.raises(ClosedError):
        submit(target, 3)


def test_a_full_batch_does_not_wait_behind_an_older_request_that_waits_for_company():
    run = Doubling()
    target = batcher(run, max_batch_size=2, batch_timeout_micros=10_000_000)
    other = target.submit("other", {"x": np.array([5])}, shared=True)
    assert submit(target, 1, 2).result(5)["twice"].tolist() == [2, 4]
    assert not other.done()


def test_requests_without_company_count_all_their_texts():
    run, sizes = Doubling(), []
    target = Batcher(run, Batching(num_batch_threads=1), on_batch=lambda signature, texts, seconds: sizes.append(texts))
    target.start()
    run.gate.clear()
    first = target.submit("double", {"x": np.array([1, 2, 3]), "scalar": np.array(0.5)}, shared=False)
    run.begun.wait(5)
    second = target.submit("double", {"x": np.array([4, 5]), "scalar": np.array(0.5)}, shared=False)
    assert target.waiting() == 2
    run.gate.set()
    assert [first.result(5)["twice"].tolist(), second.result(5)["twice"].tolist()] == [[2, 4, 6], [8, 10]]
    target.close()
    assert sizes == [3, 2]


def test_threads_share_the_warm_up_before_the_start_is_over_and_a_failure_is_told():
    class Meeting(Doubling):
        """Two requests are under way at once, or none ends."""

        def __call__(self, signature, inputs):
            both.wait(10)
            return super().__call__(signature, inputs)

    both = threading.Barrier(2)
    run = Meeting()
    warmup = [("double", {"x": np.array([number])}) for number in range(4)]
    Batcher(run, Batching(num_batch_threads=2), on_batch=lambda *_: None).start(warmup)
    assert sorted(run.batches) == [[0], [1], [2], [3]]
    with pytest.raises(ValueError, match="13 brings bad luck"):
        Batcher(Doubling(), Batching(), on_batch=lambda *_: None).start([*warmup, ("double", {"x": np.array([13])})])


def test_no_thread_stays_where_the_system_has_none_for_another(monkeypatch):
    started = []

    class Scarce(threading.Thread):
        def start(self):
            if len(started) == 2:
                raise RuntimeError("can't start new thread")
            super().start()
            started.append(self)

    monkeypatch.setattr(threading, "Thread", Scarce)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        batcher(Doubling(), num_batch_threads=4)
    assert [thread.is_alive() for thread in started] == [False, False]


def test_batches_are_told_with_their_size():
    told = []
    batching = Batching(5, num_batch_threads=1, allowed_batch_sizes=(5,))  # the two that fill it up count as none
    target = Batcher(Doubling(), batching, on_batch=lambda *batch: told.append(batch))
    target.start()
    submit(target, 1, 2, 3).result(5)
    target.close()
    ((signature, rows, seconds),) = told
    assert (signature, rows) == ("double", 3)
    assert seconds >= 0


def test_under_load_from_many_threads_everybody_gets_the_right_answer():
    run = Doubling()
    target = batcher(run, num_batch_threads=3, batch_timeout_micros=500, max_enqueued_batches=1000)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        found = list(
            pool.map(lambda number: submit(target, number, -number).result(10)["twice"].tolist(), range(14, 700))
        )
    assert found == [[2 * number, -2 * number] for number in range(14, 700)]
    assert max(map(len, run.batches)) <= 5
    assert sum(map(len, run.batches)) == 2 * (700 - 14)


def test_neighbours_in_a_batch_have_16_kilobytes_of_text_together():
    batches = []

    def run(signature, inputs):
        batches.append(len(inputs["text"]))
        return {"length": np.array([len(text) for text in inputs["text"]])}

    target = batcher(run)
    texts = [np.array([b"x" * 7000], object) for _ in range(3)]
    answers = [target.submit("lengths", {"text": text}, True) for text in texts]
    assert [answer.result(5)["length"].tolist() for answer in answers] == [[7000]] * 3
    assert batches == [2, 1]


def test_a_batch_of_an_allowed_size_is_not_made_larger():
    run = Doubling()
    target = batcher(run, allowed_batch_sizes=(3, 5))
    assert submit(target, 1, 2, 3).result(5)["twice"].tolist() == [2, 4, 6]
    assert run.batches == [[1, 2, 3]]


def test_a_request_that_shares_no_batch_is_computed_as_it_is():
    run = Doubling()
    target = batcher(run, allowed_batch_sizes=(2, 5))
    answer = target.submit("double", {"x": np.array([1]), "scalar": np.array(3)}, False)
    assert answer.result(5)["twice"].tolist() == [2]
    assert run.batches == [[1]]


def signature(inputs, outputs):
    """A signature of float tensors with these sizes: -1 is any number, and None in place of sizes any rank."""
    definition = meta_graph_pb2.SignatureDef()
    for tensors, shapes in ((definition.inputs, inputs), (definition.outputs, outputs)):
        for name, sizes in shapes.items():
            tensors[name].dtype = types_pb2.DT_FLOAT
            tensors[name].tensor_shape.unknown_rank = sizes is None
            for size in sizes or ():
                tensors[name].tensor_shape.dim.add(size=size)
    return Signature("double", definition)


@pytest.mark.parametrize(
    ("inputs", "outputs", "is_shared"),
    [
        ({"x": [-1], "y": [-1, 3]}, {"z": [-1]}, True),
        ({"x": [-1], "factor": []}, {"z": [-1]}, False),
        ({"x": [-1]}, {"z": [-1], "sum": []}, False),
        ({"x": [-1], "y": None}, {"z": [-1]}, False),
        ({"x": [2]}, {"z": [-1]}, False),
        ({}, {"z": [-1]}, False),
    ],
    ids=["rows everywhere", "a scalar input", "a scalar output", "any rank", "two rows", "no inputs"],
)
def test_requests_share_batches_where_all_inputs_and_outputs_have_any_number_of_rows(inputs, outputs, is_shared):
    """The sum over a batch of two clients would be the answer to neither."""
    assert signature(inputs, outputs).is_shared == is_shared


def test_the_inputs_of_a_request_that_may_share_a_batch_have_as_many_rows_as_each_other():
    given = {"x": np.zeros(2, "float32"), "y": np.zeros(3, "float32")}
    shapes = {"x": [-1], "y": [-1]}
    with pytest.raises(ServingError, match=r"inputs of double must have the same number of examples. Received: 2, 3\."):
        signature(shapes, {"z": [-1]}).complete(given)
    assert signature(shapes, {"sum": []}).complete(given).keys() == given.keys()  # it shares none


@pytest.mark.parametrize(
    ("options", "seconds", "taken"),
    [({"max_queue_seconds": 2.5}, math.inf, 3), ({}, 2.5, 2)],
    ids=["what the server allows", "what the client's time leaves beside the work itself"],
)
def test_a_request_that_would_wait_longer_than_it_may_is_refused(options, seconds, taken, monkeypatch):
    """Each takes a second, so that they wait 0, 1, 2 and 3 seconds."""
    run = Timed(monkeypatch)
    run.gate.set()
    target = batcher(run, batch_timeout_micros=0, **options)
    ask = asking(target)
    for _ in range(2):  # the first batch of a signature is no measure of others
        ask(10).result(5)
    run.gate.clear()
    run.begun.clear()
    target.submit("other", {"text": np.array([b"x"], object)}, False)  # of which nobody knows how long it takes
    run.begun.wait(5)
    waiting = [ask(10, seconds=seconds) for _ in range(taken)]
    with pytest.raises(ServingError, match=f"{taken} texts wait already, and take about {taken}.0 seconds"):
        ask(10, seconds=seconds)
    run.gate.set()
    assert [answer.result(5)["length"].tolist() for answer in waiting] == [[10]] * taken
