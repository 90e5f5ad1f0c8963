"""The special tokens that a tokenizer_config.json names."""

from collections.abc import Sequence
from typing import Any

from kformer.importing.fields import Fields

LISTS_OF_SPECIAL = ("extra_special_tokens", "additional_special_tokens")  # fields of the newer and the older files


def text_of_token(given: Any) -> str:
    """The text of a token, which files give as it is or as one of several fields."""
    return str(given.get("content") if isinstance(given, dict) else given)


def special_id(options: Fields, name: str, default: str, pieces: Sequence[str]) -> int:
    """The id of a special token.

    Args:
        options: Of tokenizer_config.json, or of config.json in a folder without one.
        name: Of the field that names the token.
        default: The token where the field is missing.
        pieces: The vocabulary, in the order of the ids.

    Raises:
        ValueError: The vocabulary has no such token.
    """
    piece = text_of_token(options.get(name, default))
    if piece not in pieces:
        raise ValueError(f"The vocabulary has no piece {piece!r}, the {name} of {options.path}. Copy the whole folder.")
    return pieces.index(piece)
