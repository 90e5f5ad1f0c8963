"""Many texts in batches: in order, of like length, and small where texts are long."""

import threading

import numpy as np
import pytest

from kformer.text.batches import BATCH_SIZE, PADDED_BYTES, BatchSeeds, Hypothesis, answer_all, hypotheses, with_tag


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


@pytest.mark.parametrize("at_once", [1, 3, None])
def test_so_many_batches_are_answered_at_the_same_time(at_once, monkeypatch):
    """None: as many as there are cores."""
    monkeypatch.setattr("os.cpu_count", lambda: 6)
    expected = at_once or 6
    together, running, most = threading.Barrier(expected, timeout=30), [], []

    def translate(texts):
        running.append(texts)
        together.wait()  # for ever, if fewer batches run
        most.append(len(running))
        together.wait()
        running.remove(texts)
        return Echo()(texts)

    texts = [f"{number:02}".encode() for number in range(12)]
    found = answer_all(translate, texts, batch_size=2, at_once=at_once)
    assert [hypotheses[0].text.encode() for hypotheses in found] == texts
    assert max(most) == expected


def test_after_an_error_no_other_batch_begins():
    begun, never = [], threading.Event()

    def slow(texts):
        begun.append(texts)
        never.wait(0.02)
        return Echo()(texts)

    def stop(done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        answer_all(slow, [b"a"] * 100, batch_size=1, on_batch=stop, at_once=1)
    assert len(begun) < 50  # one, and those that began before the error was known


def test_a_batch_is_over_when_its_caller_learns_of_an_error():
    """Nothing of a batch runs on while the caller closes what the batches use."""
    both, ended = threading.Barrier(2, timeout=30), []

    def translate(texts):
        both.wait()
        if texts == [b"wrong"]:
            raise RuntimeError("broken")
        threading.Event().wait(0.1)
        ended.append(texts)
        return Echo()(texts)

    with pytest.raises(RuntimeError, match="broken"):
        answer_all(translate, [b"good", b"wrong"], batch_size=1, at_once=2)  # the longest first
    assert ended == [[b"good"]]


def test_another_number_of_answers_than_texts_is_an_error():
    with pytest.raises(ValueError, match="shorter"):
        answer_all(lambda texts: Echo()(texts[1:]), [b"a", b"b"])


def test_texts_without_a_byte_are_texts():
    assert [found[0].text for found in answer_all(Echo(), [b"", b""])] == ["", ""]


def test_a_model_gives_one_hypothesis_or_several_of_each_text():
    texts, scores = np.array([[b"a", b"b"], [b"\xc3\xa9", b""]], object), np.array([[-1, -2], [-3, -4]], "float32")
    best, second = [Hypothesis("a", -1.0), Hypothesis("\u00e9", -3.0)], [Hypothesis("b", -2.0), Hypothesis("", -4.0)]
    assert hypotheses(texts, scores) == [[best[0], second[0]], [best[1], second[1]]]
    assert hypotheses(texts[:, 0], scores[:, 0]) == [[best[0]], [best[1]]]


@pytest.mark.parametrize("seed", [0, 7, -1, 2**63 - 1, -(2**63)])
def test_seeds_of_batches_differ_and_stay_in_the_range_of_seeds(seed):
    seeds = BatchSeeds(seed)
    found = [seeds.next(64) for _ in range(100)]
    assert found[0] == seed
    assert len({*found}) == 100
    assert all(-(2**63) <= number < 2**63 for number in found)


def test_alignments_count_the_words_of_a_text_without_its_tag():
    def answer(texts):
        assert texts == [b"<es> one two", b" "]
        return [[Hypothesis("uno dos", -1.0, alignment="0-0 1-0 2-1")], [Hypothesis(" ", 0.0, alignment="")]]

    (found,), (blank,) = with_tag(answer, "<es>")([b"one two", b" "])
    assert found.alignment == "0-0 1-1"
    assert blank.alignment == ""


def test_texts_with_a_tag_are_drawn_with_the_seed_of_their_batch():
    seeds = []

    def answer(texts, **options):
        seeds.append(options)
        return [[Hypothesis("uno", -1.0)] for _ in texts]

    with_tag(answer, "<es>")([b"one"], seed=0)
    with_tag(answer, "<es>")([b"one"])
    assert seeds == [{"seed": 0}, {}]
