"""200 texts that a translator must survive: ordinary ones, and what people and machines really send."""

import random

import toy

BY_HAND = [
    b"",
    b" ",
    b"\t \n",
    b"\x00",
    b"one\x00two",
    b"\xff\xfe\xfd",
    b"one \xc3\x28 two",  # a broken two-byte sequence
    b"\xed\xa0\x80",  # half a surrogate pair
    b"\xf4\x90\x80\x80",  # past the last code point
    "\ufeffone two".encode(),
    "één twee 三 🙂 שלוש".encode(),
    "e\u0301 \u200d \u202e eno".encode(),
    "\u2581one\u2581two".encode(),  # SentencePiece's own mark for a blank
    b"<s> one </s> <pad> <unk> <0x41>",
    b"one\r\ntwo",
    "one\u2028two".encode(),
    b"x" * 5000,
    b"one " * 2000,
    "👩‍👩‍👧‍👦".encode() * 100,
    b'{"instances": ["one"]}',
    b"'; DROP TABLE verses; --",
    b"%s %d %n ${jndi:x}",
]


def texts() -> list[bytes]:
    """The ones above, then test sentences of the toy language and random bytes, 200 in all."""
    generator = random.Random(3)
    ordinary = [source.encode() for source, _ in toy.corpus().test]
    noise = [generator.randbytes(generator.randrange(1, 60)) for _ in range(200 - len(BY_HAND) - len(ordinary))]
    return BY_HAND + ordinary + noise
