"""Tokens that were added to a vocabulary after its training, as the files of a Hugging Face folder tell of them."""

import pathlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from kformer.importing.fields import Fields
from kformer.importing.special_tokens import LISTS_OF_SPECIAL, text_of_token

# From the fields of a file to the text and id of each token, and whether it is special; None: the file does not say.
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


class AddedTokens(NamedTuple):
    """What the files of a folder tell together.

    Attributes:
        folder: The folder.
        ids: The id of each added token.
        special: The tokens that are no part of texts, whether they were added or not.
    """

    folder: pathlib.Path
    ids: dict[str, int]
    special: set[str]

    def check(self, vocabulary: Collection[str], languages: str = "(?!)") -> None:
        """Refuses tokens that were added for texts: the tokenizers here have those of the trained vocabulary alone.

        Args:
            vocabulary: The tokens of the trained vocabulary.
            languages: A regular expression of the tokens of languages, which are special; by default there are none.

        Raises:
            ValueError: There are such tokens.
        """
        known = {*vocabulary} | self.special
        more = [text for text in self.ids if text not in known and not re.fullmatch(languages, text)]
        if more:
            shown = ", ".join(map(repr, more[:5])) + (", ..." if len(more) > 5 else "")
            raise ValueError(
                f"{self.folder} adds tokens to its trained vocabulary, which texts are to have: {shown}. kformer has "
                "no place for them, so texts would get other ids. Import the model from before they were added."
            )


def read_added_tokens(folder: pathlib.Path) -> AddedTokens:
    """Reads each of the files that may tell of added tokens.

    Raises:
        ValueError: A file is damaged.
    """
    ids: dict[str, int] = {}
    special: set[str] = set()
    for name, tokens_of in _FILES.items():
        path = folder / name
        if not path.is_file():
            continue
        try:
            for text, number, is_special in tokens_of(Fields(path)):
                ids[str(text)] = int(number)
                special |= {str(text)} if is_special else set()
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} does not tell the ids of its added tokens: {error!r}. Copy it again.") from error
    for path in (folder / name for name in _NAMING):
        for name, value in Fields(path).items() if path.is_file() else ():
            if name.endswith("_token"):
                special.add(text_of_token(value))
            elif name in LISTS_OF_SPECIAL and isinstance(value, list):
                special.update(map(text_of_token, value))
    return AddedTokens(folder, ids, special)
