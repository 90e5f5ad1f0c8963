"""Words, marks and parts of words, as BERT divides texts. `tests/importing/test_bert.py` compares with transformers."""

import pytest
import tensorflow as tf

from kformer.tokenizers import WordPieceTokenizer
from kformer.tokenizers.text_ops import lower

PIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "fox",
    "##es",
    "##e",
    "É",
    "e",
    "中",
    "##文",
    "!",
    "un",
    "##s",
    "",
]
SPECIAL = (0, 2, 3, 1, 4)


def pieces(text: str, **options: bool) -> list[str]:
    tokenizer = WordPieceTokenizer(PIECES, *SPECIAL, **options)
    return [PIECES[number] for number in tokenizer.tokenize([text]).to_list()[0]]


def test_the_longest_pieces_come_first() -> None:
    assert pieces("foxes foxe foxs un") == ["fox", "##es", "fox", "##e", "fox", "##s", "un"]


def test_a_word_with_an_unknown_part_is_unknown_as_a_whole() -> None:
    assert pieces("foxy fox!!") == ["[UNK]", "fox", "!", "!"]


def test_case_and_accents_and_chinese_are_options() -> None:
    assert pieces("É FOX 中文") == ["e", "fox", "中", "[UNK]"]
    assert pieces("É FOX 中文", lowercase=False, strip_accents=False) == ["É", "[UNK]", "中", "[UNK]"]
    assert pieces("É FOX 中文", strip_accents=False, split_chinese=False) == ["[UNK]", "fox", "中", "##文"]


def test_a_word_of_more_than_100_characters_is_unknown() -> None:
    assert pieces("un" + "s" * 98) == ["un", *["##s"] * 98]
    assert pieces("un" + "s" * 99) == ["[UNK]"]


def test_special_pieces_in_a_text_are_text() -> None:
    assert pieces("[SEP] [ MASK ]") == ["[UNK]"] * 6
    assert WordPieceTokenizer(PIECES, *SPECIAL).normalize(["fox [PAD]"]).numpy()[0].decode() == "fox ⁇ ⁇ ⁇"


def test_letters_have_one_small_form_wherever_they_stand() -> None:
    assert lower(tf.constant(["ΣΑΣ İI ÑẞǄ"])).numpy()[0].decode() == "σασ i̇i ñßǆ"


def test_the_mask_has_an_id_of_its_own() -> None:
    tokenizer = WordPieceTokenizer(PIECES, *SPECIAL)
    assert tokenizer.mask_id == 4
    assert tokenizer.special_ids() == {0, 1, 2, 3, 4}
    assert tokenizer.fallback_ids() == [1]


def test_spellings_are_with_the_mark_and_without_it() -> None:
    assert WordPieceTokenizer(PIECES, *SPECIAL).spellings()[4:8] == [(), ("fox",), ("##es", "es"), ("##e", "e")]


@pytest.mark.parametrize(
    ("vocabulary", "special", "message"),
    [
        (PIECES, (0, 2, 3, 1, 99), "Special ids must be from 0 to 15.* Received: 99"),
        ([*PIECES, "fox"], SPECIAL, "A piece must occur only once. Received twice: 'fox'"),
    ],
)
def test_unusable_vocabularies(vocabulary: list[str], special: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WordPieceTokenizer(vocabulary, *special)
