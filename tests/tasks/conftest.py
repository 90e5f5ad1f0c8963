"""Tiny runs of every task, each trained once, on number words."""

import pytest
import toy

from kformer.data import Corpus
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
def run_of(tmp_path_factory):
    """The folder of a trained run, by the name of its task."""
    runs = {}

    def find(task):
        if task not in runs:
            runs[task] = tmp_path_factory.mktemp("runs") / task
            train(corpus_of(task), runs[task], toy.TRANSFORMER.replace(task=task), TRAINING)
        return runs[task]

    return find
