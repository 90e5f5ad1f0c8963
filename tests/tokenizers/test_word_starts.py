"""Which tokens begin a word, in many scripts, beside the words that Python's `split` finds."""

import keras_nlp
import numpy as np
import pytest

from kformer.config import TrainingConfig
from kformer.data.arrangements import Rows
from kformer.tasks import task_of
from kformer.tokenizers import (
    KerasNLPTokenizer,
    SentencePieceTokenizer,
    SymbolTokenizer,
    Tokenizer,
    WordPieceTokenizer,
    WordTokenizer,
)
from kformer.writing_systems import is_han, is_unspaced

WITH_BLANKS = {
    "Latin": "All human beings are born free and equal in dignity and rights.",
    "Cyrillic": "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "Greek": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.",
    "Hebrew": "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם.",
    "Arabic": "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق.",
    "Devanagari": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "Georgian": "ყველა ადამიანი იბადება თავისუფალი და თანასწორი თავისი ღირსებითა და უფლებებით.",
    "Armenian": "Բոլոր մարդիկ ծնվում են ազատ ու հավասար իրենց արժանապատվությամբ ու իրավունքներով:",
    "Ethiopic": "የሰው ልጅ ሁሉ ሲወለድ ነጻና በክብርና በመብትም እኩልነት ያለው ነው።",
    "Tamil": "மனிதப் பிறிவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்.",
    "Hangul": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
}
WITHOUT_BLANKS = {
    "Han": "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。",
    "Kana": "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。コンピューター",
    "Thai": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ",
    "Burmese": "လူတိုင်းသည်တူညီလွတ်လပ်သောဂုဏ်သိက္ခာဖြင့်လည်းကောင်း",
    "Khmer": "មនុស្សទាំងអស់កើតមកមានសេរីភាពនិងសមភាព",
}


def trained(text: str, model_type: str, more: int = 8) -> SentencePieceTokenizer:
    """A vocabulary with the text's characters and up to `more` longer pieces."""
    smallest = 261 + len(set(text.replace(" ", "")))
    for vocab_size in range(smallest + more, smallest - 1, -1):
        try:
            return SentencePieceTokenizer.train([text, *text.split()], vocab_size, model_type, character_coverage=1.0)
        except ValueError:
            continue  # The text has too few pieces.
    raise AssertionError(text)


def starts(tokenizer: Tokenizer, text: str) -> list[bool]:
    """Whether each token of the text begins a word."""
    return tokenizer.word_starts()[tokenizer.tokenize([text])[0].numpy()].tolist()


def by_words(tokenizer: Tokenizer, text: str) -> list[bool]:
    """The same, by the number of tokens that each word has when it stands alone."""
    lengths = tokenizer.tokenize(text.split()).row_lengths().numpy().tolist()
    return [place == 0 for length in lengths for place in range(length)]


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
@pytest.mark.parametrize("script", WITH_BLANKS)
def test_words_begin_after_blanks(script: str, model_type: str) -> None:
    text = WITH_BLANKS[script]
    tokenizer = trained(text, model_type)
    assert starts(tokenizer, text) == by_words(tokenizer, text)
    assert sum(starts(tokenizer, text)) == len(text.split()) < len(starts(tokenizer, text))


@pytest.mark.parametrize("script", WITHOUT_BLANKS)
def test_without_blanks_between_words_each_token_is_one(script: str) -> None:
    found = starts(trained(WITHOUT_BLANKS[script], "bpe"), WITHOUT_BLANKS[script])
    assert len(found) > 10
    assert all(found)


def test_the_first_and_the_last_characters_of_a_script_belong_to_it() -> None:
    assert all(map(is_unspaced, "々〇一鿿㐀䶿、ヿㇰㇿ！ﾟก๛က႟"))  # 々 and 〇 are Chinese, too
    assert not any(map(is_unspaced, "aя시1 \u0dff\u10a0\ua000"))
    assert [is_han(character) for character in "々〇一鿿㐀䶿𠮷あก"] == [True] * 7 + [False] * 2


def test_the_bytes_of_a_rare_character_do_not_begin_a_word() -> None:
    tokenizer = SentencePieceTokenizer.train(["low lower lowest"] * 3, vocab_size=271)
    assert starts(tokenizer, "low ñ low") == [True, True, False, False, True]  # "▁", the two bytes of ñ
    assert not tokenizer.word_starts()[:260].any()  # special ids and bytes


def hidden(text: str, tokenizer: Tokenizer, rows: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """The ids of a text, and which of them whole-word masking hides in each of many rows."""
    training = TrainingConfig(mask_whole_words=True)
    ids = tokenizer.tokenize([text])[0].numpy()
    source = np.tile(ids, (rows, 1))
    arrangement = task_of("masked-language-model").arrangement((tokenizer, tokenizer), training)
    _, labels = arrangement.arrange(Rows(source, source, 0, 0, 1), np.random.default_rng(1))
    return ids, labels != 0


@pytest.mark.parametrize("script", ["Latin", "Cyrillic", "Hangul", "Han", "Thai"])
def test_in_every_script_a_part_of_the_words_is_hidden(script: str) -> None:
    text = (WITH_BLANKS | WITHOUT_BLANKS)[script]
    tokenizer = trained(text, "bpe")
    ids, masked = hidden(text, tokenizer)
    word = np.cumsum(tokenizer.word_starts()[ids]) - 1
    for row in masked:
        chosen = {number for number, is_masked in zip(word, row, strict=True) if is_masked}
        np.testing.assert_array_equal(row, np.isin(word, list(chosen)))  # whole words
    assert 0.1 < masked.mean() < 0.3  # 15 %, and at least one word in each row
    assert masked.all(axis=1).sum() == 0


def test_symbols_and_words_are_words() -> None:
    assert SymbolTokenizer(["in", "the"]).word_starts().tolist() == [False] * 4 + [True, True]
    assert starts(WordTokenizer(["Hello", "world", ",", "!"]), "Hello, world!") == [True] * 4


def test_word_pieces_begin_a_word_without_their_mark() -> None:
    pieces = ["[PAD]", "[UNK]", "the", "fox", "##es", "run", "##s"]
    tokenizer = KerasNLPTokenizer(keras_nlp.tokenizers.WordPieceTokenizer(pieces))
    assert starts(tokenizer, "the foxes runs") == [True, True, False, True, False]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces[2:]]
    assert starts(WordPieceTokenizer(pieces, 0, 2, 3, 1, 4), "the foxes runs") == [True, True, False, True, False]


def test_pieces_of_a_wrapped_sentence_piece_model_begin_words_as_they_do_unwrapped() -> None:
    text = WITH_BLANKS["Cyrillic"]
    unwrapped = trained(text, "bpe")
    tokenizer = KerasNLPTokenizer(keras_nlp.tokenizers.SentencePieceTokenizer(unwrapped.model_bytes))
    assert starts(tokenizer, text) == by_words(unwrapped, text)


def test_byte_pairs_begin_a_word_with_their_blank() -> None:
    vocabulary = {token: number for number, token in enumerate(["lo", "w", "Ġlo", "Ġ", "l", "o", "e", "r"])}
    inner = keras_nlp.tokenizers.BytePairTokenizer(vocabulary, ["l o", "Ġ lo"], dtype="int32")
    assert starts(KerasNLPTokenizer(inner), "low lower") == [False, False, True, False, False, False]


def test_bytes_begin_a_word_with_their_blank() -> None:
    tokenizer = KerasNLPTokenizer(keras_nlp.tokenizers.ByteTokenizer())
    for text in ("go on", "go\ton", "go\non"):
        assert starts(tokenizer, text) == [False, False, True, False, False]


def test_a_tokenizer_that_cannot_tell_says_so() -> None:
    class Unknown(SymbolTokenizer):
        kind = "unknown"
        word_starts = Tokenizer.word_starts

    with pytest.raises(ValueError, match="of the kind unknown cannot tell which .* begin a word. Leave out mask_whole"):
        Unknown(["a"]).word_starts()
