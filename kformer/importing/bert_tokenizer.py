"""The WordPiece tokenizers of Hugging Face's BERT models."""

import pathlib

from kformer.importing.fields import Fields
from kformer.importing.pieces import read_lines
from kformer.importing.special_tokens import special_id
from kformer.tokenizers import WordPieceTokenizer

# The argument of the tokenizer, and the special piece with its name in tokenizer_config.json.
SPECIAL = {
    "pad_id": ("pad_token", "[PAD]"),
    "start_id": ("cls_token", "[CLS]"),
    "end_id": ("sep_token", "[SEP]"),
    "unknown_id": ("unk_token", "[UNK]"),
    "mask_id": ("mask_token", "[MASK]"),
}
# Others divide texts in other ways, such as BertJapaneseTokenizer.
_CLASSES = {name: name for name in ("BertTokenizer", "BertTokenizerFast")}


def read_tokenizer(folder: pathlib.Path, config: Fields) -> WordPieceTokenizer:
    """The tokenizer of a folder with vocab.txt or tokenizer.json, and perhaps tokenizer_config.json.

    Args:
        folder: Of the model.
        config: Its config.json.

    Raises:
        FileNotFoundError: There is no vocabulary.
        ValueError: A file is damaged, a special piece is missing, or texts are divided in another way.
    """
    path = folder / "tokenizer_config.json"
    # The oldest folders have a vocab.txt alone, and texts become lower case. A tokenizer.json may say otherwise.
    is_old = not path.is_file() and not (folder / "tokenizer.json").is_file()
    options = config if is_old else Fields(path)
    options.choice("tokenizer_class", _CLASSES, default="BertTokenizer")
    options.expect("do_basic_tokenize", True, default=True)
    pieces = _read_pieces(folder, config.number("vocab_size"))
    special = {argument: special_id(options, name, default, pieces) for argument, (name, default) in SPECIAL.items()}
    lowercase = bool(options.get("do_lower_case", True))
    return WordPieceTokenizer(
        pieces,
        **special,
        lowercase=lowercase,
        strip_accents=bool(options.get("strip_accents", lowercase)),
        split_chinese=bool(options.get("tokenize_chinese_chars", True)),
    )


def _read_pieces(folder: pathlib.Path, vocab_size: int) -> list[str]:
    """The pieces in the order of their ids; "" for an id without a piece, or with one that a later id has, too.

    Raises:
        FileNotFoundError: There is no vocabulary.
        ValueError: It is damaged, or larger than the model's.
    """
    path = folder / "vocab.txt"
    if path.is_file():
        vocabulary = {piece: number for number, piece in enumerate(read_lines(path))}
    else:
        path = folder / "tokenizer.json"
        vocabulary = Fields(path).get("model", {}).get("vocab", {})
    largest = max(vocabulary.values(), default=-1)
    if not 0 <= largest < vocab_size:
        raise ValueError(
            f"{path} has ids up to {largest}. Expected: ids below vocab_size={vocab_size} of config.json. The files "
            "are of different models."
        )
    pieces = [""] * vocab_size
    for piece, number in vocabulary.items():
        pieces[number] = piece
    return pieces
