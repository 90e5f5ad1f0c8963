"""Texts that begin with tags, over a model that turns number words around: here "six" and "five" are tags.

What the model gives with tags is what it gives without for texts in which the words stand before each part.
"""

import json
import urllib.request

import numpy as np
import pytest
import tensorflow as tf
from servers import running
from typer.testing import CliRunner

from kformer.cli.main import app
from kformer.config import DecodingConfig
from kformer.export.saved_model import export_saved_model
from kformer.runtime.export_description import description
from kformer.serving.model_settings import ModelSettings
from kformer.serving.settings import ServerSettings
from kformer.tasks.translator import Translator
from kformer.text.tags import known_tags
from kformer.tokenizers import SymbolTokenizer

pytestmark = pytest.mark.tensorflow_only

SEARCH = DecodingConfig(beam_size=2, max_source_length=6, max_sentence_length=9)


def _with_search(translator, **changes):
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    return Translator(translator.model, translator.config, *tokenizers, SEARCH.replace(**changes))


@pytest.fixture(scope="module")
def plain(numbers_translator):
    return _with_search(numbers_translator)


@pytest.fixture(scope="module")
def tagged(numbers_translator):
    return _with_search(numbers_translator, tags="six five")


@pytest.fixture(scope="module")
def untagged(numbers_translator):
    """It learned texts without a tag, too."""
    return _with_search(numbers_translator, tags="six five", untagged=True)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("five one two", "five one two"),
        ("five one\ntwo three", "five one\nfive two three"),
        (" \n five  one \n\n two", "five one \n\n five two"),
        ("five\tone", "five one"),
        ("one two", "six one two"),  # the first tag is that of texts without one
        ("one\ntwo", "six one\nsix two"),
        ("six five one", "six five one"),
        ("one five", "six one five"),
        ("fives", "six fives"),
        ("five one\nsix two", "five one\nsix two"),  # each line says what it wants
        ("five", ""),
        ("five \n", ""),
        ("", ""),
        (" ", ""),
    ],
)
def test_each_line_of_a_text_has_its_tag(plain, tagged, text, read):
    assert tagged(text) == plain(read)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("one two", "one two"),
        ("one\n\ntwo", "one\n\ntwo"),
        ("one five", "one five"),
        ("five one\ntwo", "five one\nfive two"),
        (" six\tone", "six one"),
        ("five", ""),
        ("", ""),
    ],
)
def test_a_text_without_a_tag_is_read_as_it_is_by_a_model_that_learned_such_texts(plain, untagged, text, read):
    assert untagged(text) == plain(read)


def test_the_parts_of_a_long_line_without_a_tag_have_none(untagged):
    text = "one two three " * 4
    rows = untagged.codec.divide(tf.constant([text])).ids.to_list()
    assert len(rows) > 2
    assert [token for row in rows for token in row] == untagged.source_tokenizer.tokenize([text]).to_list()[0]


def test_texts_with_and_without_tags_may_share_a_batch(plain, untagged):
    assert untagged(["five one", "two", "", "six three"]) == plain(["five one", "two", "", "six three"])
    assert untagged.codec.written(" one ") == "one"


def test_each_part_of_a_long_line_has_the_tag(tagged):
    parts = tagged.codec.divide(tf.constant(["five " + "one two three " * 4]))
    [tag] = tagged.source_tokenizer.tokenize(tf.constant(["five"])).to_list()
    rows = parts.ids.to_list()
    assert len(rows) > 2
    assert all(row[: len(tag)] == tag and len(row) <= tagged.codec.longest_part for row in rows)
    rest = [token for row in rows for token in row[len(tag) :]]
    assert rest == tagged.source_tokenizer.tokenize(tf.constant(["one two three " * 4])).to_list()[0]


def test_texts_of_a_batch_have_their_own_tags(plain, tagged):
    assert tagged(["five one", "two", "", "six three"]) == plain(["five one", "six two", "", "six three"])


def test_bytes_that_are_no_text_are_read_as_before(plain, tagged):
    given = tf.constant([b"five one \xff two"])
    read = tagged.translate(given)["translation"].numpy()
    assert read.tolist() == plain.translate(given)["translation"].numpy().tolist()


def test_ids_are_those_that_training_makes_of_the_text(tagged):
    [ids] = tagged.codec.divide(tf.constant(["five one two"])).ids.to_list()
    assert ids == tagged.source_tokenizer.tokenize(tf.constant(["five one two"])).to_list()[0]
    source, _ = tagged.codec.encode(tf.constant(["one two"]))
    assert (
        source.numpy()[0, :-1].tolist() == tagged.source_tokenizer.tokenize(tf.constant(["six one two"])).to_list()[0]
    )


def test_scores_hypotheses_and_attention_are_of_the_tagged_text(plain, tagged):
    translations = tf.constant(["dos uno"])
    found, expected = tagged.score(["one two"], translations), plain.score(["six one two"], translations)
    np.testing.assert_allclose(found["log_probability"], expected["log_probability"], rtol=1e-5)
    several, others = tagged.translate_n_best(["one two"]), plain.translate_n_best(["six one two"])
    assert several["translation"].numpy().tolist() == others["translation"].numpy().tolist()
    maps, read = tagged.attention("one two"), plain.attention("six one two")
    assert maps.cross.keys == read.cross.keys
    np.testing.assert_allclose(maps.cross.weights, read.cross.weights, atol=1e-6)
    assert tagged.beam_tree("one two").tokens == plain.beam_tree("six one two").tokens


def test_tokens_stand_in_the_text_with_its_tag(plain, tagged):
    text = "five one\n  two"
    found = {name: values.numpy()[0] for name, values in tagged.translate_detailed([text]).items()}
    assert found["translation"] == plain("five one\n  five two").encode()
    begin, end = found["source_start"].tolist(), found["source_end"].tolist()
    words = [text.encode()[start:stop].decode() for start, stop in zip(begin, end, strict=True)]
    assert "".join("".join(words).split()) == "onetwo"
    tag = len(tagged.source_tokenizer.tokenize(tf.constant(["five"])).to_list()[0])
    assert words[:tag] == [""] * tag
    assert begin[:tag] == [5] * tag  # behind the tag and its blank
    assert found["source_length"] == len(found["source_token"])


def test_tokens_behind_a_word_that_is_longer_than_a_part_stay_in_their_places(tagged):
    """A word of letters that no piece joins makes several parts, and each of them begins with the tag."""
    text = "five one " + "qxzvj" * 4 + " two\nthree"
    found = {name: values.numpy()[0] for name, values in tagged.translate_detailed([text]).items()}
    parts = tagged.codec.divide(tf.constant([text])).ids
    assert len(parts.to_list()) > 4
    assert found["source_token"].tolist() == [
        text.encode()[start:end] for start, end in zip(found["source_start"], found["source_end"], strict=True)
    ]
    assert found["source_length"] == len(parts.flat_values)
    tag = len(tagged.source_tokenizer.tokenize(tf.constant(["five"])).to_list()[0])
    rows = tf.RaggedTensor.from_row_lengths(found["source_token"], parts.row_lengths())
    assert [b"".join(row[:tag]) for row in rows.to_list()] == [b""] * len(parts.to_list())
    whole = b"".join(b"".join(row) for row in rows.to_list())
    assert b"".join(whole.split()).decode() == "one" + "qxzvj" * 4 + "twothree"
    assert rows.to_list()[-1][tag:] != []
    assert b"".join(rows.to_list()[-1]).strip() == b"three"
    starts = found["source_start"].tolist()
    assert starts == sorted(starts)


@pytest.mark.parametrize("one_for_all", [True, False])
def test_a_request_may_choose_the_tag(plain, tagged, one_for_all):
    texts = ["one", "two\nthree", ""]
    tag = "five" if one_for_all else ["five", "", "six"]
    found = tagged.translate_with_options(tf.constant(texts), tag=tag)["translation"].numpy()
    wanted = ["five one", "five two\nfive three" if one_for_all else "six two\nsix three", ""]
    assert [text.decode() for text in found] == plain(wanted)


def test_a_request_needs_a_tag_that_the_model_has(plain, tagged):
    with pytest.raises(tf.errors.InvalidArgumentError, match="the model knows no other tags than six five. Received:"):
        tagged.translate_with_options(tf.constant(["one"]), tag="four")
    with pytest.raises(tf.errors.InvalidArgumentError, match="tag must be empty, because this model has no tags"):
        plain.translate_with_options(tf.constant(["one"]), tag="five")
    with pytest.raises(tf.errors.InvalidArgumentError, match="tag must have one entry, or one for each text"):
        tagged.translate_with_options(tf.constant(["one"]), tag=["five", "five"])


def test_a_program_learns_the_tags(plain, tagged, untagged):
    assert untagged.known_tags(["", "a"])["tags"].numpy().tolist() == [[b"", b"six", b"five"]] * 2
    assert tagged.known_tags(["", "a"])["tags"].numpy().tolist() == [[b"six", b"five"]] * 2
    assert plain.known_tags(["a"])["tags"].numpy().tolist() == [[]]


def test_signs_of_regular_expressions_are_signs_of_tags():
    tokenizer = SymbolTokenizer(["<2.s>", "a", "(b)"])
    tags = known_tags(DecodingConfig(tags="<2.s> (b) (b)+"), tokenizer, tokenizer, tokenizer.start_id)
    tag, rest = tags.split_whole(tf.constant(["<2xs> a", "<2.s> a", "(b)+ a", "(b)"]))
    assert [one.decode() for one in tag.numpy()] == ["<2.s>", "<2.s>", "(b)+", "(b)"]
    assert [one.decode().strip() for one in rest.numpy()] == ["<2xs> a", "a", "a", ""]


@pytest.mark.slow
@pytest.mark.in_ci
def test_an_export_has_the_tags_and_a_server_knows_them(tmp_path, plain, tagged):
    base = tmp_path / "numbers"
    version = export_saved_model(tagged, base, samples=["one", "five two\none"])
    loaded = tf.saved_model.load(str(version))
    assert {*loaded.signatures} == {"serving_default", "known_tags", "translate_with_options"}
    assert {*description(version)["signatures"]} == {*loaded.signatures}
    expected = plain(["five one\nfive two", "six one"])
    found = loaded.signatures["serving_default"](text=tf.constant(["five one\ntwo", "one"]))
    assert [text.decode() for text in found["translation"].numpy()] == expected
    lines = tmp_path / "lines"
    lines.write_text("one two\n\none five\n")
    wanted = plain(["five one two", "", "five one five"])
    with running(ServerSettings([ModelSettings("numbers", base)], rest_port=0, grpc_port=0)) as server:
        url = f"{server.url}/v1/models/numbers"
        body = json.dumps({"signature_name": "known_tags", "inputs": {"text": [""]}}).encode()
        with urllib.request.urlopen(f"{url}:predict", body) as answer:
            assert json.load(answer) == {"outputs": [["six", "five"]]}  # as the page reads it
        for model in (["--server", url], [str(base)]):
            answer = CliRunner().invoke(app, ["translate", *model, "--tag", "five", "--input", str(lines)])
            assert answer.output.splitlines() == wanted
        refused = CliRunner().invoke(app, ["translate", "--server", url, "--tag", "four", "--input", str(lines)])
        assert "does not take the tag 'four'. It says: " in str(refused.exception)
        assert "the model knows no other tags than six five" in str(refused.exception)
