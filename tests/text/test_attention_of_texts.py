"""Attention weights and beam trees of real texts, over a model that turns number words around."""

import numpy as np
import pytest
import tensorflow as tf

from kformer.config import DecodingConfig, TransformerConfig
from kformer.models import build_model
from kformer.tasks.translator import Translator
from kformer.text.attention_maps import END, START, read_detailed
from kformer.tokenizers import SymbolTokenizer

pytestmark = pytest.mark.tensorflow_only
TEXT = "one two three"


def test_every_attention_has_its_tokens_and_weights_that_sum_to_one(numbers_translator):
    encoder, decoder, cross = numbers_translator.attention(TEXT)
    assert "".join(encoder.queries) == "onetwothree" + END
    assert encoder.keys == cross.keys == encoder.queries
    assert "".join(decoder.queries) == "".join(cross.queries) == "tresdosuno" + END
    assert decoder.keys == (START, *decoder.queries[:-1])
    for one in (encoder, decoder, cross):
        assert one.weights.shape == (1, 4, len(one.queries), len(one.keys))
        np.testing.assert_allclose(one.weights.sum(axis=-1), 1, atol=1e-5)
    assert not np.triu(decoder.weights[0, 0], 1).any()  # what has not been written yet cannot be read


@pytest.mark.slow
@pytest.mark.in_ci
def test_the_alignment_is_that_of_the_detailed_translation(numbers_translator):
    detailed = read_detailed(numbers_translator.translate_detailed(tf.constant([TEXT, "six"])))
    cross = numbers_translator.attention(TEXT).cross
    assert detailed.queries == cross.queries
    assert (*detailed.keys, END) == cross.keys
    np.testing.assert_allclose(detailed.of(), cross.of()[:, :-1], atol=1e-5)


def test_the_decoder_reads_the_translation_that_is_given(numbers_translator):
    cross = numbers_translator.attention(TEXT, "uno").cross
    assert "".join(cross.queries) == "uno" + END


def test_the_best_way_through_a_beam_tree_is_the_translation(numbers_translator):
    tree = numbers_translator.beam_tree(TEXT)
    path = tree.path(tree.best)
    assert "".join(tree.tokens[number] for number in path) == "tresdosuno" + END
    found = numbers_translator.translate(tf.constant([TEXT]))
    assert tree.extensions[path[-1]].score == pytest.approx(float(found["score"][0]), abs=1e-4)
    assert (tree.beam_size, tree.length_penalty) == (4, 0.6)
    narrow = numbers_translator.beam_tree(TEXT, beam_size=2, length_penalty=0.0)
    assert max(sum(one.length == 2 for one in narrow.extensions), 0) <= 4  # two candidates for each beam
    assert all(one.score == one.log_prob for one in narrow.extensions)


@pytest.mark.parametrize("method", ["attention", "beam_tree"])
@pytest.mark.parametrize(("text", "tokens"), [("  ", 0), ("one " * 300, "300|[0-9]{3,}")])
def test_a_text_that_cannot_be_read_at_once_is_refused(numbers_translator, method, text, tokens):
    with pytest.raises(
        ValueError, match=f"from 1 to [0-9]+ tokens.* Received: ({tokens}) tokens. Pass a single sentence"
    ):
        getattr(numbers_translator, method)(text)


def test_of_a_model_with_learned_positions_a_translation_leaves_room_for_the_start():
    """Five positions: the start and four letters, which the decoder reads to write four letters and the end."""
    letters = SymbolTokenizer(list("abcdef"))
    config = TransformerConfig.of_size("tiny").replace(
        source_vocab_size=letters.vocab_size,
        target_vocab_size=letters.vocab_size,
        positional_encoding="learned",
        max_length=5,
    )
    translator = Translator(build_model(config), config, letters, letters)
    assert translator.attention("a b", "a b c d").cross.queries == ("a", "b", "c", "d", END)
    with pytest.raises(ValueError, match="The translation must have from 1 to 4 tokens.*Received: 5 tokens"):
        translator.attention("a b", "a b c d e")


def test_a_beam_of_one_has_no_tree(numbers_translator):
    with pytest.raises(ValueError, match="beam_size=1 is greedy search, which has no beam tree"):
        numbers_translator.beam_tree(TEXT, beam_size=1)


def test_a_search_by_other_rules_has_no_tree(numbers_run):
    translator = Translator.from_run(numbers_run, DecodingConfig(beam_rules="opennmt"))
    with pytest.raises(ValueError, match='by the rules of opennmt.*Load the model with .*beam_rules="paper"'):
        translator.beam_tree(TEXT)
