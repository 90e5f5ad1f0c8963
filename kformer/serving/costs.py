"""What a request will cost: seconds of one thread, from what batches of texts of like length have taken."""

import threading
from collections.abc import Mapping

import numpy as np

# Of the newest batch in the mean. What held a batch up once, such as the first call of a thread, is soon forgotten.
_WEIGHT_OF_SLOWER, _WEIGHT_OF_FASTER = 0.2, 0.5
# What was never measured counts as so much more than what was, at most: each batch has a cost of its own, however short
# its texts are, and larger factors would refuse requests that take a moment.
_MOST_LONGER, _MOST_ROWS = 4.0, 4


class Costs:
    """Measures batches, by their signature, the length of their longest text and their number of rows.

    Lengths and numbers are taken together by powers of two. A thread may note a batch while others ask.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By signature and class of length, by class of rows: seconds of a row. In this mean, newer batches weigh more.
        self._seconds: dict[tuple[str, int], dict[int, float]] = {}

    def note(self, signature: str, longest: int, rows: int, seconds: float) -> None:
        """Notes a batch.

        Args:
            signature: The signature's name.
            longest: Bytes of its longest text.
            rows: Its rows.
            seconds: What it took.
        """
        with self._lock:
            known = self._seconds.setdefault((signature, longest.bit_length()), {})
            size, one = rows.bit_length(), seconds / max(1, rows)
            before = known.get(size, one)
            known[size] = before + (one - before) * (_WEIGHT_OF_SLOWER if one > before else _WEIGHT_OF_FASTER)

    def seconds(self, signature: str, longest: int, rows: int) -> float:
        """What a request takes of a batch, if batches are as full as any that was measured; 0 if nothing was.

        Args:
            signature: The signature's name.
            longest: Bytes of its longest text.
            rows: Its rows.
        """
        length = longest.bit_length()
        with self._lock:
            lengths = [known for name, known in self._seconds if name == signature]
            if not lengths:
                return 0.0
            # Where texts of this length were not measured, those nearest: work grows with the length.
            nearest = min(lengths, key=lambda known: abs(known - length))
            known = self._seconds[signature, nearest]
            fullest = max(known)
            return min(rows, _MOST_ROWS << fullest) * known[fullest] * min(_MOST_LONGER, 2.0 ** (length - nearest))


def longest_text(inputs: Mapping[str, np.ndarray]) -> int:
    """Bytes of the longest text; 0 where there is none."""
    return max((len(text) for array in inputs.values() if array.dtype == object for text in array.flat), default=0)
