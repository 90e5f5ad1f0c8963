"""Which weights a run keeps: the best ones, and those of the last validations."""

import math
import pathlib
from collections.abc import Mapping

import keras

from kformer.config import MONITORS, Monitor
from kformer.files.checksums import note_checksums
from kformer.runs.folder import kept_weights_file, kept_weights_files
from kformer.runs.weights import save_weights
from kformer.training.checkpoints import TrainingState

_LOSS = MONITORS["loss"].log_key


class KeepBest:
    """Keeps the weights with the best monitored metric.

    As long as the best value is a BLEU of 0.0, which does not tell which weights are better (`Monitor.uninformative`),
    the weights with the lowest validation loss are kept.

    The weights are written by `kformer.runs.weights.save_weights`. The best value, and the number of validations since
    the last improvement, are in `state`, so a resumed run continues with them. Keras's `EarlyStopping` resets both when
    `fit` begins.

    Weights that are better by `least_improvement` or less are kept, too, but are no improvement. Several such steps are
    one as soon as they make more than `least_improvement` together.

    Args:
        path: Ends in ".weights.h5". None: nothing is written, because another process writes.
        state: Shared with the callbacks.
        monitor: The metric, by default the validation loss.
        least_improvement: By how much more than this a value must be better than that of the last improvement, to be
            the next one.

    Raises:
        ValueError: `path` does not end in ".weights.h5".
    """

    def __init__(
        self,
        path: str | pathlib.Path | None,
        state: TrainingState,
        monitor: Monitor = MONITORS["loss"],
        least_improvement: float = 0.0,
    ) -> None:
        if path is not None and not str(path).endswith(".weights.h5"):
            raise ValueError(f"The path of the best weights must end in .weights.h5. Received: {path}.")
        self.path = path
        self.state = state
        self.monitor = monitor
        self.least_improvement = least_improvement

    def __call__(self, model: keras.Model, logs: Mapping[str, float]) -> bool:
        """Keeps the weights if they are better than those before, and returns whether they are.

        Raises:
            ValueError: The logs do not have the metric.
        """
        if self.monitor.log_key not in logs:
            raise ValueError(
                f"KeepBest found no {self.monitor.log_key!r} in the logs, which have: {', '.join(sorted(logs))}. "
                "Give fit validation data and compile the metric, or choose another monitor."
            )
        value = float(logs[self.monitor.log_key])
        loss = float(logs[_LOSS]) if _LOSS in logs else None
        is_best = self._is_better(value, loss)
        if is_best and self._is_improvement(value):
            self.state.improved, self.state.waited = value, 0
        else:
            self.state.waited += 1
        if not is_best:
            return False
        if self.path is not None:
            save_weights(self.path, model)
        self.state.best, self.state.best_loss = value, loss
        return True

    def _is_better(self, value: float, loss: float | None) -> bool:
        best, best_loss = self.state.best, self.state.best_loss
        if best is None or not math.isfinite(value):
            return math.isfinite(value)
        if value == best == self.monitor.uninformative and loss is not None and best_loss is not None:
            return loss < best_loss
        return value > best if self.monitor.mode == "max" else value < best

    def _is_improvement(self, value: float) -> bool:
        """Whether the best value so far is so much better than that of the last improvement."""
        improved = self.state.improved
        if not self.least_improvement or improved is None or improved == self.monitor.uninformative:
            return True
        gain = value - improved if self.monitor.mode == "max" else improved - value
        return gain > self.least_improvement


def keep_last(directory: pathlib.Path, model: keras.Model, step: int, number: int) -> None:
    """Writes the weights of a validation, and removes all but the last ones.

    Args:
        directory: Gets the files, see `kformer.runs.folder.kept_weights_file`.
        model: Has the weights.
        step: Optimizer updates done.
        number: How many are kept; 0: none.
    """
    if number > 0:
        save_weights(kept_weights_file(directory, step), model)
    kept = kept_weights_files(directory)
    dropped = kept[: max(0, len(kept) - number)]
    for file in dropped:
        file.unlink()
    if dropped:
        note_checksums(directory, [])  # drops the lines of the removed files
