"""Pairs from JSON lines: an object on each line, as `datasets` of Hugging Face and most tools for data write them."""

import json
import pathlib
from collections.abc import Iterator
from typing import Any

from kformer.data.pairs import Pair
from kformer.data.sources.fields import DEFAULT_FIELDS, Fields, FieldsFile, missing_fields, pair_of
from kformer.data.sources.lines import TextLines
from kformer.files.encodings import fault_of_value

_KINDS = {list: "a list", str: "a text or a number", bool: "true or false", type(None): "null"}


class JsonLinesFile(FieldsFile):
    """The pairs of a file with a JSON object on each line, read from the file each time.

    White space of any kind becomes one blank; null is an empty text; numbers are as they are written, and true or false
    are words. Of the same key twice in an object, the last one counts.

    Args:
        path: a text file, which may be compressed.
        fields: the keys of the source and of the target; "translation.en" is the key "en" of the object under
            "translation". Otherwise as of `TableFile`.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is damaged or not UTF-8, it changes while it is read or later, a line is no JSON object or
            has not the keys, or there are no lines.

    Examples:
        >>> from pathlib import Path
        >>> _ = Path("pairs.jsonl").write_text('{"translation": {"en": "one", "es": "uno"}}\\n')
        >>> list(JsonLinesFile("pairs.jsonl", ("translation.en", "translation.es")))
        [('one', 'uno')]
    """

    _lines: TextLines

    def __init__(self, path: str | pathlib.Path, fields: Fields = DEFAULT_FIELDS) -> None:
        super().__init__(path, fields)
        self._lines = TextLines(path)

    def __iter__(self) -> Iterator[Pair]:
        found = False
        with self.bad_lines() as bad, self._lines.open(bad) as lines:
            for number, line in lines:
                if line is None or not line.strip():
                    continue
                try:
                    pair = self._pair(f"{self.path}, line {number}", line, is_first=not found)
                except ValueError as error:
                    bad.note(number, str(error))
                    continue
                yield pair
                found = True
        if not found:
            raise ValueError(f"{self.path} is empty, or all its lines are blank. Pass a file with at least one pair.")

    def _pair(self, place: str, line: str, is_first: bool) -> Pair:
        try:
            value = json.loads(line, parse_int=str, parse_float=str, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            hint = " A list of objects becomes such lines by: jq -c '.[]'" if line.strip() == "[" else ""
            raise ValueError(f"{place}: no JSON ({error}). Each line must be a JSON object.{hint}") from error
        if not isinstance(value, dict):
            hint = " A list of objects becomes such lines by: jq -c '.[]'" if isinstance(value, list) else ""
            raise ValueError(f"{place}: {_KINDS[type(value)]}. Each line must be a JSON object: {{...}}.{hint}")
        return pair_of([_text(place, value, field, is_first) for field in self.fields])


def _text(place: str, value: dict[str, Any], field: str, is_first: bool) -> str:
    """What an object has in a field, as a text."""
    found: Any = value
    for key in [field] if field in value else field.split("."):
        if not isinstance(found, dict) or key not in found:
            hint = "" if is_first else " If only this line lacks it, correct or remove the line."
            raise ValueError(missing_fields(place, [field], list(_names(value))) + hint)
        found = found[key]
    if isinstance(found, dict | list):
        kind = "an object" if isinstance(found, dict) else "a list"
        raise ValueError(f"{place}: {field!r} is {kind}, and no text. Name a field in it, such as {field}.en.")
    text = "" if found is None else found if isinstance(found, str) else json.dumps(found)
    if (fault := fault_of_value(text)) is not None:
        raise ValueError(f"{place}: in {field!r}, {fault}.")
    return text


def _refuse_constant(name: str) -> str:
    raise ValueError(f"{name} is no number of JSON")


def _names(value: dict[str, Any], within: str = "") -> Iterator[str]:
    """The names of all fields, those of objects with a dot."""
    for key, inner in value.items():
        if isinstance(inner, dict) and not within:
            yield from _names(inner, f"{key}.")
        else:
            yield f"{within}{key}"
