"""A sixth task, a regression: how many words has a text? It is one description, a model, an objective and an answer."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
import toy
from keras import ops
from typer.testing import CliRunner

from kformer.cli.main import app
from kformer.config import TASKS, TaskKind
from kformer.data import Corpus
from kformer.data.arrangements import Arrangement
from kformer.data.encoding import encode_with, ended
from kformer.layers.dense import Dense
from kformer.models import build_classifier
from kformer.tasks.encoder_inputs import encode_texts, encoded_texts
from kformer.tasks.label_task import LabelPredictor, LabelTask
from kformer.tasks.objective import Objective
from kformer.tokenizers.base import NUM_SPECIAL_IDS
from kformer.training.train import train

KIND = TaskKind(
    "count",
    targets="label",
    layers=("num_encoder_layers",),
    builder=f"{__name__}:build_counter",
    implementation=f"{__name__}:CountTask",
    first_weights=("count", "classify", "masked-language-model"),
    outputs=("words", "score"),
    command=None,
    scored_by="labels",
)


def build_counter(config, dtype=None):
    """The classifier's encoder and pooler, with one number (B, 1) in place of the labels."""
    pooled = build_classifier(config, dtype)
    number = Dense(1, dtype="float32", name="number")(pooled.get_layer("pooler").output[:, 0])
    return keras.Model(pooled.input, number, name="counter")


def squared_errors(counts, found):
    """(B, 1) float32. Rows that only fill a batch have the count -1, and no error."""
    return ops.where(counts < 0, 0.0, ops.square(ops.cast(counts, "float32") - found))


class SquaredError(keras.losses.Loss):
    def call(self, y_true, y_pred):
        return squared_errors(y_true, y_pred)


class Counts(Arrangement):
    """The count itself in place of the id of its label; -1 in rows that only fill a batch."""

    inputs = ("source",)

    def __init__(self, labels):
        self.counts = np.array([-1] * NUM_SPECIAL_IDS + [int(label) for label in labels.symbols], np.int32)

    def arrange(self, rows, random):
        return {"source": rows.source}, self.counts[rows.target[:, :1]]


class Counter(LabelPredictor):
    task = "count"

    def answer(self, text):
        source = encode_texts(text, self.source_tokenizer).to_tensor(self.config.pad_id)
        count = self.model({"source": source}, training=False)[:, 0]
        return {"words": tf.strings.as_string(tf.cast(tf.round(count), tf.int32)), "score": count}

    def calibration_inputs(self, text):
        return {"source": encode_texts(text, self.source_tokenizer).to_tensor(self.config.pad_id)}


class CountTask(LabelTask):
    name = "count"

    def encode(self, pairs, tokenizers, max_length, store=None):
        source, labels = tokenizers

        def encode(pairs):
            return encoded_texts([text for text, _ in pairs], source), ended([label for _, label in pairs], labels)

        return encode_with(encode, pairs, source, labels, max_length, store)

    def arrangement(self, tokenizers, training):
        return Counts(tokenizers[1])

    def objective(self, transformer, training):
        return Objective(SquaredError(), [keras.metrics.MeanMetricWrapper(squared_errors, name="token_loss")])

    def load(self, run, decoding=None):
        return Counter.from_run(run, decoding)


@pytest.fixture
def _sixth_task(monkeypatch):
    monkeypatch.setitem(TASKS, "count", KIND)


@pytest.mark.slow
@pytest.mark.in_ci
@pytest.mark.usefixtures("_sixth_task")
def test_a_sixth_task_is_trained_and_answers_and_is_evaluated(tmp_path):
    numbers = toy.corpus()
    parts = ([(text, str(len(text.split()))) for text, _ in part] for part in (numbers.train, numbers.valid))
    training = toy.TRAINING.replace(max_steps=200, validation_steps=100)
    sizes = toy.TRANSFORMER.replace(task="count")
    report = train(Corpus("counts", *parts, test=[]), tmp_path / "run", sizes, training)
    assert report.best < 0.1  # the mean squared error of the validation
    # Six of the 1,354 texts have one word: too few to learn each of them in 200 updates.
    assert Counter.from_run(report.run.path)(["one two three", "one two"]) == ["3", "2"]
    (tmp_path / "test.tsv").write_text("two one\t2\nsix six six six\t4\nfive five three\t2\n")
    evaluated = invoke("evaluate", report.run.path, "--test", tmp_path / "test.tsv")
    assert json.loads(evaluated.stdout)["accuracy"] == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="has learned the task count. Expected: .* translate. Use it in Python."):
        invoke("translate", report.run.path)


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
