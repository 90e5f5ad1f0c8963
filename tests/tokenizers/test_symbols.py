"""Whole symbols split by blanks."""

import pytest
import tensorflow as tf

from kformer.tokenizers import SymbolTokenizer


def test_ids_follow_the_four_special_ones(symbols: SymbolTokenizer) -> None:
    assert symbols.vocab_size == 7
    assert symbols.tokenize(tf.constant(["K AE T", " T\u3000K\n"])).to_list() == [[4, 5, 6], [6, 4]]


def test_unknown_symbol_is_marked(symbols: SymbolTokenizer) -> None:
    text = tf.constant(["K OW T </s>"])
    assert symbols.tokenize(text).to_list() == [[4, 3, 6, 3]]
    assert symbols.normalize(text).numpy()[0].decode() == "K ⁇ T ⁇"


def test_ids_outside_the_vocabulary_are_marked(symbols: SymbolTokenizer) -> None:
    assert symbols.detokenize(tf.constant([[4, 7, -1]])).numpy()[0].decode() == "K ⁇ ⁇"


@pytest.mark.parametrize("start", [0, 2], ids=["as Marian", "as BART"])
def test_a_start_that_is_padding_or_the_end(start: int) -> None:
    tokenizer = SymbolTokenizer(["K", "AE", "T"])
    tokenizer.start_id = start
    rows = [[4, 5, 6, 2, 0], [start, 4, 5, 2, 6], [2, 0, 0, 0, 0], [start, 2, 0, 0, 0]]
    assert tokenizer.detokenize(tf.constant(rows)).numpy().tolist() == [b"K AE T", b"K AE", b"", b""]
    assert tokenizer.detokenize(tf.ragged.constant([[4, 5], [], [start, 6]])).numpy().tolist() == [b"K AE", b"", b"T"]


def test_train_orders_by_frequency_then_code_point() -> None:
    assert SymbolTokenizer.train(["b a", "c b", "", "a b"]).symbols == ("b", "a", "c")


@pytest.mark.parametrize(
    ("symbols", "message"),
    [
        ([], "needs at least one symbol"),
        (["A", "A"], "A symbol must occur only once. Received more than once: 'A'. Remove"),
        (["A B"], "without white space. Received: 'A B'"),
        (["A\u00a0"], "without white space"),
        ([""], "A symbol is a non-empty text"),
    ],
)
def test_unusable_symbols(symbols: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SymbolTokenizer(symbols)


def test_train_on_blank_texts() -> None:
    with pytest.raises(ValueError, match=r"needs at least one symbol. Received: none. Pass text that is not blank"):
        SymbolTokenizer.train(["", " "])
