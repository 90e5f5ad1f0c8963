"""Parts of messages: numbers with their nouns, and names that resemble a wrong one."""

import difflib
from collections.abc import Iterable


def count(number: float, noun: str) -> str:
    """The number and the noun, in the plural unless the number is 1: "1 step", "1,200 steps", "2.5 minutes"."""
    written = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{written} {noun}" if number == 1 else f"{written} {noun}s"


def did_you_mean(unknown: Iterable[str], known: Iterable[str]) -> str:
    """The end of an error message about unknown names: which known ones resemble them.

    Returns:
        Such as " Did you mean 'dropout_rate'?", with a blank in front; empty where nothing is alike.
    """
    names = list(known)
    alike = [match for name in unknown for match in difflib.get_close_matches(name, names, n=1)]
    return f" Did you mean {', '.join(map(repr, dict.fromkeys(alike)))}?" if alike else ""
