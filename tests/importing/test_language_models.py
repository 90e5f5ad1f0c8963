"""Language models of Hugging Face: small ones, and what transformers answered with them."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from importing.examples import FOLDER, TOLERANCE, Example

from benchmarks.bridges.imported_exports import continued
from kformer.importing.run import import_model
from kformer.tokenizers import load_tokenizer, load_tokenizers, save_tokenizer

pytestmark = pytest.mark.tensorflow_only
NEW_TOKENS = 20


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def example(request, tmp_path_factory):
    return Example(request.param, tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def tokenizer(example):
    return load_tokenizers(example.run.tokenizer_folder)[0]


def read(tokenizer, texts):
    """The ids that a model reads of texts."""
    return tokenizer.begun(tokenizer.tokenize(texts)).to_list()


def test_texts_have_the_same_ids(example, tokenizer):
    lines = example.expected["lines"]
    ids = example.expected["ids"]
    assert read(tokenizer, lines) == ids
    assert [ids_of for line in lines[:9] for ids_of in read(tokenizer, [line])] == ids[:9]


def test_ids_become_the_same_texts(example, tokenizer):
    ids = tokenizer.tokenize(example.expected["lines"])
    assert [text.decode() for text in tokenizer.detokenize(ids).numpy()] == example.expected["decoded"]


def test_a_saved_tokenizer_is_the_same(example, tokenizer, tmp_path):
    save_tokenizer(tokenizer, tmp_path / "tokenizer")
    again = load_tokenizer(tmp_path / "tokenizer")
    assert again.has_start == tokenizer.has_start
    assert read(again, example.expected["lines"]) == example.expected["ids"]


def test_logits_are_the_same(example):
    rows = example.expected["ids"][-len(example.expected["logits"]) :]
    for ids, logits in zip(rows, example.expected["logits"], strict=True):
        np.testing.assert_allclose(example.model({"target_in": np.array([ids[:6]])})[0], logits, atol=TOLERANCE)


def test_texts_have_the_same_probabilities(example):
    found = example.language_model().score(example.expected["lines"])
    expected = np.array(example.expected["log_probabilities"])
    np.testing.assert_allclose(found["log_probability"] / found["tokens"], expected / found["tokens"], atol=TOLERANCE)
    assert found["tokens"].tolist() == list(map(len, example.expected["ids"]))


def test_greedy_search_goes_on_in_the_same_way(example, tokenizer):
    model = example.language_model(max_extra_length=NEW_TOKENS)
    assert model(example.expected["prompts"]) == continued(
        tokenizer, example.expected["prompts"], example.expected["greedy"]
    )


def test_beam_search_goes_on_in_the_same_way(example, tokenizer):
    model = example.language_model(max_extra_length=NEW_TOKENS, beam_size=4)
    found = model.function(tf.constant(example.expected["prompts"]))
    assert [text.decode() for text in found["text"].numpy()] == continued(
        tokenizer, example.expected["prompts"], example.expected["beam"]
    )
    np.testing.assert_allclose(found["score"], example.expected["beam_scores"], atol=TOLERANCE)


def test_a_prompt_has_the_same_continuation_alone_and_among_others(example):
    model = example.language_model(max_extra_length=NEW_TOKENS)
    prompts = [*example.expected["prompts"][30:33], ""]
    assert model(prompts) == [model(prompt) for prompt in prompts]


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("gpt2", "scale_attn_weights", False),
        ("gpt2", "scale_attn_by_inverse_layer_idx", True),
        ("gpt2", "reorder_and_upcast_attn", True),
        ("gpt2", "activation_function", "mish"),
        ("llama", "attention_bias", True),
        ("llama", "hidden_act", "gelu"),
        ("llama", "rope_scaling", {"rope_type": "llama3", "factor": 8.0}),
        ("llama", "rope_parameters", {"rope_type": "default", "partial_rotary_factor": 0.5}),
    ],
)
def test_what_cannot_be_represented_is_refused_by_its_name(tmp_path, name, field, value):
    folder = shutil.copytree(FOLDER / name, tmp_path / "folder")
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    with pytest.raises(ValueError, match=f"{field} in .*config.json"):
        import_model(folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("field", ["add_prefix_space", "add_eos_token"])
def test_texts_that_llama_reads_in_another_way_are_refused(tmp_path, field):
    folder = shutil.copytree(FOLDER / "llama", tmp_path / "folder")
    (folder / "tokenizer_config.json").write_text(json.dumps({field: field == "add_eos_token"}))
    with pytest.raises(ValueError, match=f"{field} in .*tokenizer_config.json"):
        import_model(folder, tmp_path / "run")


@pytest.mark.parametrize("end", [[2, 7], 7])
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_search_that_ends_with_other_tokens_than_the_model_is_refused(tmp_path, name, end):
    folder = shutil.copytree(FOLDER / name, tmp_path / "folder")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": end}))
    with pytest.raises(ValueError, match=r"eos_token_id in .*generation_config.json is .*, and in .*config.json"):
        import_model(folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("said", "has_start"), [({}, True), ({"add_bos_token": False}, False), (None, True)])
def test_a_text_begins_with_the_start_token_unless_the_tokenizer_says_otherwise(tmp_path, said, has_start):
    folder = shutil.copytree(FOLDER / "llama", tmp_path / "folder")
    path = folder / "tokenizer_config.json"
    path.unlink() if said is None else path.write_text(json.dumps(said))
    tokenizer, _ = load_tokenizers(import_model(folder, tmp_path / "run").tokenizer_folder)
    [ids] = read(tokenizer, ["one"])
    assert (ids[0] == tokenizer.start_id) == has_start


def test_llama_needs_a_sentencepiece_model(tmp_path):
    folder = shutil.copytree(FOLDER / "llama", tmp_path / "folder")
    (folder / "tokenizer.model").unlink()
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.model is missing.*no tokenizer\.json"):
        import_model(folder, tmp_path / "run")
