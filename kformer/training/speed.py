"""How fast this machine trains."""

import dataclasses
import itertools

import keras

from kformer.config import TrainingConfig, TransformerConfig
from kformer.data import Corpus
from kformer.files.writing import temporary_folder
from kformer.process.console import Console
from kformer.training.callbacks import UpdateTimer
from kformer.training.train import train

_MANY = 10**9  # more updates than are timed
_VALIDATION_PAIRS = 10  # a training ends with a validation, which should take no time here


def measure_seconds_per_update(
    corpus: Corpus, transformer: TransformerConfig, training: TrainingConfig, seconds: float | None = None
) -> float:
    """Trains for a few seconds in a temporary folder, and returns how long an update takes, in seconds.

    Building the model and tracing its training step are not counted.

    Args:
        corpus, transformer, training: As for `kformer.train`; the budget does not matter.
        seconds: How long updates are timed at least; None: see `UpdateTimer`.

    Raises:
        KeyboardInterrupt: A signal has ended the measurement.
    """
    found: list[float] = []

    def measured(seconds_per_update: float) -> None:
        found.append(seconds_per_update)
        timer.model.stop_training = True

    timer = UpdateTimer(measured, seconds)
    part = dataclasses.replace(corpus, valid=list(itertools.islice(corpus.valid, _VALIDATION_PAIRS)))
    training = training.replace(max_steps=_MANY, max_epochs=None, max_minutes=None)  # a schedule may need an end
    with temporary_folder() as folder:
        train(
            part,
            folder / "run",
            transformer,
            training,
            callbacks=[timer],
            console=Console(quiet=True),
        )
    keras.backend.clear_session()
    if not found:
        raise KeyboardInterrupt
    return found[0]
