"""Runs that begin with embeddings that another program has trained."""

import io
import re

import keras
import numpy as np
import pytest
import rich.console
import toy
from model_weights import arrays_of

from kformer.config import TrainingConfig
from kformer.data import Corpus
from kformer.models import build_model, build_transformer
from kformer.runs.folder import RunFolder
from kformer.runs.weights import load_weights
from kformer.training.new_run import start_run
from kformer.training.pretrained_embeddings import assign_embeddings, freeze_embeddings
from kformer.training.resumed_run import resume_run
from kformer.training.train import train

pytestmark = pytest.mark.tensorflow_only
E = 5
# All texts have three words, so that all batches have one shape and TensorFlow traces a training step once.
SHORT = toy.TRAINING.replace(
    tokenizer="words", tokens_per_batch=64, max_length=8, max_steps=4, validation_steps=2, ema_decay=0.5
)
TRANSFORMER = toy.TRANSFORMER.replace(dropout_rate=0.1)
VECTORS = dict(zip(["one", "two", "three", "uno", "dos"], np.random.default_rng(3).normal(size=(5, E)), strict=True))


def quiet():
    return rich.console.Console(file=io.StringIO(), width=200)


def three_words():
    parts = {
        part: [pair for pair in getattr(toy.corpus(), part) if len(pair[0].split()) == 3] for part in ("train", "valid")
    }
    return Corpus(name="three words", test=[], **parts)


@pytest.fixture
def vectors(tmp_path):
    """A file of GloVe's format. The words four, five, six, tres, cuatro, cinco and seis are missing."""
    path = tmp_path / "vectors.txt"
    path.write_text("".join(f"{word} {' '.join(map(str, vector))}\n" for word, vector in VECTORS.items()))
    return str(path)


def assert_begins_with(matrix, random, vocabulary, expected):
    """The rows of the words are their vectors times one number, which makes their components as large as 0.02."""
    rows = [4 + vocabulary.index(word) for word in expected]
    vectors = np.stack([VECTORS[word] for word in expected])
    np.testing.assert_allclose(matrix[rows], vectors * 0.02 / np.sqrt(np.mean(vectors**2)), rtol=1e-4)
    np.testing.assert_array_equal(np.delete(matrix, rows, axis=0), np.delete(random, rows, axis=0))


def test_one_matrix_for_both_sides_begins_with_the_vectors_of_both(vectors, tmp_path):
    run, training = RunFolder(tmp_path / "run"), SHORT.replace(source_embeddings=vectors, target_embeddings=vectors)
    setup = start_run(run, three_words(), TRANSFORMER, training)
    assert (setup.transformer.embedding_dim, setup.transformer.embedding_tying) == (E, "all")
    model = build_transformer(setup.transformer)
    before = arrays_of(model)
    assign_embeddings(run, model, training)
    freeze_embeddings(run, model, training)  # nothing is to be frozen
    after, name = arrays_of(model), "shared_embedding/embeddings"
    assert_begins_with(after.pop(name), before.pop(name), list(setup.tokenizers[0].symbols), list(VECTORS))
    for path, weight in after.items():
        np.testing.assert_array_equal(weight, before[path])
    assert not model.non_trainable_weights
    report, share = run.corpus()["source_embeddings"].split("; ")
    assert report == "5 of 12 words have a vector, 7 are missing"
    # Six words in the source and six in the target are about as frequent: 7 of 12 are 58 %.
    assert re.fullmatch(r"(57|58|59)\.\d\d% of the tokens have none", share)


def test_a_word_with_two_vectors_in_one_matrix_begins_with_that_of_the_source(tmp_path):
    up, down = " ".join("12345"), " ".join("54321")
    (tmp_path / "source").write_text(f"one {up}\n")
    (tmp_path / "target").write_text(f"one {down}\nuno {down}\n")
    files = {f"{side}_embeddings": str(tmp_path / side) for side in ("source", "target")}
    run, training = RunFolder(tmp_path / "run"), SHORT.replace(**files)
    setup = start_run(run, three_words(), TRANSFORMER, training)
    model = build_transformer(setup.transformer)
    assign_embeddings(run, model, training)
    symbols, matrix = list(setup.tokenizers[0].symbols), arrays_of(model)["shared_embedding/embeddings"]
    one, uno = (matrix[4 + symbols.index(word)] for word in ("one", "uno"))
    np.testing.assert_allclose(one, uno[::-1], rtol=1e-6)
    assert one[0] < one[-1]


def test_two_vocabularies_begin_with_the_vectors_of_their_own_files(vectors, tmp_path):
    """Vectors as long as the model's are no reason for a projection."""
    size = TRANSFORMER.d_model
    for side, word in (("source", "one"), ("target", "dos")):
        (tmp_path / side).write_text(f"{word} {' '.join(['1'] * size)}\n")
    files = {f"{side}_embeddings": str(tmp_path / side) for side in ("source", "target")}
    run, training = RunFolder(tmp_path / "run"), SHORT.replace(shared_vocabulary=False, **files)
    setup = start_run(run, three_words(), TRANSFORMER.replace(embedding_tying="none"), training)
    assert setup.transformer.embedding_dim is None
    model = build_transformer(setup.transformer)
    assign_embeddings(run, model, training)
    for side, word, tokenizer in zip(("source", "target"), ("one", "dos"), setup.tokenizers, strict=True):
        matrix = arrays_of(model)[f"{side}_embedding/embeddings"]
        (begun,) = np.flatnonzero(np.ptp(matrix, axis=1) == 0)
        assert begun == 4 + tokenizer.symbols.index(word)
        # A sixth of the words has a vector, and so have about as many tokens.
        assert re.fullmatch(
            r"1 of 6 words have a vector, 5 are missing; 8[2-4]\.\d\d% .*", run.corpus()[f"{side}_embeddings"]
        )


def test_a_resumed_run_may_leave_the_size_of_its_vectors_open_but_not_change_it(vectors, tmp_path):
    run, training = RunFolder(tmp_path / "run"), SHORT.replace(source_embeddings=vectors, target_embeddings=vectors)
    start_run(run, three_words(), TRANSFORMER, training)
    resume_run(run, three_words(), TRANSFORMER, training)
    with pytest.raises(ValueError, match=rf"embedding_dim={E + 1} \(the run has {E}\)"):
        resume_run(run, three_words(), TRANSFORMER.replace(embedding_dim=E + 1), training)


@pytest.mark.slow
@pytest.mark.in_ci
@pytest.mark.usefixtures("untraced")
def test_frozen_vectors_stay_and_their_file_is_read_only_when_the_run_begins(vectors, tmp_path):
    """Killed before its first checkpoint, stopped and resumed: the end is the same, bit for bit."""
    training = SHORT.replace(shared_vocabulary=False, target_embeddings=vectors, train_embeddings=False)
    config = TRANSFORMER.replace(embedding_tying="none")
    undisturbed = train(three_words(), tmp_path / "undisturbed", config, training, console=quiet()).run
    run, console = RunFolder(tmp_path / "run"), quiet()
    setup = start_run(run, three_words(), config, training)
    (tmp_path / "vectors.txt").unlink()
    for steps in (2, 4):
        train(three_words(), run.path, config, training.replace(max_steps=steps), resume=True, console=console)
    assert "target_embeddings: 2 of 6 words have a vector, 4 are missing; 6" in console.file.getvalue()
    with np.load(run.checkpoint_file) as ours, np.load(undisturbed.checkpoint_file) as theirs:
        assert ours.files == theirs.files
        for name in set(ours.files) - {"state.json"}:
            np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)

    keras.utils.set_random_seed(training.seed)
    model = build_transformer(setup.transformer)
    before = arrays_of(model)
    load_weights(run, model)
    after, name = arrays_of(model), "target_embedding/embeddings"
    assert_begins_with(after.pop(name), before.pop(name), list(setup.tokenizers[1].symbols), ["uno", "dos"])
    assert {path for path in after if np.array_equal(after[path], before[path])} == set()


@pytest.mark.parametrize(
    ("tying", "frozen"),
    [("all", {"shared_embedding"}), ("target", {"source_embedding", "target_embedding"})],
)
def test_a_run_with_initial_weights_can_freeze_their_embeddings(tying, frozen, tmp_path):
    run, config = RunFolder(tmp_path), TRANSFORMER.replace(embedding_tying=tying)
    run.initial.path.mkdir()
    config.save(run.initial.transformer_file)
    model = build_transformer(config)
    freeze_embeddings(run, model, TrainingConfig(train_embeddings=False))
    assert {weight.path for weight in model.non_trainable_weights} == {f"{name}/embeddings" for name in frozen}


@pytest.mark.parametrize("task", ["classify", "tag", "masked-language-model", "language-model"])
def test_the_embeddings_of_a_model_of_any_task_can_be_frozen(task, tmp_path):
    run, config = RunFolder(tmp_path), TRANSFORMER.replace(task=task)
    run.initial.path.mkdir()
    config.save(run.initial.transformer_file)
    model = build_model(config.replace(num_encoder_layers=0) if task == "language-model" else config)
    freeze_embeddings(run, model, TrainingConfig(train_embeddings=False))
    [frozen] = [weight.path for weight in model.non_trainable_weights]
    assert frozen.endswith("_embedding/embeddings")


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        (
            {"target_embeddings": "v2"},
            {"task": "masked-language-model"},
            "target_embeddings is for translators. Received: v2 and",
        ),
        ({"source_embeddings": "gone"}, {}, "There is no file gone"),
        ({"source_embeddings": "bad"}, {}, "Line 2 of bad has 1 number, but 2 are expected"),
        ({"source_embeddings": "v2", "target_embeddings": "v1"}, {}, "must have one size. Received: 2 numbers in v2"),
        ({"source_embeddings": "v2"}, {"embedding_dim": 3}, "have 2 numbers. Received: embedding_dim=3. Leave"),
        ({"source_embeddings": "v2"}, {"task": "language-model"}, "are for models with an encoder. Received: v2"),
        ({"train_embeddings": False}, {}, "Random embeddings must be trained"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(changes, options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in {"v1": "one 1\n", "v2": "one 1 2\n", "bad": "one 1 2\ntwo 1\n"}.items():
        (tmp_path / name).write_text(text)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        train(three_words(), "run", TRANSFORMER.replace(**options), SHORT.replace(**changes), console=quiet())
    assert not RunFolder("run").exists()


def test_the_embeddings_of_initial_weights_are_those_that_the_run_gets(vectors, tmp_path):
    training = SHORT.replace(source_embeddings=vectors)
    with pytest.raises(ValueError, match="has the embeddings of that run. Received: .*vectors.txt as well. Leave out"):
        train(toy.corpus(), tmp_path / "run", training=training, initialize_from="cmudict", console=quiet())


def test_paths_are_texts():
    with pytest.raises(ValueError, match="source_embeddings must be str or NoneType"):
        TrainingConfig(source_embeddings=3)
