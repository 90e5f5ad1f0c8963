"""The hypotheses that a beam search considers for one text, with their tokens as text. `tracing` finds them."""

from typing import NamedTuple

from kformer.decoding.tracing import Extension


class BeamTree(NamedTuple):
    """The extensions of a search, each with the text of its token. Each one extends the one with number `parent`."""

    extensions: list[Extension]
    tokens: list[str]  # of each extension
    beam_size: int
    length_penalty: float

    def path(self, number: int) -> list[int]:
        """The numbers of the extensions that lead to an extension, itself included."""
        found = []
        while number >= 0:
            found.append(number)
            number = self.extensions[number].parent
        return found[::-1]

    @property
    def best(self) -> int | None:
        """The number of the best finished extension, the first of equals; None if none is finished."""
        finished = [number for number, one in enumerate(self.extensions) if one.outcome == "finished"]
        return max(finished, key=lambda number: self.extensions[number].score, default=None)
