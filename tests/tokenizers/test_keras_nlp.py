"""Tokenizers of keras-nlp, wrapped."""

import keras_nlp
import pytest
import tensorflow as tf

from kformer.tokenizers import KerasNLPTokenizer, SentencePieceTokenizer

WORD_PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "fox", "##es", "run"]


def test_byte_tokenizer_is_shifted_by_four() -> None:
    tokenizer = KerasNLPTokenizer(keras_nlp.tokenizers.ByteTokenizer(lowercase=False))
    assert tokenizer.vocab_size == 260
    text = tf.constant(["Añ", ""])
    assert tokenizer.tokenize(text).to_list() == [[65 + 4, 0xC3 + 4, 0xB1 + 4], []]
    assert tokenizer.normalize(text).numpy().tolist() == ["Añ".encode(), b""]


def test_the_wrapped_tokenizer_stays_usable_in_other_graphs() -> None:
    inner = keras_nlp.tokenizers.ByteTokenizer()
    KerasNLPTokenizer(inner).normalize(tf.constant(["a"]))
    detokenize = tf.function(inner.detokenize, input_signature=[tf.RaggedTensorSpec([None, None], tf.int32)])
    assert detokenize(tf.ragged.constant([[97, 98]])).numpy().tolist() == [b"ab"]


def test_a_wrapped_sentence_piece_tokenizer_stays_usable_in_other_graphs(bpe: SentencePieceTokenizer) -> None:
    inner = keras_nlp.tokenizers.SentencePieceTokenizer(bpe.model_bytes)
    KerasNLPTokenizer(inner).normalize(tf.constant(["the fox"]))
    tokenize = tf.function(inner.tokenize, input_signature=[tf.TensorSpec([None], tf.string)])
    text = tf.constant(["the fox"])
    assert tokenize(text).to_list() == bpe.tokenize(text).to_list()


def test_word_pieces() -> None:
    tokenizer = KerasNLPTokenizer(keras_nlp.tokenizers.WordPieceTokenizer(WORD_PIECES, lowercase=True))
    text = tf.constant(["The foxes run"])
    assert tokenizer.tokenize(text).to_list() == [[9, 10, 11, 12]]
    assert tokenizer.normalize(text).numpy().tolist() == [b"the foxes run"]


def test_the_unknown_word_piece_is_a_fallback() -> None:
    tokenizer = KerasNLPTokenizer(keras_nlp.tokenizers.WordPieceTokenizer(["[PAD]", "[UNK]", "K"]))
    known, unknown = tokenizer.tokenize(tf.constant(["K Q"])).to_list()[0]
    assert tokenizer.fallback_ids() == [unknown] != [known]
    assert KerasNLPTokenizer(keras_nlp.tokenizers.ByteTokenizer()).fallback_ids() == []


def test_sentence_pieces(bpe: SentencePieceTokenizer) -> None:
    tokenizer = KerasNLPTokenizer(keras_nlp.tokenizers.SentencePieceTokenizer(bpe.model_bytes))
    text = tf.constant(["the ñandú <s> runs"])
    assert tokenizer.tokenize(text).to_list() == [[i + 4 for i in bpe.tokenize(text).to_list()[0]]]
    assert tokenizer.normalize(text).numpy()[0].decode() == "the ñandú <s> runs"
    tf.random.set_seed(3)  # empties the cache that owns a model loaded outside a graph
    assert tokenizer.normalize(text).numpy()[0].decode() == "the ñandú <s> runs"


class Latin1(keras_nlp.tokenizers.ByteTokenizer):
    """A tokenizer whose texts are not UTF-8."""

    def detokenize(self, inputs: tf.RaggedTensor) -> tf.Tensor:
        return tf.repeat(b"a\xf1o", inputs.nrows())


def test_invalid_bytes_from_the_wrapped_tokenizer_are_replaced() -> None:
    assert KerasNLPTokenizer(Latin1()).detokenize(tf.constant([[5]])).numpy()[0].decode() == "a\ufffdo"


def test_ids_outside_the_vocabulary_are_dropped() -> None:
    tokenizer = KerasNLPTokenizer(keras_nlp.tokenizers.ByteTokenizer())
    assert tokenizer.detokenize(tf.constant([[3, 97 + 4, 260, -7]])).numpy().tolist() == [b"a"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sequence_length": 8}, "must not pad or cut. Received: sequence_length=8"),
        ({"dtype": "string"}, "must return integers. Received: dtype='string'"),
    ],
)
def test_unusable_word_pieces(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KerasNLPTokenizer(keras_nlp.tokenizers.WordPieceTokenizer(WORD_PIECES, **options))


def test_start_tokens_are_refused(bpe: SentencePieceTokenizer) -> None:
    with pytest.raises(ValueError, match=r"must not add start and end tokens.*add_bos=True"):
        KerasNLPTokenizer(keras_nlp.tokenizers.SentencePieceTokenizer(bpe.model_bytes, add_bos=True))


def test_it_cannot_tell_its_words() -> None:
    tokenizer = KerasNLPTokenizer(keras_nlp.tokenizers.ByteTokenizer())
    with pytest.raises(ValueError, match="of the kind keras_nlp cannot tell which words its ids stand for"):
        tokenizer.spellings()
