"""Leaves out pairs that a model would learn wrong things from, and counts them by the reason."""

import array
import dataclasses
import itertools
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from kformer.data.overlap import Unseen
from kformer.data.pairs import Pair, Pairs, hash_of
from kformer.data.tags import without_tag
from kformer.wording import did_you_mean
from kformer.writing_systems import script_of, scripts

_EXAMPLES = 3  # of each reason
_SHOWN = 70  # characters of an example
DUPLICATES = ("keep", "pairs", "sources")


@dataclasses.dataclass(frozen=True)
class Cleaning:
    """Which pairs are left out. Each rule is off unless it is asked for; blank pairs are left out later, with no rule.

    Attributes:
        max_ratio: The most characters of the longer side for each of the shorter one.
        max_characters: The most characters of a side.
        min_letters: The least share of letters (and marks, such as accents and vowel signs) among the characters of a
            side, white space not counted.
        source_script, target_script: The script of at least half of the letters, as `script_of` calls it.
        drop_copies: Whether a pair is left out whose sides are the same.
        duplicates: "pairs": of the same pairs, only the first is kept; "sources": of all pairs with the same source;
            "keep": all. White space does not count.
        without: Test sets: a pair is left out whose source is also a source of one of them.

    Raises:
        ValueError: A value is none of these.

    Examples:
        >>> Cleaning(max_ratio=3, drop_copies=True).reason("one", "one")
        'source and target are the same'
    """

    max_ratio: float | None = None
    max_characters: int | None = None
    min_letters: float | None = None
    source_script: str | None = None
    target_script: str | None = None
    drop_copies: bool = False
    duplicates: str = "keep"
    without: tuple[Unseen, ...] = ()

    def __post_init__(self) -> None:
        if self.max_ratio is not None and self.max_ratio < 1:
            raise ValueError(f"max_ratio must be at least 1. Received: {self.max_ratio}.")
        if self.max_characters is not None and self.max_characters < 1:
            raise ValueError(f"max_characters must be at least 1. Received: {self.max_characters}.")
        if self.min_letters is not None and not 0 <= self.min_letters <= 1:
            raise ValueError(f"min_letters must be a share from 0 to 1. Received: {self.min_letters}.")
        for script in filter(None, (self.source_script, self.target_script)):
            if script not in scripts():
                raise ValueError(
                    f"There is no script {script!r}. Name one as Unicode does, such as Latin, Cyrillic, Greek, Arabic, "
                    f"Hebrew, Devanagari, Han, Hiragana, Hangul or Thai.{did_you_mean([script], scripts())}"
                )
        if self.duplicates not in DUPLICATES:
            raise ValueError(f"duplicates must be one of {', '.join(DUPLICATES)}. Received: {self.duplicates!r}.")

    @property
    def fingerprint(self) -> list[Any]:
        """All that decides which pairs are left out, as values of JSON."""
        fields = (field.name for field in dataclasses.fields(self) if field.name != "without")
        return [*(getattr(self, name) for name in fields), *(unseen.fingerprint for unseen in self.without)]

    def reason(self, source: str, target: str) -> str | None:
        """Why a pair is left out, whatever other pairs there are; None: it is kept."""
        source, target = source.strip(), target.strip()
        shorter, longer = sorted((len(source), len(target)))
        if shorter and self.max_ratio is not None and longer > self.max_ratio * shorter:
            return f"a side has more than {self.max_ratio:g} times the characters of the other"
        if self.max_characters is not None and longer > self.max_characters:
            return f"a side has more than {self.max_characters:,} characters"
        if self.drop_copies and source and source == target:
            return "source and target are the same"
        for side, text, script in (("source", source, self.source_script), ("target", target, self.target_script)):
            if text and self.min_letters is not None and _share_of_letters(text) < self.min_letters:
                return f"less than {self.min_letters:.0%} of the {side} are letters"
            if text and script is not None and not _is_mostly(text, script):
                return f"the {side} is not written in {script}"
        return next(filter(None, (unseen.reason(source, target) for unseen in self.without)), None)


@dataclasses.dataclass
class CleaningReport:
    """What was left out.

    Attributes:
        read: How many pairs were looked at.
        counts: How many were left out for each reason.
        examples: The first ones of each.
    """

    read: int = 0
    counts: Counter[str] = dataclasses.field(default_factory=Counter)
    examples: dict[str, list[Pair]] = dataclasses.field(default_factory=dict)

    @property
    def left_out(self) -> int:
        """How many pairs were left out."""
        return self.counts.total()

    def add(self, reason: str, pair: Pair) -> None:
        """Counts a pair that is left out."""
        self.counts[reason] += 1
        shown = self.examples.setdefault(reason, [])
        if len(shown) < _EXAMPLES:
            shown.append((_short(pair[0]), _short(pair[1])))

    def lines(self, examples: bool = False) -> list[str]:
        """What was left out, in words, the most frequent reason first."""
        lines = [f"{self.left_out:,} of {self.read:,} pairs are left out"]
        for reason, number in self.counts.most_common():
            lines.append(f"  {number:>10,}  {number / self.read:6.2%}  {reason}")
            lines += [f"{'':22}{source!r} - {target!r}" for source, target in self.examples[reason] if examples]
        return lines


def clean(
    pairs: Pairs | Iterable[Pair], cleaning: Cleaning, tags: Collection[str] = ()
) -> tuple[bytes, CleaningReport]:
    """Which pairs are kept, a byte for each (1 or 0), and what was left out.

    It holds 8 bytes for each pair while it looks for duplicates, which it finds by hashes of 64 bits. The `tags` before
    sources are no part of them, but sources with different tags are not the same.

    Examples:
        >>> kept, report = clean([("one", "uno"), ("one", " uno"), ("two", "two")], Cleaning(duplicates="pairs"))
        >>> list(kept), report.left_out
        ([1, 0, 1], 1)
    """
    report, kept, hashes = CleaningReport(), bytearray(), array.array("Q")
    for source, target in pairs:
        reason = cleaning.reason(without_tag(source, tags), target)
        report.read += 1
        kept.append(reason is None)
        if reason is not None:
            report.add(reason, (source, target))
        elif cleaning.duplicates != "keep":
            hashes.append(hash_of(source, target if cleaning.duplicates == "pairs" else ""))
    if hashes:
        _leave_out_duplicates(pairs, cleaning.duplicates, kept, np.asarray(hashes), report)
    return bytes(kept), report


def _leave_out_duplicates(
    pairs: Iterable[Pair], which: str, kept: bytearray, hashes: np.ndarray, report: CleaningReport
) -> None:
    """Leaves out what is there a second time; `hashes` has a number for each pair that is kept so far."""
    first = np.zeros(len(hashes), bool)
    first[np.unique(hashes, return_index=True)[1]] = True
    places = np.flatnonzero(np.frombuffer(kept, np.uint8))[~first]
    np.frombuffer(kept, np.uint8)[places] = 0
    if not len(places):
        return
    reason = {"pairs": "the same pair is there before", "sources": "the same source is there before"}[which]
    wanted = set(places[:_EXAMPLES].tolist())
    for place, pair in enumerate(itertools.islice(pairs, int(places[min(len(places), _EXAMPLES) - 1]) + 1)):
        if place in wanted:
            report.add(reason, pair)
    report.counts[reason] = len(places)


def _share_of_letters(text: str) -> float:
    written = "".join(text.split())
    return sum(map(_is_letter, written)) / len(written)


def _is_letter(character: str) -> bool:
    """Also a mark, such as the vowels of Hindi and Thai."""
    return character.isalpha() or unicodedata.category(character).startswith("M")


def _is_mostly(text: str, script: str) -> bool:
    """Whether at least half of the letters are of a script; a text without letters is of any script."""
    scripts = Counter(map(script_of, text))
    del scripts[None]
    return 2 * scripts[script] >= scripts.total()


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
