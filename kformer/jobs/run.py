"""Runs a job: reads parts, gives their batches to workers, writes the parts that are done."""

import collections
import dataclasses
import json
import math
import pathlib
import textwrap
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kformer.files.checksums import note_checksums
from kformer.files.writing import write_json
from kformer.inference.line_forms import AnsweredLine
from kformer.inference.line_limits import INSTEAD, Fault
from kformer.jobs.answerer import Answers
from kformer.jobs.parts import JobFolder, Part, parts_of
from kformer.jobs.settings import JobSettings, ReadLines
from kformer.jobs.workers import Batch, Fate, Outcome, Workers
from kformer.runs.ownership import owned
from kformer.text.batches import BATCH_SIZE, Hypothesis, batch_seed, batches_of

DESCRIPTION = "job.json"
_LONGEST_REASON = 300  # characters
_MOST_REFUSED = 10  # lines before the first answer; then it is the model that is wrong
_MOST_LOSSES = 2  # of the worker of one batch; then its lines are tried one by one


class JobReport(NamedTuple):
    """What a job has done, in this process and before.

    Attributes:
        lines, parts: Of the whole job.
        before: The lines that were there when this process began.
        faults: The lines without an answer of their own.
        first_fault: Where the first of them stands, and why; "" if there is none.
        notes: For each kind, how many lines there are, and where the first one stands.
    """

    lines: int
    parts: int
    before: int
    faults: int
    first_fault: str
    notes: dict[str, tuple[int, str]]


def run_job(
    folder: pathlib.Path,
    settings: JobSettings,
    read: ReadLines,
    workers: Workers,
    on_lines: Callable[[int], None] = lambda lines: None,
    tell: Callable[[str], None] = lambda note: None,
) -> JobReport:
    """Answers all lines, or those that an earlier process has left.

    Every line is answered once, in its place: a part is written whole or not at all, and its line of the manifest after
    it. What a killed process had not written is answered again. Batches are made of the lines of one part alone, and
    have seeds of their own, so that the same model on the same machine gives the same answers, however often the job
    was killed.

    Args:
        folder: Made if it is missing; see `kformer.jobs.parts`.
        settings: What to do.
        read: Reads the lines of a file, the same ones each time.
        workers: Answer batches. They are started only if there is something to answer.
        on_lines: Called with the number of further lines that are done.
        tell: Called with what a person should know.

    Raises:
        ValueError: The folder holds another job or other files, or the lines of a written part have changed.
        RunInUseError: Another process works in the folder.
        FolderLostError: The folder was moved or removed.
        OSError: A part cannot be written, or no worker can answer.
    """
    with owned(folder, tell) as check_there:
        _check_same_job(folder, settings)
        job = _Job(JobFolder(folder, settings.form.suffix, check_there), settings, workers, on_lines)
        job.run(parts_of(settings, read))
        report = job.report()
        note_checksums(folder, [file for file in folder.iterdir() if file.is_file() and _is_result(file)])
        return report


def _is_result(file: pathlib.Path) -> bool:
    return file.name == DESCRIPTION or file.suffix == ".jsonl" or file.name.startswith("part-")


def _check_same_job(folder: pathlib.Path, settings: JobSettings) -> None:
    """Notes what the job is; refuses a folder that holds another one."""
    file, values = folder / DESCRIPTION, json.loads(json.dumps(settings.to_json()))
    if not file.is_file():
        names = {entry.name for entry in folder.iterdir()} - {"lock"}
        if others := sorted(name for name in names if not name.startswith(f".kformer-{DESCRIPTION}-")):  # of a kill
            raise ValueError(f"{folder} is no folder of a job: it holds {others[0]}. Name a new folder by --output.")
        write_json(file, values)
        return
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is damaged ({error}). Name a new folder by --output.") from error
    differ = [name for name in values | known if values.get(name) != known.get(name)]
    if differ:
        told = "; ".join(f"{name}: there {known.get(name)}, now {values.get(name)}" for name in differ)
        raise ValueError(
            f"{folder} holds another job. {told}. Give the command that began it, or name a new folder by --output."
        )


@dataclasses.dataclass
class _Open:
    """A part of which some lines are answered."""

    part: Part
    waiting: int  # batches
    found: list[AnsweredLine | None]
    faults: dict[int, str]
    notes: dict[str, list[int]]
    since: float


class _Job:
    def __init__(
        self, folder: JobFolder, settings: JobSettings, workers: Workers, on_lines: Callable[[int], None]
    ) -> None:
        self._folder, self._settings, self._workers, self._on_lines = folder, settings, workers, on_lines
        self._written = folder.written()
        self._before = 0
        self._open: dict[int, _Open] = {}
        self._batches: collections.deque[Batch] = collections.deque()
        self._suspects: collections.deque[Batch] = collections.deque()  # with which a worker was lost
        self._begun: list[Batch] = []
        self._refused = 0  # lines
        self._last_fault = ""
        self._has_answered = any(part.lines > len(part.faults) for part in self._written.values())

    def run(self, parts: Iterator[Part]) -> None:
        left = self._left(parts)
        if not self._begin_next(left):
            return
        with self._workers:
            while self._open or self._begin_next(left):
                if self._refused < _MOST_REFUSED or self._has_answered:
                    self._give(left)
                elif not self._begun:
                    raise ValueError(f"The model answers nothing. It says: {self._last_fault}")
                for outcome in self._workers.wait():
                    self._take(outcome)

    def report(self) -> JobReport:
        written = [self._written[number] for number in sorted(self._written)]
        faults = [(part, *fault) for part in written for fault in part.faults]
        first = f"line {faults[0][1]:,} of {faults[0][0].file}: {faults[0][2]}" if faults else ""
        notes: dict[str, tuple[int, str]] = {}
        for part in written:
            for kind, (number, line) in part.notes.items():
                known, place = notes.get(kind, (0, f"line {line:,} of {part.file}"))
                notes[kind] = (known + number, place)
        lines = sum(part.lines for part in written)
        return JobReport(lines, len(written), self._before, len(faults), first, notes)

    def _left(self, parts: Iterator[Part]) -> Iterator[Part]:
        """The parts that are not written."""
        last = -1
        for part in parts:
            last = part.number
            known = self._written.get(part.number)
            if known is None:
                yield part
                continue
            if (known.input_sha256, known.first, known.before) != (part.sum(), part.first, part.before):
                raise ValueError(
                    f"{part.file} has changed since {self._folder.file_of(part.number)} was written: lines "
                    f"{part.first + 1:,} to {part.first + len(part.lines):,} are other ones. Name a new folder by "
                    "--output."
                )
            self._before += len(part.lines)
            self._on_lines(len(part.lines))
        if beyond := [number for number in self._written if number > last]:
            raise ValueError(
                f"The files have fewer lines than when {self._folder.file_of(max(beyond))} was written. Name a new "
                "folder by --output."
            )

    def _give(self, left: Iterator[Part]) -> None:
        """Gives batches to all free workers, and reads parts as far as they are needed for it."""
        while self._workers.free() and (batch := self._next(left)) is not None:
            self._begun.append(batch)
            self._workers.begin(batch)

    def _next(self, left: Iterator[Part]) -> Batch | None:
        """The batch to begin now.

        Of those with which a worker was lost, only one is tried at a time: several batches may be lost with the same
        server, and the one that ends it must not meet them again.
        """
        if self._suspects and not any(batch.losses for batch in self._begun):
            return self._suspects.popleft()
        return self._batches.popleft() if self._batches or self._begin_next(left) else None

    def _begin_next(self, left: Iterator[Part]) -> bool:
        """Begins the next part that has lines for workers; False if there is none."""
        for part in left:
            self._begin(part)
            if self._batches:
                return True
        return False

    def _begin(self, part: Part) -> None:
        """Makes the batches of a part; lines that no model should read get what stands in their place."""
        opened = _Open(part, 0, [None] * len(part.lines), {}, {}, time.monotonic())
        self._open[part.number] = opened
        asked: dict[int, bytes] = {}
        for place, line in enumerate(part.lines):
            fault = self._settings.limits.fault_of(line.text)
            text = line.text if fault is None else self._fault(opened, place, fault)
            if text or fault is None:
                asked[place] = text
        places = list(asked)
        done = 0
        for chosen in batches_of([len(asked[place]) for place in places], BATCH_SIZE):
            batch = [places[index] for index in chosen]
            seed = batch_seed(self._settings.seed, part.before + done)
            self._batches.append(Batch(part.number, tuple(batch), tuple(asked[place] for place in batch), seed))
            opened.waiting += 1
            done += len(batch)
        if not self._has_answered:  # The longest texts come first, and may be too long for the model.
            self._batches.rotate(1)
        self._write_if_done(opened)

    def _fault(self, opened: _Open, place: int, fault: Fault) -> bytes:
        """Notes a fault; gives the text that is asked for in the line's place, if there is one."""
        opened.faults[place] = fault.reason
        line = opened.part.lines[place].text
        text, instead = INSTEAD[self._settings.on_fault](line, fault)
        self._answer(opened, place, [Hypothesis(instead, math.nan)])
        if not text:
            self._on_lines(1)
        return text

    def _answer(self, opened: _Open, place: int, found: list[Hypothesis]) -> None:
        part, line = opened.part, opened.part.lines[place]
        fault = opened.faults.get(place, "")
        opened.found[place] = AnsweredLine(part.before + place, line.text, found, line.kept, fault)

    def _take(self, outcome: Outcome) -> None:
        opened = self._open[outcome.batch.part]
        self._begun.remove(outcome.batch)
        if outcome.answers is not None:
            self._take_answers(opened, outcome.batch, outcome.answers)
        else:
            again = self._after_fault(opened, outcome)
            self._suspects.extend(batch for batch in again if batch.losses)
            self._batches.extendleft(reversed([batch for batch in again if not batch.losses]))
        self._write_if_done(opened)

    def _take_answers(self, opened: _Open, batch: Batch, answers: Answers) -> None:
        self._has_answered = True
        opened.waiting -= 1
        for place, found in zip(batch.places, answers.found, strict=True):
            self._answer(opened, place, found)
        self._on_lines(len(batch.places))
        for kind, noted in answers.notes.items():
            opened.notes.setdefault(kind, []).extend(batch.places[index] for index in noted)

    def _after_fault(self, opened: _Open, outcome: Outcome) -> list[Batch]:
        """What is tried in the place of a batch without answers: the batch again, or each of its lines alone."""
        batch = outcome.batch
        if outcome.fate is Fate.UNREACHED:
            return [batch]
        losses = batch.losses + (outcome.fate is Fate.LOST)
        if outcome.fate is Fate.LOST and losses < _MOST_LOSSES:
            return [dataclasses.replace(batch, losses=losses)]
        opened.waiting -= 1
        if len(batch.texts) > 1:
            opened.waiting += len(batch.texts)
            lines = enumerate(zip(batch.places, batch.texts, strict=True))
            alone = [
                Batch(batch.part, (place,), (text,), batch_seed(batch.seed, index)) for index, (place, text) in lines
            ]
            return alone if self._has_answered else alone[::-1]  # the shortest first
        self._refused += 1
        self._last_fault = outcome.fault
        self._fault(opened, batch.places[0], Fault(textwrap.shorten(outcome.fault, _LONGEST_REASON)))
        return []

    def _write_if_done(self, opened: _Open) -> None:
        if opened.waiting:
            return
        del self._open[opened.part.number]
        part, form = opened.part, self._settings.form
        first = part.first + 1
        self._written[part.number] = self._folder.write(
            part,
            (form(answered) for answered in opened.found if answered is not None),
            seconds=round(time.monotonic() - opened.since, 3),
            faults=[(first + place, opened.faults[place]) for place in sorted(opened.faults)],
            notes={kind: (len(places), first + min(places)) for kind, places in opened.notes.items()},
        )
