"""What is known of a corpus of files after one reading: its facts, and which of its pairs are held out.

The folder `texts-...` holds
  texts.json       the facts, what was left out, and the warnings of the reading
  held_out.json    the pairs that are held out for validation, if there is no file of them
  learned.npy      a bit for each pair of the training file: 1 if it is learned, 0 if it is held out or left out
  SHA256SUMS       the checksums of these
"""

import dataclasses
import itertools
import json
import pathlib
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from kformer.data.cleaning import Cleaning, CleaningReport, clean
from kformer.data.corpus import hold_out
from kformer.data.corpus_facts import CorpusFacts
from kformer.data.joined import JoinedFiles
from kformer.data.pairs import Pair, Pairs, SelectedPairs
from kformer.data.sources.lines import FilePairs
from kformer.data.tags import is_mixed
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
        parts: How many training and validation pairs each of several files has; nothing for one file.
    """

    facts: CorpusFacts
    train: Pairs
    valid: list[Pair]
    left_out: CleaningReport
    parts: list[tuple[int, int]]


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
            if self._number is not None and number > self._number:
                break  # of another file; who reads no more pairs than there were would not come to the end
            if number % _TOLD_EVERY == 0:
                self._on_read(_TOLD_EVERY)
            yield pair
        self._on_read(number % _TOLD_EVERY)
        self._check_same()

    def __len__(self) -> int:
        return sum(1 for _ in self) if self._number is None else self._number


def read_texts(
    folder: pathlib.Path, name: str, files: FilePairs, train: Watched, valid: FilePairs | None, cleaning: Cleaning
) -> None:
    """Reads the pairs and makes the folder.

    Args:
        folder: Does not exist yet.
        name: Of the corpus, in messages.
        files: What `train` reads.
        train: The pairs to learn from, and to hold out from if there is no `valid`.
        valid: The pairs to validate on.
        cleaning: Which pairs of the training file are left out.
    """
    tags = tags_of(files)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        has_rules = cleaning != Cleaning()
        kept, report = clean(train, cleaning, tags) if has_rules else (b"", CleaningReport())
        if has_rules and not any(kept):
            raise ValueError(f"The rules leave no pair of {name}.\n" + "\n".join(report.lines()))
        pairs = SelectedPairs(train, kept) if has_rules else train
        learned, others = hold_out(name, pairs, tags) if valid is None else (pairs, valid.held())
        facts = CorpusFacts.of(learned, others, tags)
    report.read = report.read or (len(learned.chosen) if isinstance(learned, SelectedPairs) else facts.train)
    taken = np.frombuffer(kept, np.uint8).astype(bool) if has_rules else np.ones(report.read, bool)
    chosen = taken.copy()
    if isinstance(learned, SelectedPairs) and valid is None:
        chosen[taken] = np.frombuffer(learned.chosen, np.uint8)
    with new_folder(folder) as fresh:
        if valid is None:
            write_json(fresh / _HELD_OUT, others)
        np.save(fresh / _LEARNED, np.packbits(chosen))
        messages = list(dict.fromkeys(str(warning.message) for warning in told))
        left_out = {"read": report.read, "counts": dict(report.counts), "examples": report.examples}
        parts = _parts(files, valid, chosen, taken & ~chosen)
        known = {"facts": dataclasses.asdict(facts), "left_out": left_out, "warnings": messages, "parts": parts}
        write_json(fresh / _TEXTS, known)
        note_checksums(fresh, [*fresh.iterdir()])


def number_of_readings(files: FilePairs, valid: FilePairs | None, cleaning: Cleaning) -> int:
    """How often `read_texts` reads all training pairs, with the same arguments."""
    to_clean = 0 if cleaning == Cleaning() else 1
    to_hold_out = 0 if valid is not None else 4 if is_mixed(tags_of(files)) else 3
    return to_clean + to_hold_out + 1  # for the facts


def tags_of(files: FilePairs) -> tuple[str, ...]:
    """The different tags of joined files, with "" if some have none; nothing if all have none."""
    return tuple(dict.fromkeys(files.tags)) if isinstance(files, JoinedFiles) and any(files.tags) else ()


def _parts(
    train: FilePairs, valid: FilePairs | None, learned: np.ndarray, held_out: np.ndarray
) -> list[tuple[int, int]]:
    """How many training and validation pairs each of joined files has.

    Args:
        train, valid: As of `read_texts`.
        learned, held_out: (N,) booleans for the pairs of `train`; if some files have a tag and others none, nothing is
            held out of those with a tag, and what is not learned of them is in neither part.
    """
    if not isinstance(train, JoinedFiles):
        return []
    begins = np.cumsum([0, *train.sizes])[:-1]
    learned_of, held_out_of = (np.add.reduceat(chosen, begins, dtype=np.int64) for chosen in (learned, held_out))
    if isinstance(valid, JoinedFiles):
        return list(itertools.zip_longest(learned_of.tolist(), valid.sizes, fillvalue=0))
    mixed = is_mixed(train.tags)
    validated = [0 if mixed and tag else number for tag, number in zip(train.tags, held_out_of.tolist(), strict=True)]
    return list(zip(learned_of.tolist(), validated, strict=True))


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
    parts = [(of_train, of_valid) for of_train, of_valid in known["parts"]]
    if valid is not None:
        return KnownTexts(facts, learned, valid.held(), report, parts)
    held_out = [(source, target) for source, target in json.loads((folder / _HELD_OUT).read_text(encoding="utf-8"))]
    return KnownTexts(facts, learned, held_out, report, parts)
