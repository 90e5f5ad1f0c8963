"""Reads and edits SentencePiece models, which are protobuf messages.

The package sentencepiece has generated code for these messages (`sentencepiece_model_pb2`). That code refuses to run
with a protobuf older than the one that generated it, but TensorFlow may need an older one. The description below is
made at run time and works with every version of protobuf.
"""

import functools
from typing import NamedTuple

from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

MARK_OF_BLANK = "\u2581"  # as SentencePiece writes a blank
_PACKAGE = "kformer.sentencepiece"
_KINDS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}  # of a model
_NORMAL = 1  # the type of a piece that is text, and neither special, a byte nor a user's symbol


class ModelPieces(NamedTuple):
    """The pieces of a SentencePiece model that texts are divided into.

    Attributes:
        kind: How it divides texts: "unigram", "bpe", "word" or "char".
        texts: Each piece as the model writes it, in the order of its ids; "" for a special piece, a byte, a symbol of
            the user's and a piece that the model does not use.
        scores: Those of the pieces. unigram: natural logarithms of probabilities; bpe: of two merges the one with the
            higher score comes first.
    """

    kind: str
    texts: tuple[str, ...]
    scores: tuple[float, ...]


def read_pieces(model_bytes: bytes) -> ModelPieces:
    """The pieces of a serialized SentencePiece model."""
    model = _model_class().FromString(model_bytes)
    pieces = [_class_of("SentencePiece").FromString(piece) for piece in model.pieces]
    texts = tuple(piece.piece if piece.type == _NORMAL else "" for piece in pieces)
    return ModelPieces(_kind_of(model), texts, tuple(piece.score for piece in pieces))


def without_rule_files(model_bytes: bytes) -> bytes:
    """A serialized SentencePiece model without the names of the files that its normalization rules were read from.

    The rules themselves stay: the model holds them compiled.
    """
    model = _model_class().FromString(model_bytes)
    for name in ("normalizer_spec", "denormalizer_spec"):
        if model.HasField(name):
            getattr(model, name).ClearField("normalization_rule_tsv")
    return model.SerializeToString(deterministic=True)


def without_dummy_prefix(model_bytes: bytes) -> bytes:
    """A serialized SentencePiece model that puts no blank before a text."""
    model = _model_class().FromString(model_bytes)
    model.normalizer_spec.add_dummy_prefix = False
    return model.SerializeToString(deterministic=True)


def is_bpe(model_bytes: bytes) -> bool:
    """Whether a serialized SentencePiece model consists of byte pairs."""
    return _kind_of(_model_class().FromString(model_bytes)) == "bpe"


def _kind_of(model: Message) -> str:
    return _KINDS[_class_of("TrainerSpec").FromString(model.trainer_spec).model_type]


def _model_class() -> type[Message]:
    return _class_of("ModelProto")


@functools.cache
def _class_of(name: str) -> type[Message]:
    return message_factory.GetMessageClass(_messages().FindMessageTypeByName(f"{_PACKAGE}.{name}"))


@functools.cache
def _messages() -> DescriptorPool:
    """Those parts of sentencepiece_model.proto that are read, edited or copied.

    Messages that are only copied are declared as bytes, which have the same encoding. Fields of `NormalizerSpec` that
    are not declared are copied, too: protobuf keeps unknown fields.
    """
    file = FileDescriptorProto(name="kformer/sentencepiece_model.proto", package=_PACKAGE, syntax="proto2")
    spec = file.message_type.add(name="NormalizerSpec")
    # The first two are only copied. They are declared, because unknown fields would be written behind the others.
    spec.field.add(name="name", number=1, type=Field.TYPE_BYTES, label=Field.LABEL_OPTIONAL)
    spec.field.add(name="precompiled_charsmap", number=2, type=Field.TYPE_BYTES, label=Field.LABEL_OPTIONAL)
    spec.field.add(name="add_dummy_prefix", number=3, type=Field.TYPE_BOOL, label=Field.LABEL_OPTIONAL)
    spec.field.add(name="normalization_rule_tsv", number=6, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    model = file.message_type.add(name="ModelProto")
    model.field.add(name="pieces", number=1, type=Field.TYPE_BYTES, label=Field.LABEL_REPEATED)
    model.field.add(name="trainer_spec", number=2, type=Field.TYPE_BYTES, label=Field.LABEL_OPTIONAL)
    for name, number in (("normalizer_spec", 3), ("denormalizer_spec", 5)):
        model.field.add(
            name=name,
            number=number,
            type=Field.TYPE_MESSAGE,
            label=Field.LABEL_OPTIONAL,
            type_name=f".{_PACKAGE}.NormalizerSpec",
        )
    # These two are read out of the bytes that are copied.
    piece = file.message_type.add(name="SentencePiece")
    piece.field.add(name="piece", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    piece.field.add(name="score", number=2, type=Field.TYPE_FLOAT, label=Field.LABEL_OPTIONAL)
    piece.field.add(name="type", number=3, type=Field.TYPE_INT32, label=Field.LABEL_OPTIONAL, default_value="1")
    trainer = file.message_type.add(name="TrainerSpec")
    trainer.field.add(name="model_type", number=3, type=Field.TYPE_INT32, label=Field.LABEL_OPTIONAL, default_value="1")
    pool = DescriptorPool()
    pool.Add(file)
    return pool
