"""Work that several threads share: `map` with threads."""

import threading

import pytest

from kformer.process.threads import in_threads


@pytest.mark.parametrize("number", [0, 1, 2, 3, 101])
def test_results_are_those_of_map_in_the_same_order(number):
    later = threading.Event()

    def double(value):
        if value == 0 and number > 2:
            assert later.wait(60)  # a later one is made meanwhile
        elif value == 1:
            later.set()
        return 2 * value

    assert list(in_threads(double, range(number))) == [2 * value for value in range(number)]


def test_what_is_given_is_taken_as_it_is_needed(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    taken = []
    results = in_threads(lambda value: value, (taken.append(value) or value for value in range(1000)))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    assert len(taken) < 10


def test_an_error_comes_through_and_nothing_more_is_begun(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    begun = []

    def fail(value):
        begun.append(value)
        raise ValueError(f"wrong: {value}")

    with pytest.raises(ValueError, match="wrong: 0"):
        list(in_threads(fail, range(1000)))
    assert len(begun) < 10
