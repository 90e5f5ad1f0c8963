"""The program of the page for Apache Beam: every line once, also after a kill."""

import importlib.util
import json

import pytest
from engine_programs import (
    C_LIBRARY,
    EXAMPLES,
    PAGE,
    PYTHONS_TENSORFLOW,
    is_running,
    kill_and_wait,
    libraries_of,
    numbered_lines,
    processes_below,
    said,
    start,
    wait_until,
)

from benchmarks.common.pages import program_of
from kformer.inference import Model, answer_column

pytestmark = [
    pytest.mark.tensorflow_only,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("apache_beam") is None, reason="Beam is missing: make test-engines"),
]
WORKERS = "sdk_worker_main"


def test_a_killed_program_that_is_started_again_writes_every_line_once(numbers_run, tmp_path):
    lines = numbered_lines(tmp_path, numbers_run)
    program = start(program_of(PAGE, "Apache Beam"), tmp_path)
    seen = {}

    def two_compute():
        workers = [worker for worker in processes_below(program.pid, WORKERS) if is_running(worker)]
        seen.update({worker: libraries_of(worker) for worker in workers})
        return sum(C_LIBRARY in libraries for libraries in seen.values()) == 2

    wait_until(two_compute, program, tmp_path)
    assert not any(PYTHONS_TENSORFLOW in libraries for libraries in seen.values())
    kill_and_wait(program, [*seen])
    assert [*tmp_path.glob("answers*")] == []
    program = start(program_of(PAGE, "Apache Beam"), tmp_path)
    assert program.wait() == 0, said(tmp_path)
    written = "".join(file.read_text() for file in tmp_path.glob("answers-*-of-*")).splitlines()
    found = sorted((int(number), answer) for number, answer in (line.split("\t") for line in written))
    known = dict(zip(distinct := sorted({*lines}), answer_column(Model(numbers_run), distinct), strict=True))
    assert found == [(number, known[line]) for number, line in enumerate(lines)]


SMALL_PIPELINES = """
import json, pathlib
import apache_beam as beam
from apache_beam.ml.inference.base import RunInference
from kformer.inference import Model
from kformer.inference.beam import Answer, Handler

class Watched(Model):
    def __call__(self, texts):
        with open("sizes", "a") as file:
            file.write(f"{len(texts)}\\n")
        return super().__call__(texts)

def run(name, values, transform):
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        _ = pipeline | beam.Create(values) | transform | beam.Map(json.dumps) | beam.io.WriteToText(name)

if __name__ == "__main__":
    model = Watched("exported/mine", n_best=2)
    run("keys", [("b", "one two"), ("a", ""), ("b", "six")], Answer(model))
    run("no-keys", ["one two"], RunInference(Handler(model)))
    pathlib.Path("sizes").unlink()
    run("batches", [(number, "one") for number in range(25)], Answer(model, texts_at_once=10))
    try_examples(Answer, Answer=Answer, Model=Model, apache_beam=beam)
    for attempt in (lambda: Answer(model, texts_at_once=0), lambda: run("refused", [(1, 2.5)], Answer(model))):
        try:
            attempt()
        except Exception as error:
            with open("refused", "a") as file:
                file.write(f"{error}\\n")
"""


def test_pairs_keep_their_keys(numbers_run, tmp_path):
    (tmp_path / "exported").mkdir()
    (tmp_path / "exported" / "mine").symlink_to(numbers_run)
    assert start(EXAMPLES + SMALL_PIPELINES, tmp_path).wait() == 0, said(tmp_path)
    answered, without_keys, batches = (
        sorted(json.loads(line) for file in tmp_path.glob(f"{name}-*") for line in file.read_text().splitlines())
        for name in ("keys", "no-keys", "batches")
    )
    texts = ["", "one two", "six"]
    expected = json.loads(json.dumps(Model(numbers_run, n_best=2)([text.encode() for text in texts])))
    assert [(key, [text for text, _ in found]) for key, found in answered] == [
        (key, [text for text, _ in found]) for key, found in zip("abb", expected, strict=True)
    ]
    assert [text for text, _ in without_keys[0]] == [text for text, _ in expected[1]]
    assert [key for key, _ in batches] == [*range(25)]
    assert sorted(map(int, (tmp_path / "sizes").read_text().split())) == [5, 10, 10]
    assert "examples of Answer: 2 tried, 0 failed" in (tmp_path / "said").read_text()
    refused = (tmp_path / "refused").read_text()
    assert refused.startswith("There must be at least one text at once. Received: texts_at_once=0.\n")
    assert "A text is 2.5, of the type float. Expected: pairs of a key and a str." in refused
