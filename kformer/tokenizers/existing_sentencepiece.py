"""Tokenizers of SentencePiece models that were trained elsewhere."""

import pathlib

from kformer.tokenizers.base import Tokenizer
from kformer.tokenizers.piece_vocabulary import PieceVocabularyTokenizer
from kformer.tokenizers.sentencepiece import SentencePieceTokenizer, read_model

_UNKNOWN_TEXT = " ⁇ "  # as SentencePiece writes it


def read_sentencepiece(path: str | pathlib.Path) -> Tokenizer:
    """A tokenizer of a SentencePiece model in a file.

    The pieces keep their ids. A model need not have padding, a start and an end (SentencePiece makes none of padding by
    default): what it lacks gets the ids behind those of its pieces. User-defined symbols of the model stay one token
    each. Its own normalizer changes the texts.

    Args:
        path: A file of the program `spm_train`, mostly called `NAME.model`.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is no SentencePiece model.

    Examples:
        >>> read_sentencepiece("en.model").tokenize(["low lower"])  # doctest: +SKIP
        <tf.RaggedTensor [[10, 10, 7]]>
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}. Give a SentencePiece model, such as spm_train writes it.")
    content = path.read_bytes()
    try:
        processor = read_model(content)
    except ValueError as error:
        raise ValueError(f"{path} is no SentencePiece model. Give the file NAME.model, not NAME.vocab.") from error
    special = {"<pad>": processor.pad_id(), "<s>": processor.bos_id(), "</s>": processor.eos_id()}
    if min(special.values()) >= 0:
        return SentencePieceTokenizer(content)
    pieces = [processor.id_to_piece(number) for number in range(processor.vocab_size())]
    for name, number in special.items():
        if number < 0:
            special[name] = len(pieces)
            pieces.append(name)
    pad_id, start_id, end_id = special.values()
    return PieceVocabularyTokenizer(
        content, pieces, pad_id, start_id, end_id, processor.unk_id(), unknown_text=_UNKNOWN_TEXT
    )
