"""What is known of a corpus of files after one reading: its facts, and which of its pairs are held out.

The folder `texts-...` holds
  texts.json       the facts, what was left out, and the warnings of the reading
  held_out.json    the pairs that are held out for validation, if there is no file of them
  learned.npy      a bit for each pair of the training file: 1 if it is learned, 0 if it is held out or left out
  SHA256SUMS       the checksums of these
"""

import dataclasses
import json
import pathlib
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from kformer.data.cleaning import Cleaning, CleaningReport, clean
from kformer.data.corpus import hold_out
from kformer.data.facts import CorpusFacts
from kformer.data.pairs import Pair, Pairs, SelectedPairs
from kformer.data.sources.lines import FilePairs
from kformer.files.checksums import check_folder, note_checksums
from kformer.files.writing import new_folder, write_json

_TOLD_EVERY = 10_000  # pairs
_TEXTS, _HELD_OUT, _LEARNED = "texts.json", "held_out.json", "learned.npy"


@dataclasses.dataclass(frozen=True)
class KnownTexts:
    """A corpus that was read before.

    Attributes:
        facts: Its numbers.
        train: The pairs to learn from. They are read from their file when they are asked for.
        valid: The pairs to validate on.
        left_out: What the cleaning has left out of the training file.
    """

    facts: CorpusFacts
    train: Pairs
    valid: list[Pair]
    left_out: CleaningReport


class Watched:
    """Pairs of files, which must still be the same when they have been read to their end.

    Args:
        pairs: Read from the files.
        check_same: Raises an error if a file is another one by now.
        number: How many pairs there are, if it is known.
        on_read: Called with the number of pairs whenever some have been read.
    """

    def __init__(
        self,
        pairs: Iterable[Pair],
        check_same: Callable[[], None],
        number: int | None = None,
        on_read: Callable[[int], object] = lambda pairs: None,
    ) -> None:
        self._pairs = pairs
        self._check_same = check_same
        self._number = number
        self._on_read = on_read

    def __iter__(self) -> Iterator[Pair]:
        number = 0
        for number, pair in enumerate(self._pairs, 1):
            if number % _TOLD_EVERY == 0:
                self._on_read(_TOLD_EVERY)
            yield pair
        self._on_read(number % _TOLD_EVERY)
        self._check_same()

    def __len__(self) -> int:
        return sum(1 for _ in self) if self._number is None else self._number


def read_texts(folder: pathlib.Path, name: str, train: Watched, valid: FilePairs | None, cleaning: Cleaning) -> None:
    """Reads the pairs and makes the folder.

    Args:
        folder: Does not exist yet.
        name: Of the corpus, in messages.
        train: The pairs to learn from, and to hold out from if there is no `valid`.
        valid: The pairs to validate on.
        cleaning: Which pairs of the training file are left out.
    """
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        has_rules = cleaning != Cleaning()
        kept, report = clean(train, cleaning) if has_rules else (b"", CleaningReport())
        pairs = SelectedPairs(train, kept) if has_rules else train
        learned, others = hold_out(name, pairs) if valid is None else (pairs, valid.held())
        facts = CorpusFacts.of(learned, others)
    with new_folder(folder) as fresh:
        report.read = report.read or facts.train + (facts.valid if valid is None else 0)
        chosen = np.frombuffer(kept, np.uint8).copy() if has_rules else np.ones(report.read, np.uint8)
        if valid is None and isinstance(learned, SelectedPairs):
            chosen[chosen == 1] = np.frombuffer(learned.chosen, np.uint8)
            write_json(fresh / _HELD_OUT, others)
        np.save(fresh / _LEARNED, np.packbits(chosen))
        messages = list(dict.fromkeys(str(warning.message) for warning in told))
        left_out = {"read": report.read, "counts": dict(report.counts), "examples": report.examples}
        known = {"facts": dataclasses.asdict(facts), "left_out": left_out, "warnings": messages}
        write_json(fresh / _TEXTS, known)
        note_checksums(fresh, [*fresh.iterdir()])


def known_texts(
    folder: pathlib.Path, train: FilePairs, valid: FilePairs | None, check_same: Callable[[], None]
) -> KnownTexts:
    """What `read_texts` found; its warnings are given again.

    Raises:
        DamagedFileError: A file of the folder is damaged.
    """
    check_folder(folder, remedy=f"Remove the folder {folder}: it is made again from the texts.")
    known: dict[str, Any] = json.loads((folder / _TEXTS).read_text(encoding="utf-8"))
    facts, found = CorpusFacts(**known["facts"]), known["left_out"]
    for message in known["warnings"]:
        warnings.warn(message, stacklevel=2)
    examples = {reason: [(source, target) for source, target in pairs] for reason, pairs in found["examples"].items()}
    report = CleaningReport(found["read"], Counter(found["counts"]), examples)
    bits = np.unpackbits(np.load(folder / _LEARNED), count=report.read)
    learned = SelectedPairs(Watched(train, check_same, report.read), bits.tobytes())
    if valid is not None:
        return KnownTexts(facts, learned, valid.held(), report)
    held_out = [(source, target) for source, target in json.loads((folder / _HELD_OUT).read_text(encoding="utf-8"))]
    return KnownTexts(facts, learned, held_out, report)
