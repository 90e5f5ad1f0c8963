"""What a corpus consists of, for a person who looks at it before training: lengths, scripts, what is there twice."""

import dataclasses
from collections import Counter
from collections.abc import Iterable

from kformer.data.pairs import Pair
from kformer.wording import count
from kformer.writing_systems import script_of

SIDES = ("source", "target")
_BAR = 40  # characters of the longest bar
_MOST_SCRIPTS = 5
_MOST_WORDS = 1 << 20  # different ones of a side, so that a corpus of any size can be looked at
_VOCABULARIES = (8_000, 16_000, 32_000)


@dataclasses.dataclass
class Description:
    """Numbers of pairs that were read.

    Attributes:
        pairs: How many there are.
        blank: How many have a blank side.
        words: Of each side, how many texts have each number of words (what stands between blanks).
        characters: Of each side, how many characters there are, white space included.
        scripts: Of each side, how many letters there are of each script.
        vocabulary: Of each side, how often each word is there. When there are a million different ones, no others are
            added.
        alphabet: Of each side, the different characters, without white space.
    """

    pairs: int = 0
    blank: int = 0
    words: tuple[Counter[int], Counter[int]] = dataclasses.field(default_factory=lambda: (Counter(), Counter()))
    characters: list[int] = dataclasses.field(default_factory=lambda: [0, 0])
    scripts: tuple[Counter[str | None], Counter[str | None]] = dataclasses.field(
        default_factory=lambda: (Counter(), Counter())
    )
    vocabulary: tuple[Counter[str], Counter[str]] = dataclasses.field(default_factory=lambda: (Counter(), Counter()))
    alphabet: tuple[set[str], set[str]] = dataclasses.field(default_factory=lambda: (set(), set()))

    def add(self, pair: Pair) -> None:
        """Looks at a pair."""
        self.pairs += 1
        self.blank += not all(text.strip() for text in pair)
        for side, text in enumerate(pair):
            words = text.split()
            self.words[side][len(words)] += 1
            known = self.vocabulary[side]
            known.update(words if len(known) < _MOST_WORDS else filter(known.__contains__, words))
            self.alphabet[side].update(*words)
            self.characters[side] += len(text)
            self.scripts[side].update(map(script_of, text))

    def lines(self) -> list[str]:
        """The numbers in words, and the lengths as a picture."""
        lines = [f"{count(self.pairs, 'pair')}, {self.blank:,} with a blank side"]
        for side, name in enumerate(SIDES):
            if not self.characters[side]:
                lines.append(f"{name}: no text")
                continue
            words = self.words[side]
            number = sum(length * texts for length, texts in words.items())
            letters = Counter({script: n for script, n in self.scripts[side].items() if script is not None})
            shares = [f"{script} {n / letters.total():.1%}" for script, n in letters.most_common(_MOST_SCRIPTS)]
            lines.append(
                f"{name}: {number:,} words, {self.characters[side]:,} characters; {number / self.pairs:.1f} words on "
                f"average, at most {max(words):,}; letters: {', '.join(shares) or 'none'}"
            )
            lines += [self._vocabulary_line(side, number), *_bars(words)]
        return lines

    def _vocabulary_line(self, side: int, words: int) -> str:
        """How many different words and characters a side has, and how much of it the most frequent words make up."""
        known = self.vocabulary[side]
        more = "more than " if len(known) >= _MOST_WORDS else ""
        frequent = sorted(known.values(), reverse=True)
        shares = [
            f"{size:,} words {sum(frequent[:size]) / words:.1%}" for size in _VOCABULARIES if size < len(frequent)
        ]
        covered = f"; share of the text that the most frequent words make up: {', '.join(shares)}" if shares else ""
        different = f"{count(len(known), 'different word')}, {count(len(self.alphabet[side]), 'different character')}"
        return f"  {more}{different}{covered}"


def describe(pairs: Iterable[Pair]) -> Description:
    """Reads pairs.

    Examples:
        >>> print("\\n".join(describe([("one two", "uno dos")]).lines()))
        1 pair, 0 with a blank side
        source: 2 words, 7 characters; 2.0 words on average, at most 2; letters: Latin 100.0%
          2 different words, 5 different characters
                  2 words  ████████████████████████████████████████         1
        target: 2 words, 7 characters; 2.0 words on average, at most 2; letters: Latin 100.0%
          2 different words, 4 different characters
                  2 words  ████████████████████████████████████████         1
    """
    description = Description()
    for pair in pairs:
        description.add(pair)
    return description


def _bars(words: Counter[int]) -> list[str]:
    """A line for lengths up to each power of two, with a bar as long as its share."""
    binned: Counter[int] = Counter()
    for length, texts in words.items():
        binned[(length - 1).bit_length() if length else -1] += texts  # 0; 1; 2; 3 to 4; 5 to 8; ...
    lines = []
    for power in range(min(binned), max(binned) + 1):
        low, high = (0, 0) if power < 0 else (2 ** (power - 1) + 1 if power else 1, 2**power)
        name = f"{high}" if low == high else f"{low} to {high}"
        bar = "█" * round(_BAR * binned[power] / max(binned.values()))
        lines.append(f"{name:>11} words  {bar:<{_BAR}}  {binned[power]:>8,}")
    return lines
