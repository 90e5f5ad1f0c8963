"""SentencePiece models in the folders of other toolkits, and the ids of their pieces."""

import json
import pathlib
import warnings
from collections.abc import Sequence

from kformer.importing.checkpoint import check_no_pointer
from kformer.importing.fields import Fields
from kformer.tokenizers.sentencepiece import read_model

_UNKNOWN = "<unk>"
_SENTENCEPIECE = [_UNKNOWN, "<s>", "</s>"]
_FAIRSEQ = ["<s>", "<pad>", "</s>", _UNKNOWN]


def read_model_file(path: pathlib.Path) -> bytes:
    """A serialized SentencePiece model.

    Raises:
        FileNotFoundError: There is no such file.
        CheckpointError: It is a pointer to the file.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing. Copy the whole folder. If transformers 5 wrote the folder, take the file from the one "
            "that was loaded first: transformers 5 does not write it again."
        )
    check_no_pointer(path)
    return path.read_bytes()


def warn_of_cleaning(folder: pathlib.Path) -> None:
    """Warns of a folder whose answers transformers cleans: it removes blanks before punctuation, which stay here."""
    path = folder / "tokenizer_config.json"
    if path.is_file() and Fields(path).get("clean_up_tokenization_spaces"):
        warnings.warn(
            f"clean_up_tokenization_spaces is true in {path}: transformers removes blanks before marks such as ! and ? "
            "from answers. Here they stay as the model writes them.",
            stacklevel=2,
        )


def read_lines(path: pathlib.Path) -> list[str]:
    """The lines of a vocabulary or of merges. Only a line feed ends a line: some pieces are other ends of lines.

    Raises:
        ValueError: The file is not UTF-8.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="\n") as file:
            return [line.removesuffix("\n").removesuffix("\r") for line in file]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error}. Copy it again.") from error


def read_pieces(path: pathlib.Path, vocab_size: int) -> list[str]:
    """The pieces of a vocabulary in a JSON file, in the order of their ids; "" for an id without a piece.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is no vocabulary, or has ids beyond `vocab_size`.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing. Copy the whole folder.")
    pieces = [""] * vocab_size
    try:
        for piece, number in json.loads(path.read_text(encoding="utf-8-sig")).items():
            pieces[range(vocab_size)[number]] = piece
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(f"{path} is no vocabulary of pieces and their ids: {error!r}. Copy it again.") from error
    except IndexError as error:
        raise ValueError(
            f"{path} gives {piece!r} the id {number}. Expected: ids below vocab_size={vocab_size} of config.json. "
            "The files are of different models."
        ) from error
    return pieces


def unknown_id(pieces: Sequence[str]) -> int:
    """The id of the piece that stands for what a vocabulary lacks.

    Raises:
        ValueError: There is none.
    """
    if _UNKNOWN not in pieces:
        raise ValueError(
            f"The vocabulary has no piece {_UNKNOWN}, which stands for what it lacks. Copy its files again."
        )
    return pieces.index(_UNKNOWN)


def fairseq_pieces(model_bytes: bytes, vocab_size: int) -> tuple[list[str], int]:
    """The pieces of a SentencePiece model with the ids that fairseq gives them, and the first id after them.

    fairseq begins with <s>, <pad>, </s> and <unk>. The model begins with <unk>, <s> and </s>, so its other pieces
    have ids that are larger by one.

    Args:
        model_bytes: A serialized SentencePiece model.
        vocab_size: The number of ids; those behind the pieces get "".

    Raises:
        ValueError: The model begins with other pieces, or has too many of them.
    """
    processor = read_model(model_bytes)
    own = [processor.id_to_piece(number) for number in range(processor.vocab_size())]
    if own[: len(_SENTENCEPIECE)] != _SENTENCEPIECE:
        raise ValueError(
            f"The SentencePiece model begins with the pieces {', '.join(own[:3])}. Expected: "
            f"{', '.join(_SENTENCEPIECE)}, as in models of fairseq."
        )
    pieces = [*_FAIRSEQ, *own[len(_SENTENCEPIECE) :]]
    if len(pieces) > vocab_size:
        raise ValueError(
            f"The SentencePiece model has {len(pieces)} pieces. Expected: at most vocab_size={vocab_size} of "
            "config.json. The files are of different models."
        )
    return [*pieces, *[""] * (vocab_size - len(pieces))], len(pieces)
