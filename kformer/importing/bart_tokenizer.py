"""The tokenizers of Hugging Face's BART models: byte pair encoding of bytes, with a token before and behind a text."""

import pathlib

from kformer.config import TransformerConfig
from kformer.importing.byte_vocabulary import expect_parts, read_byte_vocabulary
from kformer.importing.fields import Fields
from kformer.importing.special_tokens import special_id
from kformer.tokenizers import ByteBPETokenizer

_FIRST, _END = "<s>", "</s>"
_SPECIAL = frozenset((_FIRST, "<pad>", _END, "<unk>", "<mask>"))
# Others put no token before a text, such as GPT2Tokenizer, or divide it in another way.
_CLASSES = {name: name for name in ("BartTokenizer", "BartTokenizerFast", "RobertaTokenizer", "RobertaTokenizerFast")}


def read_tokenizer(folder: pathlib.Path, config: Fields, transformer: TransformerConfig) -> ByteBPETokenizer:
    """The tokenizer of a folder with vocab.json and merges.txt, or tokenizer.json; perhaps tokenizer_config.json.

    Args:
        folder: Of the model.
        config: Its config.json.
        transformer: Has the special ids.

    Raises:
        FileNotFoundError: There is no vocabulary.
        ValueError: A file is damaged, a special token is missing, or texts are divided in another way.
    """
    path = folder / "tokenizer_config.json"
    options = Fields(path) if path.is_file() else config
    options.choice("tokenizer_class", _CLASSES, default="BartTokenizer")
    options.expect("add_prefix_space", False, default=False)
    pieces, merges, special = read_byte_vocabulary(folder, transformer.source_vocab_size, _SPECIAL)
    first_id = special_id(options, "cls_token", _FIRST, pieces)
    end_id = special_id(options, "sep_token", _END, pieces)
    if end_id != transformer.end_id:
        raise ValueError(
            f"A source in {folder} ends with the token {end_id}, a target with {transformer.end_id} (eos_token_id of "
            "config.json). kformer can represent only one end."
        )
    if not (folder / "vocab.json").is_file():  # so tokenizer.json says what stands before and behind a text
        around = {"type": "RobertaProcessing", "cls": [pieces[first_id], first_id], "sep": [pieces[end_id], end_id]}
        expect_parts(Fields(folder / "tokenizer.json"), "post_processor", around)
    pad_id, start_id = transformer.pad_id, transformer.start_id
    hidden = [number for number in special if number not in (pad_id, start_id, end_id, first_id)]
    return ByteBPETokenizer(pieces, merges, pad_id, start_id, end_id, hidden, first_ids=[first_id], trims_ends=True)
