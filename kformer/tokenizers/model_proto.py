"""Edits SentencePiece models, which are protobuf messages.

The package sentencepiece has generated code for these messages (`sentencepiece_model_pb2`). That code refuses to run
with a protobuf older than the one that generated it, but TensorFlow may need an older one. The description below is
made at run time and works with every version of protobuf.
"""

import functools

from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

_PACKAGE = "kformer.sentencepiece"
_BPE = 2  # of the values of `TrainerSpec.model_type`


def without_rule_files(model_bytes: bytes) -> bytes:
    """A serialized SentencePiece model without the names of the files that its normalization rules were read from.

    The rules themselves stay: the model holds them compiled.
    """
    model = _class_of("ModelProto").FromString(model_bytes)
    for name in ("normalizer_spec", "denormalizer_spec"):
        if model.HasField(name):
            getattr(model, name).ClearField("normalization_rule_tsv")
    return model.SerializeToString(deterministic=True)


def without_dummy_prefix(model_bytes: bytes) -> bytes:
    """A serialized SentencePiece model that puts no blank before a text."""
    model = _class_of("ModelProto").FromString(model_bytes)
    model.normalizer_spec.add_dummy_prefix = False
    return model.SerializeToString(deterministic=True)


def is_bpe(model_bytes: bytes) -> bool:
    """Whether a serialized SentencePiece model consists of byte pairs."""
    training = _class_of("TrainerSpec").FromString(_class_of("ModelProto").FromString(model_bytes).trainer_spec)
    return training.model_type == _BPE


@functools.cache
def _class_of(name: str) -> type[Message]:
    return message_factory.GetMessageClass(_messages().FindMessageTypeByName(f"{_PACKAGE}.{name}"))


@functools.cache
def _messages() -> DescriptorPool:
    """Those parts of `ModelProto` in sentencepiece_model.proto that are edited or copied.

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
    # `ModelProto` has it as bytes, too.
    training = file.message_type.add(name="TrainerSpec")
    training.field.add(name="model_type", number=3, type=Field.TYPE_INT32, label=Field.LABEL_OPTIONAL)
    pool = DescriptorPool()
    pool.Add(file)
    return pool
