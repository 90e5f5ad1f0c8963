"""A column of a dataset of Ray Data, answered by a pool of workers. This needs Ray: pip install 'kformer[ray]'."""

import dataclasses
from typing import Any

from kformer.inference.columns import answer_column_with_scores
from kformer.inference.model import Model

try:
    import ray.data
except ImportError as error:
    raise ImportError("kformer.inference.ray needs Ray. Run: pip install 'kformer[ray]'") from error

ROWS_AT_ONCE = 1024  # rows that are sorted by length together


def answer(
    dataset: ray.data.Dataset,
    model: Model,
    *,
    workers: int,
    column: str = "text",
    output: str = "answer",
    rows_at_once: int = ROWS_AT_ONCE,
    num_cpus: float = 1.0,
) -> ray.data.Dataset:
    """The dataset with the answer to each text of a column, and its score, as two more columns.

    Each worker is an actor with a copy of the model, which runs through TensorFlow's C library with one thread. All
    other columns are kept. Where the text is null, so are answer and score. Ray starts a killed worker anew and gives
    it the rows again that it had not finished. The rows come in any order, unless `preserve_order` is set in the
    `execution_options` of Ray's `DataContext`: give them numbers in a column.

    Args:
        dataset: Any dataset of Ray. Nothing is read yet.
        model: What answers, of any task. A run folder's model is first made into a SavedModel, which is kept on this
            machine. For workers on other machines, name an export that they find under the same path.
        workers: Actors in the pool. They share the CPUs with the tasks that read and write, so leave one for these.
        column: The column of the texts.
        output: The name of the column of the answers. That of the scores has `_score` after it. If the model has an
            `n_best` of 2 or more, the second answers are in `<output>_2`, with `<output>_2_score`, and so on.
        rows_at_once: Rows that a worker answers at once, in batches of texts of similar length.
        num_cpus: CPUs that Ray counts for each worker.

    Raises:
        ValueError: `workers` is below 1. If the dataset knows its columns already: there is no such column, or one with
            a name that is to be new. Otherwise the worker raises this, and for what is not a text.

    Examples:
        >>> dataset = ray.data.from_items([{"line": 0, "text": "h e l l o"}, {"line": 1, "text": "w o r l d"}])
        >>> model = Model(kformer.presets.find_preset("cmudict").path)
        >>> answered = answer(dataset, model, workers=1)
        >>> [row["answer"] for row in answered.sort("line").take()]
        ['HH EH L OW', 'W ER L D']
    """
    if workers < 1:
        raise ValueError(f"There must be at least one worker. Received: workers={workers}.")
    answerer = _Answerer(dataclasses.replace(model, threads_per_operation=1), column, output)
    if (schema := dataset.schema(fetch_if_missing=False)) is not None:
        answerer.check_columns(schema.names)
    model.prepare()
    # A worker gets so many rows at a time: a small file would be one block, for one worker.
    blocks = dataset.repartition(target_num_rows_per_block=rows_at_once)
    return blocks.map_batches(
        _Worker,
        fn_constructor_args=(answerer,),
        batch_format="pyarrow",
        batch_size=rows_at_once,
        compute=ray.data.ActorPoolStrategy(size=workers),
        num_cpus=num_cpus,
        udf_modifying_row_count=False,
    )


@dataclasses.dataclass(frozen=True)
class _Answerer:
    """A model and the names of the columns."""

    model: Model
    column: str
    output: str

    def check_columns(self, names: list[str]) -> None:
        """Refuses a table with these columns, if it lacks the texts or has an answer already."""
        if self.column not in names:
            raise ValueError(
                f"The dataset has no column {self.column!r}. Its columns are: {', '.join(names)}. Name that of the "
                "texts: column=..."
            )
        if double := set(names).intersection(self._new_names()):
            raise ValueError(
                f"The dataset has a column {sorted(double)[0]!r} already. Choose another name for the answers: "
                "output=..."
            )

    def __call__(self, table: Any) -> Any:
        """A `pyarrow.Table` with the new columns."""
        self.check_columns(table.column_names)
        ranked = answer_column_with_scores(self.model, table[self.column], self.model.n_best, at_once=1)
        for name, values in zip(self._new_names(), [column for pair in ranked for column in pair], strict=True):
            table = table.append_column(name, values)
        return table

    def _new_names(self) -> list[str]:
        answers = [self.output, *(f"{self.output}_{rank}" for rank in range(2, self.model.n_best + 1))]
        return [name for answer in answers for name in (answer, f"{answer}_score")]


class _Worker:
    """What an actor of the pool runs. Its model is loaded when the actor starts."""

    def __init__(self, answerer: _Answerer) -> None:
        self._answerer = answerer
        answerer.model.load()

    def __call__(self, table: Any) -> Any:
        return self._answerer(table)
