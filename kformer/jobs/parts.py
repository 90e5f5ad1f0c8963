"""The parts of a job: some thousand lines of one file, whose answers are a file of their own.

The folder of a job holds
  job.json           what is done: files, model, options
  part-000000000.txt    the answers to the first lines, and so on: written whole or not at all
  manifest.jsonl     a line for each part that is written: which lines of which file, the checksums of both sides, and
                     what was found out about the lines
  SHA256SUMS         when the job is done: the checksums of all these files
  lock               names the process that works there
"""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

from kformer.files.checksums import checksum
from kformer.files.writing import replacing
from kformer.inference.lines import InputLine
from kformer.jobs.settings import JobSettings, ReadLines

MANIFEST = "manifest.jsonl"
_LENGTH = 8  # bytes of the length of a text, before it: no two lists of texts have the same hash


@dataclasses.dataclass(frozen=True)
class Part:
    """Lines that are answered together.

    Attributes:
        number: From 0, over all files.
        file: Where the lines stand.
        first: The number of the first line, from 0 in its file.
        before: The number of lines in the parts before it.
        lines: The lines.
    """

    number: int
    file: pathlib.Path
    first: int
    before: int
    lines: list[InputLine]

    def sum(self) -> str:
        """The SHA-256 of the lines."""
        found = hashlib.sha256()
        for value in itertools.chain.from_iterable((line.text, line.kept.encode()) for line in self.lines):
            found.update(len(value).to_bytes(_LENGTH, "little"))
            found.update(value)
        return found.hexdigest()


@dataclasses.dataclass(frozen=True)
class WrittenPart:
    """What the manifest says of a part.

    Attributes:
        number, first, before: As of `Part`.
        file: The input.
        lines: How many.
        input_sha256, output_sha256: Of the lines, see `Part.sum`, and of the file with their answers.
        seconds: From its first batch to its last.
        faults: The number of each line, from 1 in its file, that has no answer of its own, and why.
        notes: How many lines of each kind there are, and the number of the first one, from 1 in its file.
    """

    number: int
    file: str
    first: int
    before: int
    lines: int
    input_sha256: str
    output_sha256: str
    seconds: float
    faults: list[tuple[int, str]]
    notes: dict[str, tuple[int, int]]


def parts_of(settings: JobSettings, read: ReadLines) -> Iterator[Part]:
    """The parts of all files, as they are read."""
    number = before = 0
    for file in settings.inputs:
        first = 0
        with contextlib.closing(read(file)) as lines:
            while taken := list(itertools.islice(lines, settings.lines_per_part)):
                yield Part(number, file, first, before, taken)
                number, before, first = number + 1, before + len(taken), first + len(taken)


class JobFolder:
    """The folder of a job. One process at a time may write to it.

    Args:
        path: The folder.
        suffix: Of the files of answers.
        check_there: Called before anything is written; raises an error if the folder is no longer this process's own.
    """

    def __init__(self, path: pathlib.Path, suffix: str, check_there: Callable[[], None]) -> None:
        self.path = path
        self._suffix = suffix
        self._check_there = check_there

    @property
    def manifest_file(self) -> pathlib.Path:
        return self.path / MANIFEST

    def file_of(self, number: int) -> pathlib.Path:
        """The answers of a part."""
        return self.path / f"part-{number:09}{self._suffix}"

    def written(self) -> dict[int, WrittenPart]:
        """The parts that are written and undamaged. What a kill left of a line at the end of the manifest is cut off.

        Raises:
            ValueError: A line of the manifest, which is not the last one, is damaged.
        """
        found: dict[int, WrittenPart] = {}
        whole = 0
        if not self.manifest_file.is_file():
            return found
        lines = self.manifest_file.read_bytes().split(b"\n")
        for place, line in enumerate(lines[:-1]):
            part = _part_of(line)
            if part is None:
                if place < len(lines) - 2:
                    raise ValueError(
                        f"{self.manifest_file}, line {place + 1}, is damaged. Restore the file from a copy; or remove "
                        "it, and all parts are made anew."
                    )
                break
            found[part.number] = part
            whole += len(line) + 1
        os.truncate(self.manifest_file, whole)
        return {number: part for number, part in found.items() if self._is_whole(part)}

    def _is_whole(self, part: WrittenPart) -> bool:
        file = self.file_of(part.number)
        return file.is_file() and checksum(file) == part.output_sha256

    def write(self, part: Part, answers: Iterator[str], **about: Any) -> WrittenPart:
        """Writes the answers of a part, and then its line of the manifest.

        Args:
            part: The part.
            answers: What is written for each line.
            about: The further fields of the `WrittenPart`.
        """
        self._check_there()
        file = self.file_of(part.number)
        with replacing(file) as partial:
            with partial.open("wb") as opened:
                for answer in answers:
                    opened.write(answer.encode("utf-8"))
            output = checksum(partial)
        written = WrittenPart(
            part.number, str(part.file), part.first, part.before, len(part.lines), part.sum(), output, **about
        )
        with open(self.manifest_file, "ab") as manifest:
            manifest.write(_line_of(written))
            manifest.flush()
            os.fsync(manifest.fileno())
        return written


def _line_of(part: WrittenPart) -> bytes:
    """A line of the manifest, with the checksum of what it says."""
    values = dataclasses.asdict(part)
    return json.dumps(values | {"sha256": _sum_of(values)}).encode("ascii") + b"\n"  # names need not be UTF-8


def _part_of(line: bytes) -> WrittenPart | None:
    """What a line of the manifest says; None if it is damaged."""
    try:
        values = json.loads(line)
        if values.pop("sha256") != _sum_of(values):
            return None
        values["faults"] = [(number, reason) for number, reason in values["faults"]]
        values["notes"] = {kind: (number, first) for kind, (number, first) in values["notes"].items()}
        return WrittenPart(**values)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _sum_of(values: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode("utf-8")).hexdigest()
