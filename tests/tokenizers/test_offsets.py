"""Where tokens stand in texts, in bytes: slices of the text as given are what the tokens cover."""

import random
import re

import pytest
import sentencepiece
import tensorflow as tf

from kformer.tokenizers import (
    ByteBPETokenizer,
    KerasNLPTokenizer,
    PieceVocabularyTokenizer,
    SentencePieceTokenizer,
    SymbolTokenizer,
    WordTokenizer,
)
from kformer.tokenizers.byte_bpe import byte_characters

pytestmark = pytest.mark.tensorflow_only

BLANKS = rb"\s|\xe3\x80\x80|\xef\xbb\xbf"  # bytes of white space: also U+3000 and U+FEFF
HOSTILE = [
    b"the cat sat on the mat",
    b"  the\tcat \n ",
    b"",
    b" \n ",
    "e\u0301x the ab\u0301".encode(),  # a letter and a combining accent become one letter
    "the\u3000 猫 sat".encode(),
    "\ufeffthe\ufeff cat\ufeffsat".encode(),
    "שלום 👩‍👩‍👧 cat".encode(),
    "\u2581 the \ufdd00 \ufdd01 cat".encode(),  # SentencePiece's own mark, and the noncharacters that stand for it
    b"the\xff \xe2\x82 cat",
    b"\xed\xa0\x80",
    b"<s> <0x41>",
]


@pytest.fixture(scope="module")
def sentencepiece_tokenizer():
    return SentencePieceTokenizer.train(["the cat sat on the mat", "a cat", "überall sat a cat"] * 5, vocab_size=290)


@pytest.fixture(scope="module")
def piece_vocabulary(sentencepiece_tokenizer):
    """The same pieces in another order, a token before each text, and codes of languages."""
    model_bytes = sentencepiece_tokenizer.model_bytes
    processor = sentencepiece.SentencePieceProcessor(model_proto=model_bytes)
    pieces = [*(processor.id_to_piece(number) for number in range(289, -1, -1)), ">>es<<", "__en__"]
    ids = [pieces.index(piece) for piece in ("<pad>", "<s>", "</s>", "<unk>")]
    return PieceVocabularyTokenizer(model_bytes, pieces, *ids, first_ids=[291], reads_language_codes=True)


@pytest.fixture(scope="module")
def symbols():
    return SymbolTokenizer(["the", "cat", "sat", "猫"])


@pytest.fixture(scope="module")
def byte_pairs():
    """Bytes, two pieces of several bytes, a token before each text, and white space that is left out at its ends."""
    pieces = [*byte_characters(), "th", "Ġc", "<pad>", "<s>", "</s>"]
    return ByteBPETokenizer(pieces, ["t h", "Ġ c"], 258, 260, 260, first_ids=[259], trims_ends=True)


@pytest.fixture(scope="module")
def words():
    return WordTokenizer(["the", "cat", "sat", "猫", ",", '"', "("])


def slices(text, spans, row):
    return [text[a:b] for a, b in zip(spans.start[row].numpy(), spans.end[row].numpy(), strict=True)]


def test_a_reader_sees_the_words(sentencepiece_tokenizer, symbols):
    spans = symbols.tokenize_with_offsets(tf.constant([b" the  cat\n\xff ", b"", "猫 sat".encode()]))
    assert slices(b" the  cat\n\xff ", spans, 0) == [b"the", b"cat", b"\xff"]
    assert spans.ids.to_list() == [[4, 5, 3], [], [7, 6]]
    assert slices("猫 sat".encode(), spans, 2) == ["猫".encode(), b"sat"]
    spans = sentencepiece_tokenizer.tokenize_with_offsets(tf.constant(["the  cat"]))
    assert b"".join(slices(b"the  cat", spans, 0)) == b"the  cat"


@pytest.mark.parametrize("name", ["sentencepiece_tokenizer", "piece_vocabulary", "symbols", "words", "byte_pairs"])
def test_tokens_are_those_of_tokenize_and_cover_the_text_in_order(name, request):
    tokenizer = request.getfixturevalue(name)
    texts = tf.constant(HOSTILE)
    spans = tokenizer.tokenize_with_offsets(texts)
    assert spans.ids.to_list() == tokenizer.tokenize(texts).to_list()
    for row, text in enumerate(HOSTILE):
        starts, ends = spans.start[row].numpy().tolist(), spans.end[row].numpy().tolist()
        assert all(a <= b for a, b in zip(starts, ends, strict=True))
        assert all(end <= start for end, start in zip(ends, starts[1:], strict=False)), text
        covered = b"".join(slices(text, spans, row))
        # White space may be left out between tokens; nothing else is.
        assert re.sub(BLANKS, b"", covered) == re.sub(BLANKS, b"", text)


def test_a_character_that_is_composed_has_all_bytes_that_were_given(sentencepiece_tokenizer):
    text = "the e\u0301".encode()
    spans = sentencepiece_tokenizer.tokenize_with_offsets(tf.constant([text]))
    assert "e\u0301".encode() in slices(text, spans, 0)


@pytest.mark.parametrize("name", ["sentencepiece_tokenizer", "words"])
def test_a_character_that_is_not_read_belongs_to_the_one_before_it(name, request):
    tokenizer = request.getfixturevalue(name)
    text = "\u200ethe\xad c\xadat\u200b , e\u200b\u0301\u200f".encode()
    spans = tokenizer.tokenize_with_offsets(tf.constant([text, "the cat ,"]))
    assert spans.ids.to_list() == tokenizer.tokenize(tf.constant([text, "the cat ,"])).to_list()
    assert b"".join(slices(text, spans, 0)).replace(b" ", b"") == text[3:].replace(b" ", b"")
    if name == "words":
        assert slices(text, spans, 0)[:2] == ["the\xad".encode(), "c\xadat\u200b".encode()]
        assert spans.ids.to_list()[0][:3] == spans.ids.to_list()[1]


@pytest.mark.parametrize("name", ["sentencepiece_tokenizer", "piece_vocabulary", "symbols", "words", "byte_pairs"])
def test_a_text_alone_has_the_places_that_it_has_among_others(name, request):
    tokenizer = request.getfixturevalue(name)
    together = tokenizer.tokenize_with_offsets(tf.constant(HOSTILE))
    for row, text in enumerate(HOSTILE):
        alone = tokenizer.tokenize_with_offsets(tf.constant([text]))
        for values, others in zip(alone, together, strict=True):
            assert values[0].numpy().tolist() == others[row].numpy().tolist()


def test_written_tokens_are_the_slices_of_the_text_that_detokenize_gives(sentencepiece_tokenizer):
    """Also for ids that a model makes up: bytes that are no character, blanks, noncharacters."""
    tokenizer, generator = sentencepiece_tokenizer, random.Random(5)
    fallback = [piece for piece in tokenizer.fallback_ids() if piece > 3]
    rows = [[]] + [
        [generator.choice(fallback) if generator.random() < share else generator.randrange(4, 290) for _ in range(size)]
        for share in (0, 0.5, 1)
        for size in range(1, 40)
    ]
    mark = tokenizer.tokenize(tf.constant(["\u2581 \ufdd00"])).to_list()
    ids = tf.ragged.constant(rows + mark + mark, dtype=tf.int32, ragged_rank=1)
    text, spans = tokenizer.detokenize_with_offsets(ids)
    assert text.numpy().tolist() == tokenizer.detokenize(ids).numpy().tolist()
    for row, written in enumerate(text.numpy()):
        assert b"".join(slices(written, spans, row)) == written


def test_a_code_of_a_language_and_the_first_token_have_their_places(piece_vocabulary):
    text = b">>es<< the cat"
    spans = piece_vocabulary.tokenize_with_offsets(tf.constant([text]))
    assert spans.ids.to_list()[0][:2] == [291, 290]
    first, code, *rest = slices(text, spans, 0)
    assert (first, code, b"".join(rest).strip()) == (b"", b">>es<<", b"the cat")


@pytest.mark.parametrize("name", ["piece_vocabulary", "byte_pairs"])
def test_written_pieces_are_the_slices_of_a_text_without_blanks_at_its_ends(name, request):
    """Also for ids that a model makes up: bytes that are no character, blanks, special ids."""
    generator, tokenizer = random.Random(5), request.getfixturevalue(name)
    rows = [[generator.randrange(tokenizer.vocab_size) for _ in range(size)] for size in range(30)]
    ids = tf.ragged.constant(rows, dtype=tf.int32, ragged_rank=1)
    text, spans = tokenizer.detokenize_with_offsets(ids)
    for row, written in enumerate(text.numpy()):
        assert b"".join(slices(written, spans, row)) == written
        assert written == written.strip()


def test_written_symbols_are_the_slices_between_blanks(symbols):
    text, spans = symbols.detokenize_with_offsets(tf.ragged.constant([[4, 3, 7], []], dtype=tf.int32, ragged_rank=1))
    assert text.numpy().tolist() == ["the ⁇ 猫".encode(), b""]
    assert slices(text.numpy()[0], spans, 0) == [b"the", "⁇".encode(), "猫".encode()]


def test_words_and_marks_are_written_without_the_blanks_before_them(words):
    ids = words.tokenize(tf.constant(['the "cat" , ( 猫']))
    text, spans = words.detokenize_with_offsets(ids)
    assert text.numpy().tolist() == words.detokenize(ids).numpy().tolist() == ['the "cat", (猫'.encode()]
    assert [word.decode() for word in slices(text.numpy()[0], spans, 0)] == ["the", '"', "cat", '"', ",", "(", "猫"]


def test_other_tokenizers_say_that_they_do_not_know():
    import keras_nlp

    tokenizer = KerasNLPTokenizer(keras_nlp.tokenizers.ByteTokenizer(dtype="int32"))
    for call in (tokenizer.tokenize_with_offsets, tokenizer.detokenize_with_offsets):
        with pytest.raises(ValueError, match="of the kind keras_nlp cannot give the offsets of its tokens"):
            call(tf.constant(["x"]))
