"""BERT models of Hugging Face: small ones, and what transformers answered with them."""

import json
import shutil

import keras
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
from importing.examples import FOLDER, TOLERANCE, Example

import kformer
from kformer.config import TrainingConfig
from kformer.data import Corpus, load_corpus
from kformer.importing.run import import_model
from kformer.models.building import build_model
from kformer.runs.weights import load_weights
from kformer.tasks.classify import Classifier
from kformer.tasks.encoder_inputs import encode_texts
from kformer.tasks.tag import Tagger
from kformer.tokenizers import SymbolTokenizer, load_tokenizers
from kformer.training.first_weights import load_first_weights

pytestmark = pytest.mark.tensorflow_only


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return Example("bert", tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    return Example("bert_classifier", tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    return Example("bert_tagger", tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("name", ["bert", "tagger"])
def test_texts_have_the_same_ids(name, request):
    """Without upper case and accents, and with them."""
    example = request.getfixturevalue(name)
    source, _ = load_tokenizers(example.run.tokenizer_folder)
    found = source.tokenize(example.expected["lines"]).to_list()
    assert [[source.start_id, *ids, source.end_id] for ids in found] == example.expected["ids"]
    assert len(found) == 200


def test_pairs_of_texts_have_the_same_ids(bert):
    source, _ = load_tokenizers(bert.run.tokenizer_folder)
    pairs = tf.constant(["\t".join(pair) for pair in bert.expected["pairs"]])
    assert encode_texts(pairs, source).to_list() == bert.expected["pair_ids"]


def test_logits_of_the_masked_language_model_are_the_same(bert):
    """Of texts with a hidden token, and of pairs, whose second text has other segments."""
    rows = [*bert.expected["pair_ids"], *bert.expected["masked"]]
    assert load_tokenizers(bert.run.tokenizer_folder)[0].mask_id in rows[-1]
    for ids, logits in zip(rows, bert.expected["logits"], strict=True):
        found = np.asarray(bert.model({"source": np.array([ids])}))[..., :: bert.expected["every"]]
        np.testing.assert_allclose(found, logits, atol=TOLERANCE)


def test_a_classifier_gives_the_same_labels(classifier):
    """The weights are in 16 bits, and the activation has a tanh. A label's blank is written as "_"."""
    predictor = Classifier.from_run(classifier.run.path)
    lines = classifier.expected["lines"]
    assert predictor.labels == ("negative", "5_stars", "neutral")
    assert predictor(lines) == [label.replace(" ", "_") for label in classifier.expected["labels"]]
    assert len({*predictor(lines)}) > 1
    np.testing.assert_allclose(predictor.probabilities(lines), classifier.expected["probabilities"], atol=TOLERANCE)


def test_a_tagger_gives_the_same_tags(tagger):
    predictor = Tagger.from_run(tagger.run.path)
    assert predictor(tagger.expected["texts"]) == tagger.expected["tags"]
    assert len({*" ".join(tagger.expected["tags"]).split()}) > 2


def first_weights(run, task):
    """A model of another task that begins with the weights of an imported one, with random ones in other places."""
    target = SymbolTokenizer(["a", "b", "c"])
    config = run.transformer_config().replace(task=task, target_vocab_size=target.vocab_size, embedding_tying="none")
    model = build_model(config)
    load_first_weights(run, model, task, target)
    return model


def test_a_classifier_begins_with_the_pooler_of_the_model(bert):
    model = first_weights(bert.run, "classify")
    pooler = keras.Model(model.inputs, model.get_layer("pooler").output)
    for ids, pooled in zip(bert.expected["pair_ids"], bert.expected["pooled"], strict=True):
        found = np.asarray(pooler({"source": np.array([ids])}))[0, 0]
        np.testing.assert_allclose(found, pooled, atol=TOLERANCE)
    assert model.get_layer("pooler").trainable_weights


@pytest.mark.slow
@pytest.mark.in_ci
def test_fine_tuning_begins_with_the_imported_weights(bert, tmp_path):
    books = load_corpus("bible-books")
    corpus = Corpus("books", list(books.train[:300]), list(books.valid[:20]), [])
    training = TrainingConfig(
        max_steps=2, warmup_steps=1, learning_rate_scale=1e-6, tokens_per_batch=512, validation_steps=2, max_length=128
    )
    transformer = bert.run.transformer_config().replace(task="classify")
    kformer.train(corpus, tmp_path / "run", transformer, training, initialize_from=bert.run.path)
    tuned = Classifier.from_run(tmp_path / "run")
    begun = first_weights(bert.run, "classify")
    assert tuned.config.end_id == bert.run.transformer_config().end_id
    for name in ("source_embedding", "segments", "encoder", "pooler"):
        for one, other in zip(tuned.model.get_layer(name).weights, begun.get_layer(name).weights, strict=True):
            np.testing.assert_allclose(np.asarray(one), np.asarray(other), atol=1e-4, err_msg=one.path)


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(FOLDER / "bert", tmp_path / "folder")


def edit(folder, name="config.json", **fields):
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def edit_tensors(folder, change):
    """Writes the file of weights again, with changed names and tensors."""
    path = folder / "model.safetensors"
    safetensors.numpy.save_file(change(safetensors.numpy.load_file(path)), path)


def logits(run, ids):
    model = build_model(run.transformer_config())
    load_weights(run, model)
    return np.asarray(model({"source": np.array([ids])}))


def test_names_of_older_files_are_known(bert, folder, tmp_path):
    def as_of_old(tensors):
        names = {name: name.replace("LayerNorm.weight", "LayerNorm.gamma") for name in tensors}
        names = {name: new.replace("LayerNorm.bias", "LayerNorm.beta") for name, new in names.items()}
        return {new: tensors[name] for name, new in names.items()}

    edit_tensors(folder, as_of_old)
    ids = bert.expected["pair_ids"][0]
    np.testing.assert_array_equal(logits(import_model(folder, tmp_path / "run"), ids), logits(bert.run, ids))


def test_an_encoder_alone_gives_first_weights(bert, folder, tmp_path):
    def encoder_alone(tensors):
        return {name.removeprefix("bert."): tensor for name, tensor in tensors.items() if name.startswith("bert.")}

    edit_tensors(folder, encoder_alone)
    edit(folder, architectures=["BertModel"])
    models = [first_weights(run, "classify") for run in (import_model(folder, tmp_path / "run"), bert.run)]
    for name in ("source_embedding", "segments", "encoder", "pooler"):
        for one, other in zip(*(model.get_layer(name).weights for model in models), strict=True):
            np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def test_a_softmax_of_its_own_is_found_by_its_numbers(folder, tmp_path):
    """The configuration says that it is tied."""
    words, softmax = "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"
    edit_tensors(folder, lambda tensors: {**tensors, softmax: tensors[words]})
    import_model(folder, tmp_path / "tied")
    edit_tensors(folder, lambda tensors: {**tensors, softmax: 2 * tensors[words]})
    with pytest.raises(ValueError, match=f"The tensor {softmax} differs from {words}.*as a BertModel"):
        import_model(folder, tmp_path / "run")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("position_embedding_type", "relative_key"),
        ("is_decoder", True),
        ("add_cross_attention", True),
        ("hidden_act", "mish"),
        ("architectures", ["BertForQuestionAnswering"]),
        ("num_hidden_layers", None),
    ],
)
def test_what_cannot_be_represented_is_refused_by_its_name(folder, tmp_path, field, value):
    edit(folder, **{field: value})
    with pytest.raises(ValueError, match=f"{field} in .*config.json"):
        import_model(folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("problem_type", "regression"),
        ("problem_type", "multi_label_classification"),
        ("id2label", {"0": "yes", "1": "yes", "2": "no"}),
        ("id2label", {"0": "yes", "1": "no"}),
    ],
)
def test_other_classifiers_are_refused(tmp_path, field, value):
    folder = shutil.copytree(FOLDER / "bert_classifier", tmp_path / "folder")
    edit(folder, **{field: value})
    with pytest.raises(ValueError, match=f"{field} in .*config.json"):
        import_model(folder, tmp_path / "run")


def test_a_tagger_needs_no_pooler_and_its_file_may_hold_one(tagger, bert, tmp_path):
    """As that of a tagger that began with an encoder: transformers passes over it."""
    folder = shutil.copytree(FOLDER / "bert_tagger", tmp_path / "folder")
    size = tagger.run.transformer_config().d_model
    pooler = {"weight": np.ones((size, size), "float32"), "bias": np.ones(size, "float32")}
    edit_tensors(folder, lambda tensors: tensors | {f"bert.pooler.dense.{name}": one for name, one in pooler.items()})
    ids = bert.expected["pair_ids"][0]
    np.testing.assert_array_equal(logits(import_model(folder, tmp_path / "run"), ids), logits(tagger.run, ids))


def test_a_number_is_no_label(tmp_path):
    folder = shutil.copytree(FOLDER / "bert_classifier", tmp_path / "folder")
    edit_tensors(folder, lambda tensors: {name: t[:1] if "classifier" in name else t for name, t in tensors.items()})
    with pytest.raises(ValueError, match=r"one output: it gives a number \(problem_type=regression\)"):
        import_model(folder, tmp_path / "run")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tokenizer_class": "BertJapaneseTokenizer"}, "tokenizer_class in .*tokenizer_config.json"),
        ({"do_basic_tokenize": False}, "do_basic_tokenize in .*tokenizer_config.json"),
        ({"cls_token": "<s>"}, "no piece '<s>', the cls_token of .*tokenizer_config.json"),
    ],
)
def test_other_tokenizers_are_refused(folder, tmp_path, fields, message):
    edit(folder, "tokenizer_config.json", **fields)
    with pytest.raises(ValueError, match=message):
        import_model(folder, tmp_path / "run")


def test_a_vocabulary_of_another_model_is_refused(folder, tmp_path):
    edit(folder, vocab_size=300)
    with pytest.raises(ValueError, match=r"vocab.txt has ids up to \d+. Expected: ids below vocab_size=300"):
        import_model(folder, tmp_path / "run")


def test_the_vocabulary_may_be_in_tokenizer_json(bert, folder, tmp_path):
    lines = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]
    (folder / "vocab.txt").unlink()
    model = {"type": "WordPiece", "vocab": {piece: number for number, piece in enumerate(lines)}}
    (folder / "tokenizer.json").write_text(json.dumps({"model": model}))
    run = import_model(folder, tmp_path / "run")
    source, _ = load_tokenizers(run.tokenizer_folder)
    assert source.pieces == load_tokenizers(bert.run.tokenizer_folder)[0].pieces
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"tokenizer_config.json is missing. Copy the whole folder"):
        import_model(folder, tmp_path / "other")
