"""SentencePiece models as users bring them: made by SentencePiece's own trainer."""

import io
import pathlib
from collections.abc import Sequence
from typing import Any

import sentencepiece


def model_bytes(texts: Sequence[str], **options: Any) -> bytes:
    """A small model of these texts. Without options it has SentencePiece's own special pieces: none for padding."""
    writer = io.BytesIO()
    settings = {"vocab_size": 40, "hard_vocab_limit": False, "minloglevel": 2, **options}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(texts), model_writer=writer, **settings)
    return writer.getvalue()


def write_model(path: pathlib.Path, texts: Sequence[str], **options: Any) -> pathlib.Path:
    """Writes such a model."""
    path.write_bytes(model_bytes(texts, **options))
    return path
