"""Pairs from translation memories (TMX 1.4), which translators' programs write and OPUS offers."""

import pathlib
import warnings
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from kformer.data.pairs import Pair
from kformer.data.sources.fields import Fields, check_fields
from kformer.data.sources.lines import OneFile, StableFile
from kformer.files.blocks import file_blocks
from kformer.files.compression import decompressed
from kformer.wording import count

INLINE_TAGS = ("drop", "keep", "skip")
# The elements within a segment that hold codes of the text's first format, such as "<b>", and not its words.
_CODES = frozenset(("bpt", "ept", "ph", "it", "ut"))
_NAME_TWO = "Name two: fields=('en', 'es') in Python, --fields en,es on the command line."
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


class TmxFile(OneFile):
    """The pairs of a translation memory, read from the file each time, unit after unit.

    A language also stands for its variants: "en" for "en-US", if a unit has no "en" itself. Units without one of the
    two languages are left out, and the first reading warns of their number. White space of any kind becomes one blank.

    Args:
        path: an XML file of any encoding that it names, which may be compressed.
        fields: the languages of the source and of the target. None: the source language that the file names, and the
            only other one of its first unit.
        inline_tags: what becomes of tags within a text, such as those of bold letters: "drop" leaves them out, "keep"
            takes what stands in them as text, and "skip" leaves out the units that have some.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is damaged or no TMX, it changes while it is read or later, or it has no pair of the two
            languages.

    Examples:
        >>> from pathlib import Path
        >>> unit = "<tu><tuv xml:lang='en-US'><seg>one</seg></tuv><tuv xml:lang='es'><seg>uno</seg></tuv></tu>"
        >>> _ = Path("memory.tmx").write_text(f"<tmx version='1.4'><body>{unit}</body></tmx>")
        >>> list(TmxFile("memory.tmx", ("es", "en")))
        [('uno', 'one')]
    """

    def __init__(self, path: str | pathlib.Path, fields: Fields | None = None, inline_tags: str = "drop") -> None:
        if inline_tags not in INLINE_TAGS:
            raise ValueError(f"inline_tags must be one of {', '.join(INLINE_TAGS)}. Received: {inline_tags!r}.")
        if fields is not None and len(check_fields(fields)) != 2:
            raise ValueError(f"fields of a TMX are two languages. Received: {fields!r}. Pass fields=('en', 'es').")
        super().__init__(path)
        self.fields = None if fields is None else tuple(fields)
        self.inline_tags = inline_tags
        self._file = StableFile(path)

    @property
    def reading(self) -> tuple[str, ...]:
        return (*super().reading, *(self.fields or ()), self.inline_tags)

    def __iter__(self) -> Iterator[Pair]:
        is_first = not self._file.were_read
        counts: Counter[str] = Counter()
        languages: Counter[str] = Counter()
        asked = self.fields
        with self._file.bytes() as file:
            for source_language, unit in _units(str(self.path), file_blocks(file)):
                segments = _segments(unit)
                languages.update(list(segments))
                asked = asked or self._chosen(source_language, list(segments))
                counts["units"] += 1
                found = _of_languages(segments, asked)
                if None in found:
                    counts["without"] += 1
                    continue
                source, target = (segment for segment in found if segment is not None)
                if self.inline_tags == "skip" and (_has_tags(source) or _has_tags(target)):
                    counts["tags"] += 1
                    continue
                keep = self.inline_tags == "keep"
                yield _text(source, keep), _text(target, keep)
            if counts["units"] == counts["without"] + counts["tags"]:
                known = ", ".join(f"{name} ({number:,})" for name, number in languages.most_common(20)) or "none"
                raise ValueError(
                    f"{self.path} has no pair of {' and '.join(asked or ('two languages',))}: {_left_out(counts)}. Its "
                    f"languages are: {known}. {_NAME_TWO}"
                )
        if is_first and (counts["without"] or counts["tags"]):
            warnings.warn(f"{self.path}: {_left_out(counts)}.", stacklevel=2)

    def _chosen(self, source_language: str | None, languages: list[str]) -> tuple[str, ...]:
        """The languages of a file whose user named none."""
        source = next((one for one in languages if source_language and _is_variant(one, source_language)), None)
        others = [language for language in languages if language != source]
        if source is None or len(others) != 1:
            raise ValueError(
                f"{self.path}: which languages? Its first unit has {', '.join(languages) or 'none'}, and the file "
                f"names {source_language or 'no language'} as that of the source. {_NAME_TWO}"
            )
        return source, others[0]


def _left_out(counts: Counter[str]) -> str:
    return (
        f"of {count(counts['units'], 'unit')}, {counts['without']:,} without one of the languages and "
        f"{counts['tags']:,} with inline tags were left out"
    )


def _units(name: str, blocks: Iterator[bytes]) -> Iterator[tuple[str | None, ET.Element]]:
    """The source language that the header names, and each unit. What has been given is forgotten."""
    parser: Any = ET.XMLPullParser(("start", "end"))
    source_language: str | None = None
    body: ET.Element | None = None
    root: ET.Element | None = None
    try:
        for block in decompressed(blocks, name):
            parser.feed(block or b"")
            for event, element in parser.read_events():
                tag = _name(element)
                if event == "start":
                    if root is None:
                        root = element
                        if tag != "tmx":
                            raise ValueError(f"{name} is no TMX: it begins with <{tag}>, where <tmx> was expected.")
                    body = element if tag == "body" else body
                elif tag == "header":
                    source_language = element.get("srclang")
                elif tag == "tu" and body is not None:
                    yield source_language, element
                    body.clear()
        parser.close()
        for _ in parser.read_events():
            pass
    except ET.ParseError as error:
        raise ValueError(f"{name} is no valid TMX: {error}. Is it damaged, or cut off?") from error
    if root is None:
        raise ValueError(f"{name} is empty. Pass a TMX with at least one unit.")


def _name(element: ET.Element) -> str:
    """The tag without a namespace."""
    return str(element.tag).rpartition("}")[2].lower()


def _segments(unit: ET.Element) -> dict[str, ET.Element]:
    """The segment of each language of a unit; of a language that is there twice, the first."""
    found: dict[str, ET.Element] = {}
    for variant in unit:
        language = variant.get(_LANGUAGE) or variant.get("lang")
        segment = next((part for part in variant if _name(part) == "seg"), None)
        if _name(variant) == "tuv" and language and segment is not None:
            found.setdefault(language, segment)
    return found


def _of_languages(segments: dict[str, ET.Element], languages: Sequence[str]) -> list[ET.Element | None]:
    """The segment in each of two languages, or else in the first of its variants that is not the other language.

    So Portuguese and the Portuguese of Brazil, which is a variant of it, never have the same segment.
    """
    same = [next((name for name in segments if name.lower() == language.lower()), None) for language in languages]
    variants = [
        next((name for name in segments if _is_variant(name, language) and name not in same), None)
        for language in languages
    ]
    return [segments.get(exact or variant or "") for exact, variant in zip(same, variants, strict=True)]


def _is_variant(name: str, language: str) -> bool:
    """Whether a language is this one, or one of its variants, as "en-US" and "en_GB" are of "en"."""
    found, asked = name.lower().replace("_", "-"), language.lower().replace("_", "-")
    return found == asked or found.startswith(f"{asked}-")


def _has_tags(segment: ET.Element) -> bool:
    return any(_name(element) in _CODES for element in segment.iter())


def _text(segment: ET.Element, keep: bool) -> str:
    """The text of a segment, with one blank for any white space, and with what stands in its codes if they are kept."""
    parts: list[str] = []
    waiting: list[ET.Element | str | None] = [segment]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, ET.Element):
            parts.append(one or "")
        else:
            is_left_out = _name(one) in _CODES and not keep
            inner = [] if is_left_out else [one.text, *(part for child in one for part in (child, child.tail))]
            waiting.extend(reversed(inner))
    return " ".join("".join(parts).split())
