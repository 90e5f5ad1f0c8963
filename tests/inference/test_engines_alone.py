"""What the batch engines are handed, with doubles in their places.

The engines themselves take minutes, and are seldom installed: test_beam.py, test_ray.py, test_spark.py.
"""

import dataclasses
import importlib
import sys
import types
from typing import Generic, TypeVar

import numpy as np
import pytest

from kformer.inference.spark import answer_function
from kformer.text.batches import Hypothesis

ONE, TWO, THREE = TypeVar("ONE"), TypeVar("TWO"), TypeVar("THREE")


@dataclasses.dataclass(frozen=True)
class Capitals:
    """A model that answers in capitals, or else backwards. It notes what is done with it and its copies."""

    n_best: int = 1
    threads_per_operation: int | None = None
    noted: list = dataclasses.field(default_factory=list)

    def prepare(self):
        self.noted.append("prepared")
        return self

    def load(self):
        self.noted.append(f"loaded with {self.threads_per_operation} thread")
        return self

    def __call__(self, texts):
        self.noted.append(len(texts))
        given = [text.decode() for text in texts]
        return [[Hypothesis(text.upper(), -1.0), Hypothesis(text[::-1], -2.0)][: self.n_best] for text in given]


@pytest.fixture
def imported(monkeypatch):
    """`imported(name, modules)` is a module of kformer.inference that finds these modules, by their names."""
    names = []

    def load(name, modules):
        for place, attributes in modules.items():
            module = types.ModuleType(place)
            vars(module).update(attributes)
            monkeypatch.setitem(sys.modules, place, module)
        names.append(f"kformer.inference.{name}")
        sys.modules.pop(names[-1], None)
        return importlib.import_module(names[-1])

    yield load
    for name in names:
        sys.modules.pop(name, None)


class Dataset:
    """A dataset of Ray that answers at once, and notes how."""

    def __init__(self, table, is_known=True):
        self.table, self.is_known = table, is_known

    def schema(self, fetch_if_missing=True):
        assert not fetch_if_missing  # nothing may be read yet
        return self.table.schema if self.is_known else None

    def repartition(self, target_num_rows_per_block):
        self.rows = target_num_rows_per_block
        return self

    def map_batches(self, worker, fn_constructor_args, batch_format, batch_size, compute, num_cpus, **_):
        self.given = {"format": batch_format, "size": batch_size, "workers": compute.size, "cpus": num_cpus}
        answer = worker(*fn_constructor_args)
        starts = range(0, len(self.table), batch_size)
        return [answer(self.table.slice(start, batch_size)).to_pydict() for start in starts]


def test_ray_gets_two_columns_for_each_rank_of_answers_and_workers_of_one_thread(imported):
    pyarrow = pytest.importorskip("pyarrow")
    data = types.SimpleNamespace(Dataset=Dataset, ActorPoolStrategy=types.SimpleNamespace)
    ray = imported("ray", {"ray": {"data": data}, "ray.data": vars(data)})
    table = pyarrow.table({"id": [0, 1, 2], "source": ["one", None, "two"]})
    model, dataset = Capitals(n_best=2), Dataset(table)
    for options, message in (
        ({"workers": 0}, "There must be at least one worker. Received: workers=0."),
        ({"workers": 1}, "The dataset has no column 'text'. Its columns are: id, source. Name that of the texts"),
        ({"workers": 1, "column": "source", "output": "id"}, "The dataset has a column 'id' already. Choose another"),
    ):
        with pytest.raises(ValueError, match=message):
            ray.answer(dataset, model, **options)
    assert model.noted == []
    options = {"workers": 3, "column": "source", "output": "said", "rows_at_once": 2, "num_cpus": 0.5}
    first, last = ray.answer(dataset, model, **options)
    assert first == {
        **{"id": [0, 1], "source": ["one", None], "said": ["ONE", None], "said_score": [-1, None]},
        **{"said_2": ["eno", None], "said_2_score": [-2, None]},
    }
    assert (last["said"], last["said_2"]) == (["TWO"], ["owt"])
    assert (dataset.rows, dataset.given) == (2, {"format": "pyarrow", "size": 2, "workers": 3, "cpus": 0.5})
    assert model.noted == ["prepared", "loaded with 1 thread", 1, 1]
    with pytest.raises(ValueError, match="The dataset has no column 'text'"):  # which a worker finds
        ray.answer(Dataset(table, is_known=False), model, workers=1)


class ModelHandler(Generic[ONE, TWO, THREE]):
    """That of Beam."""

    def __init__(self, min_batch_size, max_batch_size):
        self.sizes = min_batch_size, max_batch_size


class RunInference:
    """That of Beam, with what it is given."""

    def __init__(self, keyed):
        self.handler = keyed.handler

    def __ror__(self, pairs):
        return pairs, self.handler


def test_beam_gets_a_handler_of_batches_of_one_size_and_workers_of_one_thread(imported):
    parts = {"ModelHandler": ModelHandler, "RunInference": RunInference}
    parts["KeyedModelHandler"] = lambda handler: types.SimpleNamespace(handler=handler)
    places = {"apache_beam": {"PTransform": object}, "apache_beam.ml.inference.base": parts}
    beam, model = imported("beam", places), Capitals()
    with pytest.raises(ValueError, match="There must be at least one text at once. Received: texts_at_once=0."):
        beam.Answer(model, texts_at_once=0)
    assert model.noted == []
    pairs, handler = beam.Answer(model, texts_at_once=1).expand("pairs")
    assert (pairs, handler.sizes, beam.Handler(model).sizes) == ("pairs", (1, 1), (1024, 1024))
    loaded = handler.load_model()
    assert [found[0].text for found in handler.run_inference(["one", "two"], loaded)] == ["ONE", "TWO"]
    assert model.noted == ["prepared", "loaded with 1 thread", 2]
    with pytest.raises(ValueError, match="A text is 2.5, of the type float. Expected: pairs of a key and a str."):
        handler.run_inference(["one", 2.5], loaded)


class StructType(list):
    """That of Spark, whose types are texts here."""

    def add(self, name, kind):
        return StructType([*self, (name, kind)])


def test_spark_gets_a_function_of_batches_and_workers_of_one_thread(monkeypatch):
    kinds = {"FloatType": lambda: "float", "StringType": lambda: "string", "StructType": StructType}
    functions = {"predict_batch_udf": lambda make, **options: (make, options)}
    for place, attributes in {"pyspark.sql.types": kinds, "pyspark.ml.functions": functions}.items():
        monkeypatch.setitem(sys.modules, place, types.SimpleNamespace(**attributes))
    model = Capitals()
    with pytest.raises(ValueError, match="There must be at least one text at once. Received: texts_at_once=0."):
        answer_function(model, texts_at_once=0)
    assert model.noted == []
    make, options = answer_function(model, texts_at_once=1)
    assert options == {"return_type": [("answer", "string"), ("score", "float")], "batch_size": 1}
    found = make()(np.array(["one", None], object))
    assert (found["answer"].tolist(), np.isnan(found["score"]).tolist()) == (["ONE", None], [False, True])
    assert model.noted == ["prepared", "loaded with 1 thread", 1]
