"""SentencePiece loses nothing but the Unicode form, white space and marks that show nothing."""

import pathlib
import random
import re
import unicodedata

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from kformer.tokenizers import SentencePieceTokenizer, WordTokenizer

WHITE_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
NOT_READ = "\xad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
HARD = ["<s>", "</s>", "<0x41>", "<pad>", "<unk>", "▁", "\ufdd0", "\ufdd01", "\ufdd00", "\u2585", "\0", " ", "e\u0301"]


def expected(text: str) -> str:
    composed = unicodedata.normalize("NFC", re.sub(f"[{NOT_READ}]", "", text))
    return re.sub(f"[{WHITE_SPACE}]+", " ", composed).strip(" ")


def normalized(tokenizer: SentencePieceTokenizer, texts: list[str]) -> list[str]:
    return [text.decode() for text in tokenizer.normalize(tf.constant(texts, tf.string)).numpy()]


@pytest.fixture(params=["bpe", "unigram"])
def tokenizer(request: pytest.FixtureRequest) -> SentencePieceTokenizer:
    return request.getfixturevalue(request.param)


# "Cs": lone surrogates are no text; they cannot be written in UTF-8.
@hypothesis.settings(
    deadline=None,
    max_examples=150,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@hypothesis.given(
    st.lists(
        st.one_of(
            st.text(st.characters(exclude_categories=["Cs"])),
            st.lists(st.sampled_from(HARD)).map("".join),
        ),
        max_size=5,
    )
)
def test_any_text_survives(tokenizer: SentencePieceTokenizer, texts: list[str]) -> None:
    assert normalized(tokenizer, texts) == [expected(text) for text in texts]


def test_code_points_survive(bpe: SentencePieceTokenizer) -> None:
    # All of the basic plane; of the others every 19th, to be quick.
    codes = [*range(0xD800), *range(0xE000, 0x10000), *range(0x10000, 0x110000, 19)]
    texts = [f"a{chr(code)}b" for code in codes]
    wrong = [text for text, back in zip(texts, normalized(bpe, texts), strict=True) if back != expected(text)]
    assert wrong == []


@pytest.mark.parametrize("text", HARD)
def test_what_looks_special_stays_text(tokenizer: SentencePieceTokenizer, text: str) -> None:
    wrapped = f"x{text}y {text} z"
    assert normalized(tokenizer, [wrapped]) == [expected(wrapped)]
    ids = tokenizer.tokenize(tf.constant([wrapped])).flat_values.numpy()
    assert not set(ids) & {tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id}


def test_digits_are_split(tokenizer: SentencePieceTokenizer) -> None:
    # "30" occurs 120 times, yet its digits are pieces of their own: blank, 3, 0.
    assert len(tokenizer.tokenize(tf.constant(["30"]))[0]) == 3


def test_frequent_words_are_pieces(bpe: SentencePieceTokenizer) -> None:
    assert bpe.tokenize(tf.constant(["the number"])).row_lengths().numpy().tolist() == [2]


def test_fallback_ids_are_the_bytes_and_the_unknown_id(tokenizer: SentencePieceTokenizer) -> None:
    fallback = tokenizer.fallback_ids()
    assert len(fallback) == 257
    assert tokenizer.unknown_id in fallback
    snowman, fox = tokenizer.tokenize(tf.constant(["☃", "fox"])).to_list()
    assert sum(piece in fallback for piece in snowman) == len("☃".encode())
    assert not set(fox) & set(fallback)


def test_special_ids(tokenizer: SentencePieceTokenizer) -> None:
    assert (tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id, tokenizer.unknown_id) == (0, 1, 2, 3)


def test_the_vocabulary_has_the_size_asked_for(bpe: SentencePieceTokenizer, unigram: SentencePieceTokenizer) -> None:
    assert (bpe.vocab_size, unigram.vocab_size) == (320, 300)


def test_ids_outside_the_vocabulary_are_shown(bpe: SentencePieceTokenizer) -> None:
    ids = tf.constant([[bpe.unknown_id], [320], [-5]])
    assert bpe.detokenize(ids).numpy().tolist() == ["⁇".encode()] * 3


def test_training_is_deterministic_and_keeps_no_path(texts: list[str], unigram: SentencePieceTokenizer) -> None:
    again = SentencePieceTokenizer.train(iter(texts), 300, "unigram")
    assert again.model_bytes == unigram.model_bytes
    assert b".tsv" not in unigram.model_bytes


def test_a_long_text_is_learned_from() -> None:
    # The default of SentencePiece drops texts over 4,192 bytes without a word.
    tokenizer = SentencePieceTokenizer.train(["zebra " * 2000], 270)
    assert len(tokenizer.tokenize(tf.constant(["zebra"]))[0]) < len("zebra")


def test_more_texts_than_the_limit_are_sampled() -> None:
    # The texts hold 2,000 different characters; ten of them cannot need a vocabulary of 2,000.
    texts = [f"{chr(0x4E00 + n)}{chr(0x4E00 + n)}" for n in range(2000)]
    assert SentencePieceTokenizer.train(texts, 274, max_texts=10).vocab_size == 274


def test_training_takes_lone_surrogates(texts: list[str]) -> None:
    assert SentencePieceTokenizer.train([*texts, "a\ud800b"], 320).vocab_size == 320


def test_setting_the_seed_does_not_lose_the_model(tokenizer: SentencePieceTokenizer) -> None:
    # tf.random.set_seed empties the cache that owns a model loaded eagerly.
    before = normalized(tokenizer, ["the fox"])
    tf.random.set_seed(3)
    assert normalized(tokenizer, ["the fox"]) == before == ["the fox"]


def test_vocabulary_too_large() -> None:
    with pytest.raises(ValueError, match=r"vocab_size=5000 is too large .* Lower vocab_size to \d+ or less"):
        SentencePieceTokenizer.train(["one fox and two dogs"], 5000)


def test_vocabulary_too_small_for_the_characters() -> None:
    with pytest.raises(ValueError, match=r"vocab_size=265 is too small: .* need 28\d\. Raise vocab_size to more"):
        SentencePieceTokenizer.train(["abcdefghijklmnopqrstuvwxyz"], 265)


def test_vocabulary_smaller_than_the_bytes() -> None:
    with pytest.raises(ValueError, match="vocab_size must be at least 261: 4 special ids, 256 bytes"):
        SentencePieceTokenizer.train(["a"], 260)


def test_no_text() -> None:
    with pytest.raises(ValueError, match="no text to learn a vocabulary from: every text is blank"):
        SentencePieceTokenizer.train(["", " \u3000"], 300)


def test_unknown_model_type() -> None:
    with pytest.raises(ValueError, match=r"model_type must be one of bpe, unigram. Received: model_type='word'"):
        SentencePieceTokenizer.train(["a"], 300, "word")


def test_bytes_that_are_no_model() -> None:
    with pytest.raises(ValueError, match=r"must be a serialized SentencePiece model. Received 5 bytes"):
        SentencePieceTokenizer(b"hello")


def test_model_without_pad_piece(tmp_path: pathlib.Path) -> None:
    import io

    import sentencepiece

    writer = io.BytesIO()  # SentencePiece's own defaults have no pad piece
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a fox", "a dog"]), model_writer=writer, vocab_size=10, minloglevel=2
    )
    with pytest.raises(ValueError, match=r"has no pad piece. kformer needs pad, bos and eos"):
        SentencePieceTokenizer(writer.getvalue())


def test_sampling_is_fair() -> None:
    from kformer.tokenizers.sentencepiece import _sample

    sample = [int(text) for text in _sample((str(n) for n in range(10_000)), 1000)]
    assert len(set(sample)) == 1000
    assert np.mean(sample) == pytest.approx(5000, abs=300)  # standard error of the mean: 2887 / sqrt(1000) = 91


@pytest.mark.parametrize("text", ["\u200b", " \u200e\n\u2060 \u00ad", "\ufeff\u202a\u202c\u2069"])
def test_a_text_that_shows_nothing_has_no_token(bpe: SentencePieceTokenizer, text: str) -> None:
    words = WordTokenizer.train(["fox \u200b number"])
    for tokenizer in (bpe, words):
        nothing, fox = tokenizer.tokenize(tf.constant([text, "fox"])).to_list()
        assert nothing == []
        assert fox
        assert tokenizer.tokenize_with_offsets(tf.constant([text])).ids.to_list() == [[]]


def test_soft_hyphens_and_the_like_are_not_read_and_joiners_are(bpe: SentencePieceTokenizer) -> None:
    texts = ["\u202eri\xadver \u200b fox\u2060\u200e", "river fox", "ri\u200dver fox"]
    for tokenizer in (bpe, WordTokenizer.train(texts)):
        hidden, plain, joined = tokenizer.tokenize(tf.constant(texts)).to_list()
        assert hidden == plain != joined
    assert bpe.normalize(tf.constant(texts)).numpy()[2].decode() == texts[2]


@pytest.mark.parametrize("letters", ["ACGT", "\u4f60\u597d\u4e16\u754c"])
def test_texts_with_hardly_any_blank_have_a_piece_for_it(letters):
    """Each of these has one blank among 15,000 letters, far below what `character_coverage` keeps."""
    draw = random.Random(3)
    texts = ["".join(draw.choices(letters, k=15_000)) for _ in range(3)]
    tokenizer = SentencePieceTokenizer.train(texts, vocab_size=300)
    given = [letters, f"{letters[:2]} {letters[2:]}"]
    assert [text.decode() for text in tokenizer.detokenize(tokenizer.tokenize(given)).numpy()] == given
