"""What files with named fields have in common: tables, JSON lines, Parquet and Arrow."""

import pathlib
from collections.abc import Iterable, Sequence

from kformer.data.pairs import Pair
from kformer.data.sources.lines import OneFile
from kformer.wording import did_you_mean

Fields = Sequence[str]  # of the source and of the target; see `kformer.data.TableFile`
DEFAULT_FIELDS: Fields = ("source", "target")
_SHOWN = 60  # characters of a name in a message


class FieldsFile(OneFile):
    """Pairs of the fields of one file.

    Args:
        path: the file.
        fields: see `kformer.data.TableFile`.
    """

    def __init__(self, path: str | pathlib.Path, fields: Fields) -> None:
        super().__init__(path)
        self.fields = check_fields(fields)

    @property
    def reading(self) -> tuple[str, ...]:
        return (*super().reading, *self.fields)


def check_fields(fields: Fields) -> tuple[str, ...]:
    """The fields, if they are one to three different names.

    Raises:
        ValueError: They are not.
    """
    if isinstance(fields, str) or not 1 <= len(fields) <= 3 or len(set(fields)) < len(fields) or not all(fields):
        raise ValueError(
            "fields must be the names of the source and of the target, or one name for texts without targets, or three "
            f"for a classifier of two texts, all different. Received: fields={fields!r}. Pass fields=('en', 'es') in "
            "Python, or --fields en,es on the command line."
        )
    return tuple(fields)


def pair_of(values: Sequence[str]) -> Pair:
    """The pair of the values of the fields, each with one blank for any white space, so that it fits into a line."""
    texts = [" ".join(value.split()) for value in values]
    if len(texts) == 3:
        texts = [f"{texts[0]}\t{texts[1]}" if texts[0] or texts[1] else "", texts[2]]
    return texts[0], texts[1] if len(texts) == 2 else ""


def missing_fields(path: object, missing: Iterable[str], found: Sequence[str]) -> str:
    """A message on fields that a file does not have."""
    missing = list(missing)
    if any(name.lstrip().startswith(("<?xml", "<tmx")) for name in found[:1]):
        return f"{path} begins as a TMX, which is recognized in a file only. Write what comes through a pipe to a file."
    names = ", ".join(repr(name if len(name) <= _SHOWN else f"{name[:_SHOWN]}...") for name in found[:20])
    return (
        f"{path} has no {', '.join(map(repr, missing))}. Its fields are: {names or 'none'}."
        f"{did_you_mean(missing, found)} Name them: fields=('en', 'es') in Python, --fields en,es on the command line."
    )
