"""A model as a Unix filter: a line in, an answer out, in order."""

import abc
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO

from kformer.text.batches import BATCH_SIZE, AnswerBatch, Hypothesis, RefusedTextError, answer_all
from kformer.wording import count

LINES_AT_ONCE = 1024  # lines of a pipe that are sorted by length together
_BLANKS = str.maketrans("\t\0", "  ")
FILE_LINES_AT_ONCE = 65536  # the same for a file: nobody waits for its single lines
OnLine = Callable[[bytes, list[Hypothesis]], None]
# From the number of a line, counted from 0, the line and its answers, best first, to what is written for it.
LineForm = Callable[[int, bytes, list[Hypothesis]], str]


def plain_answer(number: int, line: bytes, found: list[Hypothesis]) -> str:
    """The answer.

    Examples:
        >>> plain_answer(0, b"one two", [Hypothesis("uno dos", -1.0)])
        'uno dos\\n'
    """
    return f"{_one_line(found[0].text)}\n"


def answer_with_score(number: int, line: bytes, found: list[Hypothesis]) -> str:
    """The answer, a tab and its score.

    Examples:
        >>> answer_with_score(0, b"one two", [Hypothesis("uno dos", -1.0)])
        'uno dos\\t-1.0000\\n'
    """
    return f"{_one_line(found[0].text)}\t{found[0].score:.4f}\n"


def answer_and_line(number: int, line: bytes, found: list[Hypothesis]) -> str:
    """The answer, a tab and the line: a pair to train the other direction on.

    A tab or a NUL within them becomes a blank: with one, a file of pairs could not be read.

    Examples:
        >>> answer_and_line(0, b"one\\ttwo", [Hypothesis("uno dos", -1.0)])
        'uno dos\\tone two\\n'
    """
    sides = (found[0].text, line.decode("utf-8", "replace"))
    answer, text = (_one_line(side).translate(_BLANKS) for side in sides)
    return f"{answer}\t{text}\n"


@dataclasses.dataclass(frozen=True)
class NBest:
    """Lines of the form `number ||| answer ||| score`, as Moses and Marian write them.

    An answer may hold ` ||| ` itself: the number ends at the first one, and the score begins after the last one.

    Args:
        most: Answers per line.

    Examples:
        >>> NBest(2)(0, b"one", [Hypothesis("uno", -0.5), Hypothesis("un", -1.0), Hypothesis("una", -2.0)])
        '0 ||| uno ||| -0.500000\\n0 ||| un ||| -1.000000\\n'
    """

    most: int

    def __call__(self, number: int, line: bytes, found: list[Hypothesis]) -> str:
        best = found[: self.most]
        return "".join(f"{number} ||| {_one_line(text)} ||| {score:.6f}\n" for text, score in best)


class CountedLines(abc.ABC):
    """Counts lines of which the user should know.

    Attributes:
        count: How many there are.
        first: The number of the first one, from 1; 0 if there is none.
    """

    def __init__(self) -> None:
        self.count = 0
        self.first = 0
        self._lines = 0

    def __call__(self, line: bytes, hypotheses: list[Hypothesis]) -> None:
        """Looks at the next line and its answers, best first."""
        self._lines += 1
        if self._counts(line, hypotheses):
            self.count += 1
            self.first = self.first or self._lines

    def message(self) -> str | None:
        """How many there are, and what may help; None if there are none."""
        return self._told() if self.count else None

    @abc.abstractmethod
    def _counts(self, line: bytes, hypotheses: list[Hypothesis]) -> bool:
        """Whether this line is one of them."""

    @abc.abstractmethod
    def _told(self) -> str:
        """The message about one line or more."""


class ShortTranslations(CountedLines):
    """Counts translations that are so short for their lines that something may be missing.

    `Translator.translate_detailed` compares the parts of a divided line one by one, so that it finds more of them.

    Args:
        ratio: A translation is short if it has fewer characters for each character of its line; see
            `DecodingConfig.short_ratio`.

    Examples:
        >>> short = ShortTranslations(0.5)
        >>> short(b"one two three four", [Hypothesis("uno dos tres cuatro", -1.0)])
        >>> short(b"one two three four", [Hypothesis("uno dos", -1.0)])
        >>> short.count, short.first
        (1, 2)
    """

    def __init__(self, ratio: float) -> None:
        super().__init__()
        self.ratio = ratio

    def _counts(self, line: bytes, hypotheses: list[Hypothesis]) -> bool:
        characters = len(line.decode("utf-8", "replace").strip())
        return len(hypotheses[0].text) < self.ratio * characters

    def _told(self) -> str:
        verb = "is" if self.count == 1 else "are"
        return (
            f"{count(self.count, 'translation')} {verb} much too short for the line, so that something may be missing. "
            f"The first is that of line {self.first:,}. Shorter lines help, or a smaller --max-source-length."
        )


class NotedLines(CountedLines):
    """Counts lines that somebody notes, before they are looked at."""

    def __init__(self) -> None:
        super().__init__()
        self._found: set[int] = set()  # hashes, because the texts could take all memory

    def note(self, text: bytes) -> None:
        """Remembers a text that counts. Several threads may call this at the same time."""
        self._found.add(hash(text))

    def _counts(self, line: bytes, hypotheses: list[Hypothesis]) -> bool:
        return hash(line) in self._found


class UnknownLines(NotedLines):
    """Counts lines of text that a model's vocabulary mostly lacks, such as one in another script.

    Args:
        symbols: Whether the model reads symbols with blanks between them; None: that is not known.

    Examples:
        >>> unknown = UnknownLines(symbols=True)
        >>> unknown.note(b"cat")
        >>> for line in (b"c a t", b"cat", b"cat"):
        ...     unknown(line, [])
        >>> unknown.count, unknown.first
        (2, 2)
    """

    def __init__(self, symbols: bool | None) -> None:
        super().__init__()
        self._symbols = symbols

    def _told(self) -> str:
        are, their = ("is", "its answer means") if self.count == 1 else ("are", "their answers mean")
        remedy = (
            'The model reads symbols with blanks between them, "c a t" in place of "cat".'
            if self._symbols
            else "Are they in the language and the script that the model has learned?"
        )
        return (
            f"{count(self.count, 'line')} {are} mostly text that is not in the model's vocabulary, so that {their} "
            f"little. The first is line {self.first:,}. {remedy}"
        )


class CutLines(NotedLines):
    """Counts lines whose end a classifier or tagger does not read.

    Examples:
        >>> cut = CutLines()
        >>> cut.note(b"a long text")
        >>> cut(b"a long text", [])
        >>> cut.message()
        '1 line is longer than the model reads, so that its end does not count. The first is line 1. Divide such lines.'
    """

    def _told(self) -> str:
        are, their = ("is", "its end does") if self.count == 1 else ("are", "their ends do")
        return (
            f"{count(self.count, 'line')} {are} longer than the model reads, so that {their} not count. The first is "
            f"line {self.first:,}. Divide such lines."
        )


def answer_lines(
    answer: AnswerBatch,
    lines: Iterable[bytes | None],
    target: BinaryIO,
    form: LineForm = plain_answer,
    lines_at_once: int = LINES_AT_ONCE,
    on_batch: Callable[[int], None] = lambda done: None,
    batch_size: int = BATCH_SIZE,
    at_once: int | None = None,
    on_line: OnLine = lambda line, hypotheses: None,
) -> None:
    """Answers lines by lines of `target`, in their order.

    Args:
        answer: As `answer_all` takes it.
        lines: UTF-8, from `kformer.files.lines.lines_of`. At a None, the caller may be waiting: the answers to
            all lines before it are written.
        target: Where the answers go, UTF-8 lines ended by LF.
        form: What is written for each line.
        lines_at_once: Lines that are read before the first of them are written, if no None comes.
        on_batch: Called after each batch with the number of lines in it.
        batch_size, at_once: See `answer_all`.
        on_line: Called for each line when its answers are written.

    Raises:
        RefusedTextError: A line gets no answer. The answers to all lines before it are written.
    """

    def of_texts(texts: Sequence[bytes]) -> list[list[Hypothesis]]:
        return answer_all(answer, texts, batch_size, on_batch, at_once)

    number = 0
    for chunk in _chunks(lines, lines_at_once):
        answered, found, refused = _up_to_refused(chunk, of_texts)
        for line, hypotheses in zip(answered, found, strict=True):
            on_line(line, hypotheses)
            target.write(form(number, line, hypotheses).encode("utf-8"))
            number += 1
        target.flush()
        if refused is not None:
            raise RefusedTextError(f"Line {number + 1:,}: {refused}", refused.text) from refused


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


def _chunks(lines: Iterable[bytes | None], size: int) -> Iterator[list[bytes]]:
    """The lines in lists of `size`, or fewer before a None and at the end."""
    chunk: list[bytes] = []
    for line in lines:
        if line is not None:
            chunk.append(line)
        if len(chunk) == size or (line is None and chunk):
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _one_line(text: str) -> str:
    """A model with byte pieces can produce a line feed; a line must stay one line."""
    return text.replace("\n", " ").replace("\r", " ")
