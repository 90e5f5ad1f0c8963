"""Byte pair encoding of bytes."""

import pytest

from kformer.tokenizers import ByteBPETokenizer
from kformer.tokenizers.byte_bpe import byte_characters

BYTES = byte_characters()


def tokenizer(*merges, **options):
    """One with the bytes, what merges give, and two special pieces."""
    pieces = [*BYTES, *(merge.replace(" ", "") for merge in merges), "<pad>", "<end>"]
    special = {"pad_id": len(pieces) - 2, "start_id": len(pieces) - 1, "end_id": len(pieces) - 1}
    return ByteBPETokenizer(pieces, merges, **{**special, **options})


def pieces_of(text, *merges):
    made = tokenizer(*merges)
    return [made.pieces[number].replace("Ġ", "_").replace("Ċ", "/") for number in made.tokenize([text]).to_list()[0]]


def test_the_first_merge_of_the_list_comes_first():
    assert pieces_of("abc", "b c", "a b", "a bc") == ["abc"]
    assert pieces_of("abc", "a b", "b c", "a bc") == ["ab", "c"]


def test_equal_pairs_are_merged_from_the_left():
    assert pieces_of("aaaaa aaa", "a a") == ["aa", "aa", "a", "_", "aa", "a"]


def test_nothing_is_merged_across_words():
    assert pieces_of("a b.b", "a Ġ", "b .", "Ġ b") == ["a", "_b", ".", "b"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("two  blanks", ["two", "_", "_blanks"]),
        ("end  ", ["end", "__"]),
        ("a\n\nb", ["a", "/", "/", "b"]),
        (" \n b", ["_/", "_b"]),
        ("it's we'll DON'T", ["it", "'s", "_we", "'ll", "_DON", "'", "T"]),
        ("  's", ["_", "_'", "s"]),
        ("x=12 ab3", ["x", "=", "12", "_ab", "3"]),
    ],
)
def test_words_are_those_of_gpt2(text, words):
    """Each word is merged to one piece here, whatever its bytes are."""
    merges = {}
    for word in words:
        word = word.replace("_", "Ġ").replace("/", "Ċ")
        merges.update((f"{word[:end]} {word[end]}", None) for end in range(1, len(word)))
    assert pieces_of(text, *merges) == words


def test_any_text_comes_back():
    texts = ["", " ", "\n", "naïve ☃ 😀", "你好", "a\u00a0b\ufeff", "<end>"]
    made = tokenizer("a b")
    assert [text.decode() for text in made.detokenize(made.tokenize(texts)).numpy()] == texts


def test_a_nul_is_read_as_a_replacement_character():
    made = tokenizer()
    assert made.normalize(["a\0b"]).numpy()[0].decode() == "a\ufffdb"


def test_a_text_begins_with_its_first_token_and_an_empty_one_with_the_start():
    ids = tokenizer().tokenize(["ab", ""])
    assert tokenizer().begun(ids).to_list() == [[97, 98], [257]]
    assert tokenizer(has_start=True).begun(ids).to_list() == [[257, 97, 98], [257]]


def test_first_ids_stand_before_texts_and_are_not_written():
    made = tokenizer("a b", first_ids=[3, 5])
    ids = made.tokenize(["ab", "", " "])
    assert ids.to_list() == [[3, 5, 256], [], [3, 5, 32]]
    assert made.detokenize(ids).numpy().tolist() == [b"ab", b"", b" "]
    assert {3, 5} <= made.special_ids()
    with pytest.raises(ValueError, match="Special ids must be from 0 to 258.*Received: 257, 258, 258, 259"):
        tokenizer("a b", first_ids=[259])


def test_white_space_at_the_ends_is_left_out_if_it_is_wanted():
    texts = [" \t a  b \n", "  ", "c"]
    assert tokenizer(trims_ends=True).normalize(texts).numpy().tolist() == [b"a  b", b"", b"c"]
    assert tokenizer().normalize(texts).numpy().tolist() == [text.encode() for text in texts]


def test_tokens_have_their_places_in_the_text_that_was_given():
    made = tokenizer("a b", first_ids=[3], trims_ends=True)
    texts = ["é ab", b"\xff\0ab", ""]
    spans = made.tokenize_with_offsets(texts)
    assert spans.ids.to_list() == made.tokenize(texts).to_list()
    # "é" has two bytes, and both belong to its first token.
    assert spans.start.to_list() == [[0, 0, 2, 2, 3], [0, 0, 1, 1, 1, 2, 2, 2], []]
    assert spans.end.to_list() == [[0, 2, 2, 3, 5], [0, 1, 1, 1, 2, 2, 2, 4], []]


def test_a_tokenizer_that_keeps_white_space_gives_no_places_of_what_it_writes():
    with pytest.raises(ValueError, match="byte_bpe cannot give the offsets"):
        tokenizer().detokenize_with_offsets(tokenizer().tokenize(["a"]))


def test_a_vocabulary_without_a_byte_or_a_part_of_a_merge_is_refused():
    with pytest.raises(ValueError, match=r"no piece 'ÿ'.*Expected: a piece for every byte"):
        ByteBPETokenizer([*BYTES[:-1], "<pad>", "<end>"], [], 255, 256, 256)
    with pytest.raises(ValueError, match="no piece 'abc'"):
        ByteBPETokenizer([*BYTES, "ab", "<pad>", "<end>"], ["ab c"], 257, 258, 258)


def test_no_id_of_a_byte_is_a_special_one():
    pieces = [*byte_characters(), "<pad>", "<end>"]
    assert ByteBPETokenizer(pieces, [], pad_id=256, start_id=257, end_id=257).special_ids() == {256, 257}
