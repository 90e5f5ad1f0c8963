"""A process that was forked from one with a model says so, where it would wait for ever."""

import multiprocessing
import os
import re

import pytest

from kformer.inference import Model
from kformer.tasks.translator import Translator

pytestmark = pytest.mark.tensorflow_only

SENTENCE = r'after a model had been loaded there.*get_context\("spawn"\), or load the first model in'


def said_by_child(task):
    """The error that a task raises in a forked process."""
    ours, theirs = multiprocessing.Pipe()

    def run():
        try:
            theirs.send(task())
        except RuntimeError as error:
            theirs.send(str(error))

    child = multiprocessing.get_context("fork").Process(target=run)
    child.start()
    answered = ours.poll(30)
    child.kill()
    child.join()
    assert answered, "the child is still waiting after 30 s"
    return ours.recv()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:.*fork:RuntimeWarning")
def test_python_and_the_c_api_refuse_to_compute_in_a_forked_process(numbers_translator, numbers_run, numbers_export):
    numbers_translator("one")
    translate = Model(numbers_export).load()
    for task in (
        lambda: numbers_translator("one two"),
        lambda: numbers_translator.sample("one two", seed=1),
        lambda: numbers_translator.score(["one"], ["uno"]),
        lambda: Translator.from_run(numbers_run),
        lambda: translate([b"one two"]),
        lambda: Model(numbers_export).load(),
    ):
        assert re.search(SENTENCE, said_by_child(task))
    assert re.search(f"forked from process {os.getpid()} ", said_by_child(lambda: numbers_translator("one two")))
    assert numbers_translator("one two") == "dos uno"
