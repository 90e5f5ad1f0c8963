"""The mean of a run's last weights, as the paper uses it for its results (section 6.1)."""

import pathlib

import keras
import numpy as np

from kformer.models import build_transformer
from kformer.runs.folder import RunFolder, derived_run
from kformer.runs.weights import save_weights


def average_weights(run: str | pathlib.Path, output: str | pathlib.Path, last: int | None = None) -> RunFolder:
    """Makes a run folder whose best weights are the mean of the `last` ones that a run has kept.

    A run keeps the weights of its last `TrainingConfig.keep_weights` validations. The new folder has the run's
    configurations and tokenizers, so it translates, is evaluated and exported like any run. It appears whole or not at
    all.

    Args:
        run: A run folder.
        output: The folder to make.
        last: How many; None: all that the run has kept. The paper takes 5 for base models, 20 for big ones.

    Raises:
        FileNotFoundError: `run` is no run folder.
        FileExistsError: `output` exists.
        ValueError: The run has kept fewer weights than that.
    """
    source = RunFolder(run).check()
    weights = source.last_weights(last)
    with derived_run(source, output) as fresh:
        fresh.write_corpus({**source.corpus(), "mean_of": len(weights)})
        fresh.write_samples(source.samples())
        model = build_transformer(source.transformer_config(), dtype="float32")
        _assign_mean(model, weights)
        save_weights(fresh.best_weights_file, model)
    return RunFolder(output)


def _assign_mean(model: keras.Model, files: list[pathlib.Path]) -> None:
    sums = [np.zeros(weight.shape, "float64") for weight in model.weights]
    for file in files:
        model.load_weights(file)
        for total, weight in zip(sums, model.weights, strict=True):
            total += keras.ops.convert_to_numpy(weight)
    for weight, total in zip(model.weights, sums, strict=True):
        weight.assign((total / len(files)).astype(weight.dtype))
