"""The mean of a run's last weights, as the paper uses it for its results (section 6.1)."""

import pathlib

import keras
import numpy as np

from kformer.models import build_model
from kformer.runs.create import derived_run
from kformer.runs.folder import RunFolder
from kformer.runs.weights import load_weights_file, save_weights


def average_weights(run: str | pathlib.Path, output: str | pathlib.Path, last: int | None = None) -> RunFolder:
    """Makes a run folder whose best weights are the mean of the `last` weights that a run has kept.

    A run keeps the weights of its last `TrainingConfig.keep_weights` validations. The new folder has the run's
    configurations and tokenizers, so it can be used like any run folder: to translate, evaluate and export. It appears
    whole or not at all.

    Args:
        run: A run folder.
        output: The folder to make.
        last: The number of weights to average; None: all that the run has kept. The paper averages 5 for base models,
            20 for big ones.

    Raises:
        FileNotFoundError: `run` is no run folder.
        DamagedFileError: A weights file was damaged or edited.
        FileExistsError: `output` exists.
        ValueError: The run has kept fewer weights than `last`, or none; or `last` is less than 1.
    """
    source = RunFolder(run).check_described()
    with derived_run(source, output) as fresh:
        model = build_model(source.transformer_config(), dtype="float32")
        number = _assign_last_mean(model, source, last)
        fresh.write_corpus({**source.corpus(), "mean_of": number})
        fresh.write_samples(source.samples())
        save_weights(fresh.best_weights_file, model)
    return RunFolder(output)


def _assign_last_mean(model: keras.Model, source: RunFolder, last: int | None) -> int:
    """Assigns the mean of the last weights, and returns their number.

    If the run is still training, it may remove its oldest weights while they are read. Then the list is read again.
    """
    while True:
        weights = source.last_weights(last)
        try:
            _assign_mean(model, weights)
            return len(weights)
        except (OSError, ValueError):
            if all(file.is_file() for file in weights):
                raise


def _assign_mean(model: keras.Model, files: list[pathlib.Path]) -> None:
    sums = [np.zeros(weight.shape, "float64") for weight in model.weights]
    for file in files:
        load_weights_file(file, model)
        for total, weight in zip(sums, model.weights, strict=True):
            total += keras.ops.convert_to_numpy(weight)
    for weight, total in zip(model.weights, sums, strict=True):
        weight.assign((total / len(files)).astype(weight.dtype))
