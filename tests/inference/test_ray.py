"""The program of the page for Ray Data: every line once, whatever is killed."""

import importlib.util
import json
import os
import signal

import pytest
from engine_programs import (
    BLOCKS,
    C_LIBRARY,
    EXAMPLES,
    PAGE,
    PYTHONS_TENSORFLOW,
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
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: make test-engines"),
]
WORKERS = "ray::MapWorker(MapBatches(_Worker))"


def check_answers(folder, lines, run):
    """Every line has one answer, which is the model's."""
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(folder / "answers").sort_by("line")
    assert table.column_names == ["line", "text", "answer", "answer_score"]
    assert table["line"].to_pylist() == [*range(len(lines))]
    assert table["text"].to_pylist() == lines
    known = dict(zip(distinct := sorted({*lines}), answer_column(Model(run), distinct), strict=True))
    assert table["answer"].to_pylist() == [known[line] for line in lines]
    assert max(table["answer_score"].to_pylist()) < 0


def written(folder):
    return [*(folder / "answers").glob("*.parquet")]


def test_a_killed_worker_loses_no_line(numbers_run, tmp_path):
    lines = numbered_lines(tmp_path, numbers_run)
    program = start(program_of(PAGE, "Ray Data"), tmp_path)
    wait_until(lambda: len(written(tmp_path)) > 0, program, tmp_path)
    workers = processes_below(program.pid, WORKERS)
    assert len(workers) == 4
    libraries = [libraries_of(worker) for worker in workers]
    assert any(C_LIBRARY in one for one in libraries)
    assert not any(PYTHONS_TENSORFLOW in one for one in libraries)
    os.kill(workers[0], signal.SIGKILL)
    assert program.wait() == 0, said(tmp_path)
    assert "worker died or was killed" in (tmp_path / "said").read_text()
    check_answers(tmp_path, lines, numbers_run)


def test_a_killed_program_goes_on_at_the_checkpoint(numbers_run, tmp_path):
    lines = numbered_lines(tmp_path, numbers_run)
    program = start(program_of(PAGE, "Ray Data"), tmp_path)
    wait_until(lambda: len(written(tmp_path)) > 2, program, tmp_path)
    agents = processes_below(program.pid, "Agent")  # they answer no lines, and end a minute later
    kill_and_wait(program, [process for process in processes_below(program.pid, "ray::") if process not in agents])
    before = {file.name for file in written(tmp_path)}
    assert len(before) < BLOCKS
    program = start(program_of(PAGE, "Ray Data"), tmp_path)
    assert program.wait() == 0, said(tmp_path)
    assert len(before & {file.name for file in written(tmp_path)}) > 1  # these lines were not answered again
    check_answers(tmp_path, lines, numbers_run)


OTHER_COLUMNS = """
import json, pathlib, sys
import ray
from kformer.inference import Model
from kformer.inference.ray import answer

def note(text):
    found = {"text": text.decode(), "imported": sorted({"tensorflow", "keras"} & {*sys.modules})}
    pathlib.Path("noted.json").write_text(json.dumps(found))

if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False)
    rows = [{"source": "one two", "number": 7}, {"source": None, "number": 5}, {"source": "zzz", "number": 6}]
    model = Model("exported/mine", n_best=2, on_unknown=note)
    dataset = ray.data.from_items(rows)
    answered = answer(dataset, model, workers=1, column="source", output="translation", num_cpus=0.5)
    refused = []
    wrong = [{"workers": 0}, {"workers": 1}, {"workers": 1, "column": "source", "output": "number"}]
    for options in wrong:
        try:
            answer(dataset, model, **options)
        except ValueError as error:
            refused.append(str(error))
    try_examples(answer, answer=answer, Model=Model, ray=ray)
    print("found:", json.dumps({"rows": answered.sort("number").take_all(), "refused": refused}))
"""


def test_columns_of_other_names(numbers_run, tmp_path):
    (tmp_path / "exported").mkdir()
    (tmp_path / "exported" / "mine").symlink_to(numbers_run)
    assert start(EXAMPLES + OTHER_COLUMNS, tmp_path).wait() == 0, said(tmp_path)
    (line,) = [line for line in (tmp_path / "said").read_text().splitlines() if line.startswith("found: ")]
    assert "examples of answer: 4 tried, 0 failed" in (tmp_path / "said").read_text()
    found = json.loads(line.removeprefix("found: "))
    null, _, known = found["rows"]
    assert null == {"source": None, "number": 5, **dict.fromkeys(known.keys() - {"source", "number"})}
    assert (known["source"], known["number"], known["translation"]) == ("one two", 7, "dos uno")
    assert [*known][2:] == ["translation", "translation_score", "translation_2", "translation_2_score"]
    assert known["translation"] != known["translation_2"]
    assert known["translation_score"] > known["translation_2_score"]
    assert json.loads((tmp_path / "noted.json").read_text()) == {"text": "zzz", "imported": []}
    assert [message.split(". ")[0] for message in found["refused"]] == [
        "There must be at least one worker",
        "The dataset has no column 'text'",
        "The dataset has a column 'number' already",
    ]
