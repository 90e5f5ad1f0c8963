"""A model as a Unix filter: a line in, an answer out, in order."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO, NamedTuple

from kformer.inference.line_forms import AnsweredLine, LineForm, TextColumns
from kformer.inference.line_limits import INSTEAD, Fault, LineLimits
from kformer.text.batches import BATCH_SIZE, AnswerBatch, Hypothesis, RefusedTextError, answer_all

LINES_AT_ONCE = 1024  # lines of a pipe that are sorted by length together
FILE_LINES_AT_ONCE = 65536  # the same for a file: nobody waits for its single lines
DEFAULT_INSTEAD = "empty"


class InputLine(NamedTuple):
    """A line to answer.

    Attributes:
        text: UTF-8.
        kept: What is written beside its answer.
    """

    text: bytes
    kept: str = ""


def input_lines(lines: Iterable[bytes | None]) -> Iterator[InputLine | None]:
    """The lines of `kformer.files.lines.lines_of` as lines to answer, with nothing kept."""
    for line in lines:
        yield None if line is None else InputLine(line)


def answer_lines(
    answer: AnswerBatch,
    lines: Iterable[InputLine | None],
    target: BinaryIO,
    form: LineForm = TextColumns(),  # noqa: B008 (it cannot change)
    lines_at_once: int = LINES_AT_ONCE,
    on_batch: Callable[[int], None] | None = None,
    batch_size: int = BATCH_SIZE,
    at_once: int | None = None,
    on_line: Callable[[AnsweredLine], None] = lambda answered: None,
    limits: LineLimits = LineLimits(),  # noqa: B008
    on_fault: str | None = None,
) -> None:
    """Answers lines by lines of `target`, in their order.

    Args:
        answer: As `answer_all` takes it.
        lines: For example from `input_lines`. At a None, the caller may be waiting: the answers to
            all lines before it are written.
        target: Where the answers go, UTF-8 lines ended by LF.
        form: What is written for each line.
        lines_at_once: Lines that are read before the first of them are written, if no None comes.
        on_batch: Called after each batch with the number of lines in it.
        batch_size, at_once: See `answer_all`.
        on_line: Called for each line when its answers are written.
        limits: Which lines the model is asked for.
        on_fault: What stands in the place of an answer, a name in `INSTEAD`. None: for a line beyond the limits
            `DEFAULT_INSTEAD`; a line that is refused ends the work.

    Raises:
        RefusedTextError: A line gets no answer. The answers to all lines before it are written.
    """

    instead = INSTEAD[on_fault or DEFAULT_INSTEAD]
    reasons: dict[bytes, str] = {}  # why texts were refused
    advance = on_batch or (lambda done: None)
    ask = answer if on_fault is None else _but_refused(answer, reasons)

    def of_texts(texts: Sequence[bytes]) -> list[list[Hypothesis]]:
        return answer_all(ask, texts, batch_size, advance, at_once)

    number = 0
    for chunk in _chunks(lines, lines_at_once):
        faults = {place: fault for place, line in enumerate(chunk) if (fault := limits.fault_of(line.text))}
        texts = [line.text for line in chunk]
        for place, fault in faults.items():
            texts[place], _ = instead(texts[place], fault)
        asked = [place for place, text in enumerate(texts) if text or place not in faults]
        advance(len(chunk) - len(asked))
        answered, found, refused = _up_to_refused([texts[place] for place in asked], of_texts)
        of_places = dict(zip(asked, found, strict=False))  # fewer, if one is refused
        end = len(chunk) if refused is None else asked[len(answered)]
        for place, line in enumerate(chunk[:end]):
            hypotheses = of_places.get(place)
            if not hypotheses:
                faults.setdefault(place, Fault(reasons.get(texts[place], "")))
                hypotheses = [Hypothesis(instead(line.text, faults[place])[1], math.nan)]
            reason = faults[place].reason if place in faults else ""
            written = AnsweredLine(number, line.text, hypotheses, line.kept, reason)
            on_line(written)
            target.write(form(written).encode("utf-8"))
            number += 1
        target.flush()
        if refused is not None:
            raise RefusedTextError(f"Line {number + 1:,}: {refused}", refused.text) from refused


def _but_refused(answer: AnswerBatch, reasons: dict[bytes, str]) -> AnswerBatch:
    """The same function, with no answers to texts that are refused. Their reasons are noted by their texts."""

    def ask(texts: Sequence[bytes]) -> list[list[Hypothesis]]:
        while True:
            refused = [text in reasons for text in texts]  # once: another thread may add to them
            given = [text for text, is_refused in zip(texts, refused, strict=True) if not is_refused]
            try:
                found = iter(answer(given) if given else [])
            except RefusedTextError as error:
                reasons[error.text] = str(error)
                continue
            return [[] if is_refused else next(found) for is_refused in refused]

    return ask


def _up_to_refused(
    lines: list[bytes], answer: AnswerBatch
) -> tuple[list[bytes], list[list[Hypothesis]], RefusedTextError | None]:
    """The lines before the first one that gets no answer, their answers, and the error of that line."""
    refused = None
    while True:
        try:
            return lines, answer(lines), refused
        except RefusedTextError as error:  # one before it may be refused, too
            lines, refused = lines[: lines.index(error.text)], error


def _chunks(lines: Iterable[InputLine | None], size: int) -> Iterator[list[InputLine]]:
    """The lines in lists of `size`, or fewer before a None and at the end."""
    chunk: list[InputLine] = []
    for line in lines:
        if line is not None:
            chunk.append(line)
        if len(chunk) == size or (line is None and chunk):
            yield chunk
            chunk = []
    if chunk:
        yield chunk
