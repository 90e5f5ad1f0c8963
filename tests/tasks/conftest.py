"""Tiny runs of every task, each trained once, on number words."""

import pytest
import toy

from kformer.data import Corpus
from kformer.export.saved_model import export_saved_model
from kformer.tasks import Tagger
from kformer.training.train import train

TRAINING = toy.TRAINING.replace(max_steps=120, validation_steps=60)


def parity(text):
    return "even" if len(text.split()) % 2 == 0 else "odd"


def lengths(text):
    return " ".join(f"n{len(word)}" for word in text.split())


def nothing(text):
    return ""


TARGETS = {"classify": parity, "tag": lengths, "language-model": nothing, "masked-language-model": nothing}


def corpus_of(task):
    """The texts of the toy language pair, with the targets of a task."""
    numbers = toy.corpus()
    parts = ([(source, TARGETS[task](source)) for source, _ in part] for part in (numbers.train, numbers.valid))
    return Corpus("numbers", *parts, test=[(source, TARGETS[task](source)) for source, _ in numbers.test])


@pytest.fixture(scope="session")
def run_of(made_once):
    """The folder of a trained run, by the name of its task."""

    def find(task):
        sizes = toy.TRANSFORMER.replace(task=task)
        return made_once(f"run-{task}", lambda folder: train(corpus_of(task), folder, sizes, TRAINING))

    return find


@pytest.fixture(scope="session")
def tagger_export(made_once, run_of):
    """The base folder of an export of the tagger."""
    return made_once("export-tag", lambda folder: export_saved_model(Tagger.from_run(run_of("tag")), folder))
