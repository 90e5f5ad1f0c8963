"""Many texts in batches: in order, of like length, and small where texts are long."""

import threading

import pytest

from kformer.text.batches import BATCH_SIZE, PADDED_BYTES, Hypothesis, answer_all


class Echo:
    """Answers with the text itself, and notes the batches."""

    def __init__(self):
        self.batches = []
        self._lock = threading.Lock()

    def __call__(self, texts):
        with self._lock:
            self.batches.append(list(texts))
        return [[Hypothesis(text.decode(), 0.0)] for text in texts]


def test_the_order_is_kept_and_texts_of_like_length_are_together():
    echo = Echo()
    texts = [b"x" * (number * 7 % 31) for number in range(31)]
    found = answer_all(echo, texts, batch_size=5)
    assert [hypotheses[0].text.encode() for hypotheses in found] == texts
    lengths = sorted([sorted((len(text) for text in batch), reverse=True) for batch in echo.batches], reverse=True)
    assert lengths == [[30 - start - place for place in range(min(5, 31 - start))] for start in range(0, 31, 5)]


def test_long_texts_make_small_batches():
    echo = Echo()
    long, longer = b"x" * (PADDED_BYTES // 3), b"x" * (2 * PADDED_BYTES)
    answer_all(echo, [long] * 6 + [b"short"] * (BATCH_SIZE + 1) + [longer])
    sizes = sorted((len(batch[0]), len(batch)) for batch in echo.batches)
    assert sizes[-3:] == [(len(long), 3), (len(long), 3), (len(longer), 1)]
    assert sorted(size for length, size in sizes if length == 5) == [1, BATCH_SIZE]


def test_every_batch_is_told():
    done = []
    answer_all(Echo(), [b"a"] * 7, batch_size=3, on_batch=done.append)
    assert done == [3, 3, 1]
    assert answer_all(Echo(), []) == []


def test_an_error_of_a_batch_reaches_the_caller():
    def broken(texts):
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        answer_all(broken, [b"a"] * 7)


def test_a_single_batch_stays_in_the_callers_thread():
    threads = []

    def translate(texts):
        threads.append(threading.current_thread())
        return Echo()(texts)

    answer_all(translate, [b"a", b"b"])
    assert threads == [threading.current_thread()]
