"""Tokens that were added to a vocabulary after its training, as the files of a Hugging Face folder tell of them."""

import pathlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from kformer.importing.fields import Fields


class AddedToken(NamedTuple):
    """A token that was added.

    Attributes:
        text: What it is in a text.
        id: Its id.
        is_special: Whether it is no part of a text; None: the file does not say.
    """

    text: str
    id: int
    is_special: bool | None


_FILES: Mapping[str, Callable[[Fields], Iterable[tuple[Any, Any, Any]]]] = {
    "added_tokens.json": lambda fields: ((text, number, None) for text, number in fields.items()),
    "tokenizer_config.json": lambda fields: (
        (token["content"], number, token.get("special"))
        for number, token in fields.get("added_tokens_decoder", {}).items()
    ),
    "tokenizer.json": lambda fields: (
        (token["content"], token["id"], token.get("special")) for token in fields.get("added_tokens", [])
    ),
}
_NAMING = ("special_tokens_map.json", "tokenizer_config.json")  # files with fields such as pad_token
_LISTS = ("additional_special_tokens", "extra_special_tokens")


def added_tokens(folder: pathlib.Path) -> list[AddedToken]:
    """The added tokens of each of the files that may tell them.

    Raises:
        ValueError: A file is damaged.
    """
    found: list[AddedToken] = []
    for name, tokens_of in _FILES.items():
        path = folder / name
        if not path.is_file():
            continue
        try:
            found += [AddedToken(str(text), int(number), special) for text, number, special in tokens_of(Fields(path))]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} does not tell the ids of its added tokens: {error!r}. Copy it again.") from error
    return found


def special_texts(folder: pathlib.Path) -> set[str]:
    """The tokens that a folder calls special, in any of its files."""
    found = {token.text for token in added_tokens(folder) if token.is_special}
    for path in (folder / name for name in _NAMING):
        for name, value in Fields(path).items() if path.is_file() else ():
            if name.endswith("_token"):
                found.add(_text(value))
            elif name in _LISTS and isinstance(value, list):
                found.update(map(_text, value))
    return found


def check_added_tokens(folder: pathlib.Path, vocabulary: Collection[str], languages: str = "(?!)") -> None:
    """Refuses tokens that were added for texts: the tokenizers here have those of the trained vocabulary alone.

    Args:
        folder: Of the model.
        vocabulary: The tokens of its trained vocabulary.
        languages: A regular expression of the tokens of languages, which are special; by default there are none.

    Raises:
        ValueError: There are such tokens, or a file is damaged.
    """
    known = {*vocabulary} | special_texts(folder)
    ordinary = (token.text for token in added_tokens(folder) if not re.fullmatch(languages, token.text))
    more = list(dict.fromkeys(text for text in ordinary if text not in known))
    if more:
        shown = ", ".join(map(repr, more[:5])) + (", ..." if len(more) > 5 else "")
        raise ValueError(
            f"{folder} adds tokens to its trained vocabulary, which texts are to have: {shown}. kformer has no place "
            "for them, so texts would get other ids. Import the model from before they were added."
        )


def _text(token: Any) -> str:
    return str(token.get("content") if isinstance(token, dict) else token)
