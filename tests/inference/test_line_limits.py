"""Lines that are no text."""

import pytest

from kformer.inference.line_limits import INSTEAD, Fault, LineLimits

LIMITS = LineLimits(line=40, word=10)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "a b c d e f g h i j k l m n o p q r",
        "a " * 20,  # 40 bytes
        "ten chars: abcdefghij",
        "一二三四五六七八九十百千",  # no white space between words
        "ไม่มีช่องว่าง",
    ],
)
def test_text_is_within_the_limits(line):
    assert LIMITS.fault_of(line.encode()) is None


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("a " + "b" * 11, Fault("a word of 11 characters, where the longest may have 10", b"a " + b"b" * 10)),
        ("é" * 13, Fault("a word of 13 characters, where the longest may have 10", "é".encode() * 10)),
        (
            "一二" + "." * 17,
            Fault("a word of 17 characters, where the longest may have 10", ("一二" + "." * 10).encode()),
        ),
        ("a " * 21, Fault("42 bytes, where the longest line may have 40", b"a " * 20)),
        ("ab " + "一二三四五六七八九十百千万", Fault("42 bytes, where the longest line may have 40", None)),
    ],
)
def test_a_line_beyond_the_limits_is_told_with_its_beginning(line, fault):
    found = LIMITS.fault_of(line.encode())
    assert found.reason == fault.reason
    beginning = (
        line[:15].encode() if fault.beginning is None else fault.beginning
    )  # no half character: 3 + 12 * 3 bytes
    assert found.beginning == beginning


def test_a_line_may_have_fewer_bytes_than_a_word_has_characters():
    limits = LineLimits(line=4, word=10)
    assert limits.fault_of(b"ab c") is None
    assert limits.fault_of(b"ab cd") == Fault("5 bytes, where the longest line may have 4", b"ab c")


def test_bytes_that_are_not_text_have_a_length_too():
    assert LIMITS.fault_of(b"\xff" * 11).reason == "a word of 11 characters, where the longest may have 10"


def test_the_default_limits_let_prose_pass_and_no_data():
    limits = LineLimits()
    assert limits.fault_of(b"In the beginning, God created the heavens and the earth. " * 800) is None
    for junk in (b"A" * 40_000, b"." * 2_000, b"data:image/png;base64," + b"iVBORw0KGgo" * 500):
        assert limits.fault_of(junk).reason.startswith("a word of ")


def test_what_stands_in_the_place_of_an_answer():
    fault = Fault("too long", b"ab")
    assert {name: instead(b"abc", fault) for name, instead in INSTEAD.items()} == {
        "empty": (b"", ""),
        "source": (b"", "abc"),
        "keep": (b"ab", ""),
    }
