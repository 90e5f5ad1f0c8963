"""The languages of models that translate between many: which of them a run translates from and to."""

import pathlib
import re
from collections.abc import Mapping
from typing import NamedTuple

from kformer.importing.added_tokens import read_added_tokens
from kformer.importing.fields import Fields
from kformer.importing.formats import IMPORT_FORMATS, ImportFormat
from kformer.importing.special_tokens import LISTS_OF_SPECIAL, text_of_token
from kformer.wording import did_you_mean

# Files that list a tokenizer's special tokens, each with the fields that may do so.
_LISTS = {
    "tokenizer_config.json": LISTS_OF_SPECIAL,
    "special_tokens_map.json": LISTS_OF_SPECIAL[::-1],
    "tokenizer.json": ("added_tokens",),
}


class Languages(NamedTuple):
    """The languages of a run, by the codes that the files of its tokenizer use.

    Attributes:
        source: Of the texts to translate; None: what tokenizer_config.json says.
        target: Of the translations; None: what tokenizer_config.json says.

    Examples:
        >>> Languages(source="en", target="fr").target
        'fr'
    """

    source: str | None = None
    target: str | None = None


def check_languages(format: ImportFormat, languages: Languages) -> None:
    """Refuses languages for a format whose models know only two.

    Raises:
        ValueError: The format has no languages, and one is given.
    """
    if any(languages) and not format.has_languages:
        several = ", ".join(name for name, known in IMPORT_FORMATS.items() if known.has_languages)
        raise ValueError(
            f"A model of the format {format.name} translates between the languages that it was trained for. Leave out "
            f"the languages: only models of {several} have a choice."
        )


def read_languages(folder: pathlib.Path, form: str, first: int) -> dict[str, int]:
    """The ids of a model's languages, by their codes.

    A file may give ids, above all of tokens that were added later. The other languages of a list have ids that follow
    each other.

    Args:
        folder: Of the model.
        form: A regular expression of the tokens of languages; its group is the code.
        first: The id of the first language of a list.

    Raises:
        ValueError: No file lists them, or one is damaged.
    """
    given = {
        language[1]: number
        for token, number in read_added_tokens(folder).ids.items()
        if (language := re.fullmatch(form, token)) is not None
    }
    others = [code for code in _listed(folder, form) if code not in given]
    found = {code: first + number for number, code in enumerate(others)} | given
    if not found:
        raise ValueError(f"{folder} lists no languages. Expected: their tokens in one of {', '.join(_LISTS)}.")
    return found


def _listed(folder: pathlib.Path, form: str) -> list[str]:
    """The codes of the first list that has any, in its order."""
    for name, lists in _LISTS.items():
        fields = Fields(folder / name) if (folder / name).is_file() else None
        for entry in lists:
            tokens = [] if fields is None else fields.get(entry, [])
            if codes := [found[1] for token in tokens if (found := re.fullmatch(form, text_of_token(token)))]:
                return list(dict.fromkeys(codes))
    return []


def choose_languages(folder: pathlib.Path, known: Mapping[str, int], languages: Languages) -> tuple[int, int]:
    """The ids of the source's and the target's language.

    Args:
        folder: Of the model. Its tokenizer_config.json counts where `languages` says nothing.
        known: The ids of all languages.
        languages: What the user wants.

    Raises:
        ValueError: A language is not known, or nothing says which it is.
    """
    path = folder / "tokenizer_config.json"
    said = Fields(path) if path.is_file() else None
    found = {
        side: given or (said.get(field) if said is not None else None)
        for side, given, field in (("source", languages.source, "src_lang"), ("target", languages.target, "tgt_lang"))
    }
    return _id(known, "source", found["source"]), _id(known, "target", found["target"])


def _id(known: Mapping[str, int], side: str, code: str | None) -> int:
    if code is not None and code in known:
        return known[code]
    found = "The model's files do not say" if code is None else f"The model does not know {code!r}, given as"
    raise ValueError(
        f"{found} the {side}'s language.{did_you_mean([code or ''], known)} Choose one by --{side}-language or "
        f"Languages({side}=...): {', '.join(known)}."
    )
