"""Ids on the disk: one file of each kind, written shard by shard, and opened as memory maps.

The folder holds
  source.ids, target.ids            all ids, end to end, in 2 or 4 bytes each
  source.offsets, target.offsets    (N + 1,) int64: where the ids of each pair begin and end
  links.ids, links.offsets          the same of the links of aligned pairs, see `kformer.data.encoded_ids`
  shards.json                       the counts, and the size and checksum of each shard in each file
  SHA256SUMS                        the checksum of shards.json
Until all shards are there, their list is in the file `journal`, a line for each, with a checksum of its own. A process
that is killed leaves it behind, and the next one goes on after the last whole shard.

Numbers have the byte order of the processor: those that people train on are all little-endian.
"""

import contextlib
import hashlib
import itertools
import json
import os
import pathlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from kformer.data.encoded_ids import EncodedChunk, KeptIds, side_types
from kformer.files.checksums import DamagedFileError, check_file, replacing_noted
from kformer.files.writing import WriteError, write_json, write_text
from kformer.process.threads import in_threads

SHARD_PAIRS = 1 << 18  # pairs that are read for a shard: some seconds of work
FILES = ("source.ids", "source.offsets", "target.ids", "target.offsets")
LINK_FILES = ("links.ids", "links.offsets")
DESCRIPTION = "shards.json"
_JOURNAL = "journal"
_READ_BYTES = 1 << 20


class Shard(NamedTuple):
    """What is known of a shard.

    Attributes:
        counts: The pairs that were read for it, those that were left out as "blank" and as "long", and those that are
            kept of each joined corpus.
        ends: Where it ends in each file, in bytes.
        sums: The SHA-256 of its bytes in each file.
    """

    counts: dict[str, int]
    ends: dict[str, int]
    sums: dict[str, str]


_NOTHING = Shard({}, dict.fromkeys((*FILES, *LINK_FILES), 0), {})  # before the first shard


class ShardedIds:
    """An `IdStore` in a folder. One process at a time may write to it.

    Args:
        folder: Made if it is missing.
        on_read: Called with the number of pairs whenever some have been taken, or were there already.
        shard_pairs: The least number of pairs that are read for a shard.
        sizes, aligned: As of `IdStore`.

    Raises:
        DamagedFileError: A shard of a finished store does not match its checksum.
        WriteError: A shard could not be written. Those before it are kept.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        on_read: Callable[[int], object] = lambda pairs: None,
        shard_pairs: int = SHARD_PAIRS,
        sizes: Sequence[int] = (),
        aligned: bool = False,
    ) -> None:
        self.folder = folder
        self.sizes = sizes
        self.aligned = aligned
        self._files = (*FILES, *LINK_FILES) if aligned else FILES
        self._on_read = on_read
        self._shard_pairs = shard_pairs
        self._shards: list[Shard] = []

    def open(self, source_vocab_size: int, target_vocab_size: int) -> int | None:
        ids = side_types(source_vocab_size, target_vocab_size, self.aligned)
        self._sides = tuple(ids)
        self._types = {f"{side}.ids": dtype for side, dtype in ids.items()}
        self._types |= {f"{side}.offsets": np.dtype(np.int64) for side in ids}
        self._is_whole = (self.folder / DESCRIPTION).is_file()
        if self._is_whole:
            self._shards = self._checked()
            with contextlib.suppress(OSError):  # of a process that was killed at its very end; nothing needs it
                (self.folder / _JOURNAL).unlink(missing_ok=True)
            return None
        with _explained(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._shards = self._left_behind()
            self._begin()
        known = sum(shard.counts["read"] for shard in self._shards)
        self._on_read(known)
        return known

    def add(self, chunk: EncodedChunk) -> None:
        for side, sequences in zip(self._sides, chunk.sides, strict=True):
            ends = self._places[side] + np.cumsum(sequences.counts, dtype=np.int64)
            self._places[side] = int(ends[-1]) if len(ends) else self._places[side]
            self._waiting[f"{side}.ids"].append(sequences.ids)
            self._waiting[f"{side}.offsets"].append(ends)
        self._counts += chunk.counts
        self._on_read(chunk.counts["read"])
        if self._counts["read"] >= self._shard_pairs:
            self._write_shard()

    def close(self) -> KeptIds:
        if not self._is_whole:
            if self._counts["read"]:
                self._write_shard()
            self._finish()
        counts: Counter[str] = Counter()
        for shard in self._shards:
            counts.update(shard.counts)
        sides = [(self._mapped(f"{side}.ids"), self._mapped(f"{side}.offsets")) for side in self._sides]
        return KeptIds(sides, counts)

    def _mapped(self, name: str) -> np.ndarray:
        """(I,) or (N + 1,): the content of a file; a corpus of which nothing is kept has no ids."""
        if not (self.folder / name).stat().st_size:
            return np.empty(0, self._types[name])
        return np.memmap(self.folder / name, self._types[name], "r")

    # ---- writing

    def _left_behind(self) -> list[Shard]:
        """The shards of a process that was killed, up to the first one that is not whole."""
        journal = self.folder / _JOURNAL
        if not journal.is_file():
            return []
        shards: list[Shard] = []
        for line in journal.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]:
            shard = _shard_of(line)
            if shard is None or any(self._faults([*shards[-1:], shard], only_last=True)):
                break
            shards.append(shard)
        return shards

    def _begin(self) -> None:
        """Cuts the files off behind the last whole shard."""
        last = self._shards[-1] if self._shards else _NOTHING
        for name in self._files:
            with open(self.folder / name, "ab") as file:
                file.truncate(last.ends[name])
        self._places = {side: last.ends[f"{side}.ids"] // self._types[f"{side}.ids"].itemsize for side in self._sides}
        write_text(self.folder / _JOURNAL, "".join(map(_line, self._shards)))
        self._next_shard()
        if not self._shards:
            for side in self._sides:
                self._waiting[f"{side}.offsets"].append(np.zeros(1, np.int64))

    def _next_shard(self) -> None:
        self._waiting: dict[str, list[np.ndarray]] = {name: [] for name in self._files}
        self._counts: Counter[str] = Counter()

    def _write_shard(self) -> None:
        """Writes what waits; the journal names it when it is on the disk."""
        ends, sums = {}, {}
        with _explained(self.folder):
            for name in self._files:
                # Arrays of another type would change that of all, which the readers of the file do not know.
                parts = [np.empty(0, self._types[name]), *self._waiting[name]]
                content = np.concatenate(parts, dtype=self._types[name], casting="equiv")
                sums[name] = hashlib.sha256(content.data).hexdigest()
                ends[name] = _append(self.folder / name, content.data)
            shard = Shard({**dict.fromkeys(("read", "blank", "long"), 0), **self._counts}, ends, sums)
            _append(self.folder / _JOURNAL, _line(shard).encode())
        self._shards.append(shard)
        self._next_shard()

    def _finish(self) -> None:
        with _explained(self.folder):
            # Its checksum is there before it: it says to other processes that all is whole.
            with replacing_noted(self.folder / DESCRIPTION) as partial:
                write_json(partial, {"shards": [shard._asdict() for shard in self._shards]})
            (self.folder / _JOURNAL).unlink(missing_ok=True)

    # ---- reading

    def _checked(self) -> list[Shard]:
        """The shards of a finished store, each compared with its checksum."""
        remedy = self._remedy()
        check_file(self.folder / DESCRIPTION, remedy)
        description: dict[str, Any] = json.loads((self.folder / DESCRIPTION).read_text(encoding="utf-8"))
        shards = [Shard(**shard) for shard in description["shards"]]
        for name in self._files:
            size = (self.folder / name).stat().st_size if (self.folder / name).is_file() else -1
            expected = shards[-1].ends[name] if shards else 0
            if size != expected:
                found = "is missing" if size < 0 else f"has {size:,} bytes"
                raise DamagedFileError(f"{self.folder / name} {found}, where {expected:,} bytes were written. {remedy}")
        for fault in self._faults(shards):
            raise DamagedFileError(f"{fault} {remedy}")
        return shards

    def _remedy(self) -> str:
        return f"Remove the folder {self.folder}: it is made again from the texts."

    def _faults(self, shards: list[Shard], only_last: bool = False) -> Iterator[str]:
        """What is wrong with shards, in words."""
        neighbours = list(itertools.pairwise([_NOTHING, *shards]))[-1 if only_last else 0 :]
        tasks = [(before, shard, name) for before, shard in neighbours for name in self._files]
        for (_, shard, name), found in zip(tasks, in_threads(lambda task: self._sum(*task), tasks), strict=True):
            if found != shard.sums[name]:
                number = shards.index(shard) + 1
                yield (
                    f"{self.folder / name}, shard {number} of {len(shards)} (up to byte {shard.ends[name]:,}), does "
                    "not match its checksum: the disk or another program has changed it."
                )

    def _sum(self, before: Shard, shard: Shard, name: str) -> str:
        """The SHA-256 of a shard's bytes in a file."""
        digest, left = hashlib.sha256(), shard.ends[name] - before.ends[name]
        try:
            with open(self.folder / name, "rb") as file:
                file.seek(before.ends[name])
                while left > 0 and (block := file.read(min(left, _READ_BYTES))):
                    digest.update(block)
                    left -= len(block)
        except FileNotFoundError:
            return ""
        return digest.hexdigest() if left == 0 else ""


@contextlib.contextmanager
def _explained(folder: pathlib.Path) -> Iterator[None]:
    """Makes an error of the disk a `WriteError` that says what to do."""
    try:
        yield
    except OSError as error:
        raise WriteError(
            error.errno,
            f"The ids of the corpus could not be written to {folder}: {error.strerror}. What is there is kept, and the "
            "next call goes on from there. Make room, or choose another folder: --cache FOLDER, or KFORMER_CACHE",
        ) from error


def _append(path: pathlib.Path, content: bytes | memoryview) -> int:
    """Writes to the end of a file, and waits until it is on the disk; the size of the file."""
    with open(path, "ab") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size


def _line(shard: Shard) -> str:
    """A line of the journal: the checksum of what is known of a shard, and that."""
    known = json.dumps(shard._asdict())
    return f"{_sum_of(known)} {known}\n"


def _shard_of(line: str) -> Shard | None:
    """The shard of a line of the journal; None if the line was cut off or changed."""
    digest, _, known = line.partition(" ")
    return Shard(**json.loads(known)) if digest == _sum_of(known) else None


def _sum_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
