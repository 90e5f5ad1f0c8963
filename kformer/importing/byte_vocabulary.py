"""The vocabulary of a byte pair encoding in a folder of Hugging Face: vocab.json and merges.txt, or tokenizer.json."""

import json
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from kformer.importing.added_tokens import read_added_tokens
from kformer.importing.fields import Fields
from kformer.importing.pieces import read_lines
from kformer.tokenizers import ByteBPETokenizer
from kformer.tokenizers.byte_bpe import byte_characters

ADDED = "additional_special_tokens"  # pieces in tokenizer_config.json that stand for no text
_IN_NO_TEXT = byte_characters()[0xFF]  # a byte that UTF-8 does not have
_PLAIN_MODEL = {
    "type": "BPE",
    "dropout": None,
    "continuing_subword_prefix": "",
    "end_of_word_suffix": "",
    "byte_fallback": False,
    "ignore_merges": False,
}
_PLAIN_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}


class ByteVocabulary(NamedTuple):
    """The tokens of a byte pair encoding.

    Attributes:
        pieces: In the order of their ids; "" for an id without a token.
        merges: The pairs of pieces that become one, the first ones first.
        special_ids: Of the tokens that no text gets, as far as they are known, in ascending order.
    """

    pieces: list[str]
    merges: list[str]
    special_ids: list[int]


def read_byte_vocabulary(folder: pathlib.Path, vocab_size: int, special: Collection[str] = ()) -> ByteVocabulary:
    """The tokens of a folder.

    A special token may have an id beyond the vocabulary's size, such as `<mask>` in bart-large-cnn: it is left out.

    Args:
        folder: Of the model.
        vocab_size: The number of ids of the model.
        special: Tokens that are special, beside those that tokenizer.json calls so.

    Raises:
        FileNotFoundError: There is no vocabulary.
        ValueError: A file is damaged, or describes another tokenizer; or another token has an id beyond the size.
    """
    tokens, merges = _read_files(folder) if (folder / "vocab.json").is_file() else _read_json(folder)
    added = read_added_tokens(folder)
    added.check(tokens)
    tokens, special = added.ids | tokens, {*special, *added.special}
    pieces = [""] * vocab_size
    for piece, number in tokens.items():
        if isinstance(number, int) and 0 <= number < vocab_size:
            pieces[number] = piece
        elif piece not in special:
            raise ValueError(
                f"The vocabulary in {folder} gives {piece!r} the id {number}. Expected: ids below "
                f"vocab_size={vocab_size} of config.json. The files are of different models."
            )
    hidden = [number for number, piece in enumerate(pieces) if piece in special]
    return ByteVocabulary(pieces, merges, hidden)


def read_byte_bpe(folder: pathlib.Path, config: Fields) -> ByteBPETokenizer:
    """The tokenizer of a language model's folder, with the special ids of its configuration.

    Where the configuration has no id for padding, or gives it the id of the end or of a token that texts have, an id is
    taken that no text has: one that no token has, or else that of the byte FF.

    Args:
        folder: Of the model.
        config: Its config.json.

    Raises:
        FileNotFoundError: There is no vocabulary.
        ValueError: A file is damaged, or describes another tokenizer.
    """
    path = folder / "tokenizer_config.json"
    options = Fields(path) if path.is_file() else None
    pieces, merges, special = read_byte_vocabulary(folder, config.number("vocab_size"))
    end_id = config.id("eos_token_id")
    pad_id = config.get("pad_token_id", -1)
    is_text = 0 <= pad_id < len(pieces) and pieces[pad_id] != "" and pad_id not in special
    if pad_id in (-1, end_id) or is_text:
        pad_id = unused_id(pieces)
    if options is not None:
        options.expect("add_prefix_space", False, default=False)
    has_start = options is not None and bool(options.get("add_bos_token", False))
    start_id = config.id("bos_token_id", end_id)
    hidden = [number for number in special if number not in (pad_id, start_id, end_id)]
    return ByteBPETokenizer(pieces, merges, pad_id, start_id, end_id, hidden, has_start)


def unused_id(pieces: Sequence[str]) -> int:
    """An id that no text has: one without a piece, or else that of the byte FF."""
    return pieces.index("" if "" in pieces else _IN_NO_TEXT)


def _read_files(folder: pathlib.Path) -> tuple[dict[str, int], list[str]]:
    """Ids of tokens, and merges."""
    path = folder / "merges.txt"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing. Copy the whole folder.")
    lines = read_lines(path)
    merges = [line for line in lines if line and not line.startswith("#version")]
    try:
        tokens = {**json.loads((folder / "vocab.json").read_text(encoding="utf-8-sig"))}
    except (ValueError, TypeError) as error:
        raise ValueError(f"{folder / 'vocab.json'} is no vocabulary: {error!r}. Copy it again.") from error
    return tokens, merges


def _read_json(folder: pathlib.Path) -> tuple[dict[str, int], list[str]]:
    """As `_read_files`, from tokenizer.json."""
    fields = Fields(folder / "tokenizer.json")
    fields.expect("normalizer", None)
    model = expect_parts(fields, "model", _PLAIN_MODEL)
    expect_parts(fields, "pre_tokenizer", _PLAIN_BYTES, defaults={"use_regex": True})  # older files lack it
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    return {**model["vocab"]}, merges


def expect_parts(
    fields: Fields, name: str, parts: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> Mapping[str, Any]:
    """A field with fields of its own, after a check of some of these. Where nothing is expected, one may be missing.

    Args:
        fields: The file.
        name: Of the field.
        parts: What some of its own fields must be.
        defaults: What those of them are that are missing.

    Raises:
        ValueError: One of them has another value.
    """
    found = {**(defaults or {}), **fields.get(name, {})}
    for part, value in parts.items():
        if found.get(part) != value and (value or found.get(part)):
            raise ValueError(
                f"{name}.{part} in {fields.path} is {found.get(part)!r:.100}, which kformer cannot represent. "
                f"Expected: {value!r}."
            )
    return found
