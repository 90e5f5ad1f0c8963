"""The special tokens that a tokenizer_config.json names."""

from collections.abc import Sequence

from kformer.importing.fields import Fields


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
    given = options.get(name, default)
    piece = given.get("content") if isinstance(given, dict) else given
    if piece not in pieces:
        raise ValueError(f"The vocabulary has no piece {piece!r}, the {name} of {options.path}. Copy the whole folder.")
    return pieces.index(piece)
