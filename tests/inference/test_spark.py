"""The program of the page for Spark: every line once, also if a worker is killed."""

import importlib.util
import json
import os
import shutil
import signal

import numpy as np
import pytest
from engine_programs import (
    C_LIBRARY,
    EXAMPLES,
    PAGE,
    PYTHONS_TENSORFLOW,
    libraries_of,
    numbered_lines,
    processes_below,
    said,
    start,
    wait_until,
)

from benchmarks.common.pages import program_of
from kformer.inference import Model, answer_column
from kformer.inference.spark import answer_function, make_predict_function

pytestmark = pytest.mark.tensorflow_only
has_spark = importlib.util.find_spec("pyspark") is not None
with_spark = pytest.mark.skipif(
    not has_spark or shutil.which("java") is None, reason="Spark or Java is not installed: make test-engines"
)


def test_the_function_of_batches(numbers_plain_export):
    model = Model(numbers_plain_export)
    predict = make_predict_function(model)()
    found = predict(np.array(["one two", None, ""], object))
    assert found["answer"].tolist() == ["dos uno", None, answer_column(model, [""])[0]]
    assert found["score"].dtype == np.float32
    assert np.isnan(found["score"]).tolist() == [False, True, False]


@pytest.mark.skipif(has_spark, reason="Spark is installed.")
def test_without_spark_the_message_says_how_to_install_it(numbers_export):
    with pytest.raises(ImportError, match=r"needs PySpark. Run: pip install 'kformer\[spark\]'"):
        answer_function(Model(numbers_export))


@with_spark
@pytest.mark.slow
def test_a_killed_worker_loses_no_line(numbers_run, tmp_path):
    import pyarrow.parquet

    lines = numbered_lines(tmp_path, numbers_run)
    program = start(program_of(PAGE, "Spark"), tmp_path)
    computing = []

    def one_computes():
        libraries = {worker: libraries_of(worker) for worker in processes_below(program.pid, "pyspark")}
        computing[:] = [worker for worker, found in libraries.items() if C_LIBRARY in found]
        assert not any(PYTHONS_TENSORFLOW in libraries[worker] for worker in computing)
        return len(computing) > 0

    wait_until(one_computes, program, tmp_path)
    os.kill(computing[0], signal.SIGKILL)
    assert program.wait() == 0, said(tmp_path)
    assert "Lost task" in (tmp_path / "said").read_text()
    table = pyarrow.parquet.read_table(tmp_path / "answers").sort_by("line")
    assert table.column_names == ["line", "answer", "score"]
    assert table["line"].to_pylist() == [*range(len(lines))]
    known = dict(zip(distinct := sorted({*lines}), answer_column(Model(numbers_run), distinct), strict=True))
    assert table["answer"].to_pylist() == [known[line] for line in lines]
    assert max(table["score"].to_pylist()) < 0


GAPS = """
import json
from pyspark.sql import SparkSession
from kformer.inference import Model
from kformer.inference.spark import answer_function

if __name__ == "__main__":
    spark = SparkSession.builder.master("local[1]").getOrCreate()
    frame = spark.createDataFrame([("one two", 7), (None, 5)], "text string, number int").coalesce(1)
    model = Model("exported/mine")
    found = frame.withColumn("found", answer_function(model)("text")).select("number", "found.*").orderBy("number")
    rows = [row.asDict() for row in found.collect()]
    lines = spark.createDataFrame([(0, "h e l l o")], "line int, text string")
    try_examples(answer_function, answer_function=answer_function, Model=Model, lines=lines)
    try:
        answer_function(model, texts_at_once=0)
    except ValueError as error:
        refused = str(error)
    print("found:", json.dumps([rows, refused]))
"""


@with_spark
@pytest.mark.slow
def test_gaps_stay_gaps(numbers_run, tmp_path):
    (tmp_path / "exported").mkdir()
    (tmp_path / "exported" / "mine").symlink_to(numbers_run)
    assert start(EXAMPLES + GAPS, tmp_path).wait() == 0, said(tmp_path)
    (line,) = [line for line in (tmp_path / "said").read_text().splitlines() if line.startswith("found: ")]
    assert "examples of answer_function: 3 tried, 0 failed" in (tmp_path / "said").read_text()
    (null, known), refused = json.loads(line.removeprefix("found: "))
    assert null == {"number": 5, "answer": None, "score": None}
    assert (known["number"], known["answer"]) == (7, "dos uno")
    assert known["score"] < 0
    assert refused == "There must be at least one text at once. Received: texts_at_once=0."
