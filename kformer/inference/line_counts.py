"""Counts lines of which a user should know: too short answers, unknown words, cut texts."""

import abc
from collections.abc import Iterator
from typing import Protocol

from kformer.files.encodings import fault_of
from kformer.text.batches import Hypothesis
from kformer.wording import count


class LineWatcher(Protocol):
    """Looks at all lines and their answers, and tells in the end what a person should know of them."""

    def __call__(self, line: bytes, hypotheses: list[Hypothesis], fault: str = "") -> None:
        """Looks at the next line, its answers, best first, and why it has none of its own."""
        ...

    def message(self) -> str | None:
        """What a person should know; None if there is nothing."""
        ...


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

    def __call__(self, line: bytes, hypotheses: list[Hypothesis], fault: str = "") -> None:
        """See `LineWatcher`."""
        self._lines += 1
        if not fault and self._counts(line, hypotheses):
            self.count += 1
            self.first = self.first or self._lines

    def message(self) -> str | None:
        """How many there are, and what may help; None if there are none."""
        return self.told(self.count, f"line {self.first:,}") if self.count else None

    @abc.abstractmethod
    def _counts(self, line: bytes, hypotheses: list[Hypothesis]) -> bool:
        """Whether this line is one of them."""

    @abc.abstractmethod
    def told(self, number: int, place: str) -> str:
        """The message about one line or more, the first of which is at this place."""


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
        return is_short(line, hypotheses[0], self.ratio)

    def told(self, number: int, place: str) -> str:
        verb = "is" if number == 1 else "are"
        return (
            f"{count(number, 'translation')} {verb} much too short for the line, so that something may be missing. "
            f"The first is that of {place}. Shorter lines help, or a smaller --max-source-length."
        )


def is_short(line: bytes, best: Hypothesis, ratio: float) -> bool:
    """Whether a translation has fewer than `ratio` characters for each character of its line; not if it was given."""
    return not best.tokens and len(best.text) < ratio * len(line.decode("utf-8", "replace").strip())


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

    def told(self, number: int, place: str) -> str:
        are, their = ("is", "its answer means") if number == 1 else ("are", "their answers mean")
        remedy = (
            'The model reads symbols with blanks between them, "c a t" in place of "cat".'
            if self._symbols
            else "Are they in the language and the script that the model has learned?"
        )
        return (
            f"{count(number, 'line')} {are} mostly text that is not in the model's vocabulary, so that {their} "
            f"little. The first is {place}. {remedy}"
        )


class CutLines(NotedLines):
    """Counts lines whose end the model does not read.

    Examples:
        >>> cut = CutLines()
        >>> cut.note(b"a long text")
        >>> cut(b"a long text", [])
        >>> cut.message()
        '1 line is longer than the model reads, so that its end does not count. The first is line 1. Divide such lines.'
    """

    def told(self, number: int, place: str) -> str:
        are, their = ("is", "its end does") if number == 1 else ("are", "their ends do")
        return (
            f"{count(number, 'line')} {are} longer than the model reads, so that {their} not count. The first is "
            f"{place}. Divide such lines."
        )


class LinesWithoutAnswer:
    """Counts lines that have no answer of their own.

    Args:
        on_fault: What stands in the place of the answer: a name in `kformer.inference.line_limits.INSTEAD`.

    Examples:
        >>> without = LinesWithoutAnswer("source")
        >>> without(b"...", [], "too long")
        >>> print(without.message())
        1 line has no answer: the line itself stands in its place. The first is line 1: too long. --on-error says what
        stands there.
    """

    def __init__(self, on_fault: str) -> None:
        self._on_fault = on_fault
        self._count = 0
        self._lines = 0
        self._first = ""

    def __call__(self, line: bytes, hypotheses: list[Hypothesis], fault: str = "") -> None:
        """See `LineWatcher`."""
        self._lines += 1
        if fault:
            self._count += 1
            self._first = self._first or f"line {self._lines:,}: {fault}"

    def message(self) -> str | None:
        """How many there are; None if there are none."""
        return self.told(self._count, self._first) if self._count else None

    def told(self, number: int, first: str) -> str:
        """The message about one line or more. `first` says where the first one stands, and what is wrong with it."""
        have, their = ("has no answer", "its place") if number == 1 else ("have no answer", "their place")
        stands = {"empty": "an empty one", "source": "the line itself", "keep": "the answer to its beginning"}
        return (
            f"{count(number, 'line')} {have}: {stands[self._on_fault]} stands in {their}. The first is {first}. "
            "--on-error says what stands there."
        )


class Faults:
    """Counts lines that are not text in UTF-8, for those who read them all the same.

    Args:
        name: what the lines belong to, in the message.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._found = 0
        self._first = ""

    def counted(self, lines: Iterator[bytes | None]) -> Iterator[bytes | None]:
        """The same lines."""
        number = 0
        for line in lines:
            number += line is not None
            fault = fault_of(line) if line is not None else None
            if fault is not None:
                self._found += 1
                self._first = self._first or f"line {number:,}: {fault}"
            yield line

    def message(self) -> str | None:
        """How many lines were found, and what is wrong with the first one; None if there are none."""
        if not self._found:
            return None
        lines = count(self._found, "line")
        return (
            f"{self._name}: {lines} with bytes that are not text in UTF-8; the model reads such bytes as unknown "
            f"characters. The first is {self._first}."
        )
