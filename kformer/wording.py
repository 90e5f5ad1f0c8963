"""Parts of messages: numbers with their nouns, and names that resemble a wrong one."""

import difflib
from collections.abc import Iterable, Sequence


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
    alike = [match for name in unknown for match in _alike(name, names)]
    return f" Did you mean {', '.join(map(repr, dict.fromkeys(alike)))}?" if alike else ""


def _alike(unknown: str, names: Sequence[str]) -> list[str]:
    """The name that is almost the unknown one; or those that begin with it; or the one that resembles it most."""
    longer = [name for name in names if name.startswith(unknown)] if len(unknown) >= 3 else []
    alike = difflib.get_close_matches(unknown, names, n=1)
    almost = difflib.get_close_matches(unknown, alike, cutoff=0.8)
    return almost or longer or alike
