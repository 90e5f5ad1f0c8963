"""A model as a function of Spark's columns. This needs PySpark and Java: pip install 'kformer[spark]'."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from kformer.inference.columns import answer_column_with_scores
from kformer.inference.model import Model

TEXTS_AT_ONCE = 1024  # texts that are sorted by length together


def answer_function(model: Model, texts_at_once: int = TEXTS_AT_ONCE) -> Any:
    """A function of a column of strings that gives a column of structs: the best answer, and its score.

    It is a `pyspark.ml.functions.predict_batch_udf`: each Python worker of Spark loads the model once, and runs it
    through TensorFlow's C library with one thread. Where the text is null, so are answer and score. Rows keep their
    other columns.

    Args:
        model: What answers, of any task. A run folder's model is first made into a SavedModel, which is kept on this
            machine. For workers on other machines, name an export that they find under the same path.
        texts_at_once: Texts that a worker answers at once, in batches of similar length. Spark hands over at most
            `spark.sql.execution.arrow.maxRecordsPerBatch`.

    Raises:
        ImportError: PySpark is not installed.
        ValueError: `texts_at_once` is below 1.

    Examples:
        >>> model = Model(kformer.presets.find_preset("cmudict").path)
        >>> found = lines.withColumn("found", answer_function(model)("text"))
        >>> found.select("line", "found.answer").collect()
        [Row(line=0, answer='HH EH L OW')]
    """
    try:
        from pyspark.ml.functions import predict_batch_udf
        from pyspark.sql.types import FloatType, StringType, StructType
    except ImportError as error:
        raise ImportError("kformer.inference.spark needs PySpark. Run: pip install 'kformer[spark]'") from error
    if texts_at_once < 1:
        raise ValueError(f"There must be at least one text at once. Received: texts_at_once={texts_at_once}.")
    answer_type = StructType().add("answer", StringType()).add("score", FloatType())
    return predict_batch_udf(make_predict_function(model.prepare()), return_type=answer_type, batch_size=texts_at_once)


def make_predict_function(model: Model) -> Callable[[], Callable[[np.ndarray], dict[str, np.ndarray]]]:
    """What `predict_batch_udf` takes: called once in a worker, it loads the model and gives the function of batches.

    Args:
        model: What answers.

    Examples:
        >>> predict = make_predict_function(Model(kformer.presets.find_preset("cmudict").path))()
        >>> predict(np.array(["h e l l o", None], object))["answer"]
        array(['HH EH L OW', None], dtype=object)
    """
    model = dataclasses.replace(model, threads_per_operation=1)

    def make() -> Callable[[np.ndarray], dict[str, np.ndarray]]:
        model.load()

        def predict(texts: np.ndarray) -> dict[str, np.ndarray]:
            (best,) = answer_column_with_scores(model, texts, at_once=1)
            return {"answer": best.answers, "score": best.scores}  # Spark takes NaN for null

        return predict

    return make
