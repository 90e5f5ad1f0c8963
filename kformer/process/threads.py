"""Work that several threads share."""

import collections
import concurrent.futures
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

_Given = TypeVar("_Given")
_Made = TypeVar("_Made")


def in_threads(make: Callable[[_Given], _Made], given: Iterable[_Given]) -> Iterator[_Made]:
    """As `map`, by a thread for each core. Only some more than the cores are taken at a time of what is given.

    The first two are made in this thread if there are no more: TensorFlow prepares its operations for each thread anew.

    Examples:
        >>> list(in_threads(abs, [-1, 2, -3]))
        [1, 2, 3]
    """
    given = iter(given)
    first = list(itertools.islice(given, 3))
    if len(first) < 3:
        yield from map(make, first)
        return
    everything = itertools.chain(iter(first), given)  # which drops the first ones when it has given them
    del first
    threads = os.cpu_count() or 1
    pool = concurrent.futures.ThreadPoolExecutor(threads)
    waiting: collections.deque[concurrent.futures.Future[_Made]] = collections.deque()
    try:
        for one in everything:
            waiting.append(pool.submit(make, one))
            if len(waiting) > threads + 1:  # as many as are made, and some that are ready when one is done
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)  # after an error or Ctrl-C, no more is begun
