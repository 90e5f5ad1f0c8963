"""White space, invisible characters, the script of a letter, and scripts without blanks between words."""

import functools
import unicodedata

# All characters with Unicode's property White_Space, which are ASCII blanks, NEXT LINE, and the separators Zs, Zl and
# Zp. And U+FEFF, a byte order mark: some programs put it before each text, and it remains inside where files are
# joined. They may stand within the brackets of a regular expression, of Python as of TensorFlow.
WHITESPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)

# Characters without a width that do not change what a word is: soft hyphens, places where a line may break or not, and
# marks of the direction of writing. They may stand within brackets, too. The joiners U+200C and U+200D are no such
# characters: in Persian, in the scripts of India and in emoji they make another word or sign.
MEANINGLESS = "\xad\u061c\u200b\u200e\u200f" + "".join(map(chr, (*range(0x202A, 0x202F), *range(0x2060, 0x2070))))

_HAN = ((0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
_UNSPACED = (
    *_HAN,
    *((0x3001, 0x30FF), (0x31F0, 0x31FF), (0xFF01, 0xFF9F)),  # kana, and the punctuation of Chinese and Japanese
    *((0x0E00, 0x0E7F), (0x0E80, 0x0EFF), (0x0F00, 0x0FFF)),  # Thai, Lao, Tibetan
    *((0x1000, 0x109F), (0xAA60, 0xAA7F), (0x1780, 0x17FF)),  # Burmese, Khmer
    *((0x1950, 0x19DF), (0x1A20, 0x1AAF), (0x1B00, 0x1B7F), (0xA980, 0xA9DF)),  # Tai Le, Lue, Tham, Balinese, Javanese
)
# The same for the brackets of a regular expression.
UNSPACED = "".join(f"{chr(first)}-{chr(last)}" for first, last in _UNSPACED)


def is_han(character: str) -> bool:
    """Whether this is a Chinese character. Japanese is written with them, too."""
    return _is_in(character, _HAN)


def is_unspaced(character: str) -> bool:
    """Whether a character is of Chinese, Japanese, Thai, Lao, Khmer, Burmese, Tibetan or the like; not of Korean.

    Examples:
        >>> [is_unspaced(character) for character in "市のชaя시"]
        [True, True, True, False, False, False]
    """
    return _is_in(character, _UNSPACED)


def _is_in(character: str, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(chr(first) <= character <= chr(last) for first, last in ranges)


@functools.lru_cache(maxsize=1 << 16)
def script_of(character: str) -> str | None:
    """The script of a letter by its name in Unicode, such as "Latin", "Cyrillic" or "Han"; None: it is no letter.

    Examples:
        >>> [script_of(character) for character in "eя市カ1"]
        ['Latin', 'Cyrillic', 'Han', 'Katakana', None]
    """
    if not character.isalpha():
        return None
    first = unicodedata.name(character, "unknown").split()[0]
    return "Han" if first == "CJK" else first.capitalize()


@functools.cache
def scripts() -> frozenset[str]:
    """All scripts that `script_of` knows.

    Examples:
        >>> {"Latin", "Han"} <= scripts(), "latin" in scripts()
        (True, False)
    """
    return frozenset(found for code in range(0x110000) if (found := script_of.__wrapped__(chr(code))) is not None)
