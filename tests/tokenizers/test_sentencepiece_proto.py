"""The edit of a SentencePiece model leaves all but the names of its rule files."""

import pytest

from kformer.tokenizers.sentencepiece_proto import without_rule_files


def field(number: int, content: bytes) -> bytes:
    """A protobuf field of bytes, of a text or of a message: number and kind 2, length, content."""
    return bytes([number << 3 | 2, len(content)]) + content


PIECES = field(1, b"\x0a\x01a") + field(1, b"\x0a\x01b")
TRAINER = field(2, b"\x20\x40")  # a number in field 4
RULES = field(1, b"name") + field(2, b"\xff\x00compiled") + b"\x18\x00"  # and a number in field 3
RULE_FILE = field(6, b"/tmp/rules.tsv")


@pytest.mark.parametrize("number", [3, 5])  # normalizer_spec, denormalizer_spec
def test_rule_files_go_and_everything_else_stays(number: int) -> None:
    model = PIECES + TRAINER + field(number, RULES + RULE_FILE)
    assert without_rule_files(model) == PIECES + TRAINER + field(number, RULES)


def test_both_rule_files_go() -> None:
    model = PIECES + field(3, RULES + RULE_FILE) + field(5, RULE_FILE + RULES)
    assert without_rule_files(model) == PIECES + field(3, RULES) + field(5, RULES)


def test_a_model_without_rule_files_stays_as_it_is() -> None:
    assert without_rule_files(PIECES + TRAINER) == PIECES + TRAINER
