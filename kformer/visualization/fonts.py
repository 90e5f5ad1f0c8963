"""Fonts for tokens of any script.

Matplotlib shapes Arabic and puts right-to-left text in order from version 3.11 on. Its own font has no Chinese,
Japanese or Korean characters. For such tokens, `families_for` looks for an installed font that has them.
"""

import functools
from collections.abc import Iterable

import matplotlib
from matplotlib.font_manager import FontEntry, FontProperties, findfont, fontManager, get_font

_NORMAL_WEIGHT = 400


def families_for(texts: Iterable[str]) -> list[str]:
    """The current font families, followed by installed ones with the characters that the current ones lack.

    Characters that no font has are drawn as boxes, and Matplotlib warns of them: install a font, such as Noto Sans CJK.
    An SVG or HTML file needs no installed font, because the browser chooses one.
    """
    families = list(matplotlib.rcParams["font.family"])
    missing = {ord(character) for text in texts for character in text if character.isprintable()}
    for family in families:
        missing -= _characters(findfont(FontProperties(family=[family])))
    for entry in sorted(fontManager.ttflist, key=_rank):
        if not missing:
            break
        found = missing & _characters(entry.fname)
        if found and entry.name not in families:
            families.append(entry.name)
            missing -= found
    return families


def _rank(entry: FontEntry) -> tuple[bool, bool, int, str]:
    """Plain sans-serif fonts first."""
    is_sans = "sans" in entry.name.lower() or "gothic" in entry.name.lower()
    weight = entry.weight if isinstance(entry.weight, int) else _NORMAL_WEIGHT
    return not is_sans, entry.style != "normal", abs(weight - _NORMAL_WEIGHT), entry.name


@functools.cache
def _characters(path: str) -> frozenset[int]:
    """The code points that a font file has."""
    return frozenset(get_font(path).get_charmap())
