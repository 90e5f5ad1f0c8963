"""A callback that writes the best weights, and ends a run that gets no better (early stopping)."""

import math
import pathlib

from kformer.config import MONITORS, Monitor
from kformer.runs.weights import save_weights
from kformer.training.callbacks.ends_run import EndsRun
from kformer.training.checkpoints import TrainingState
from kformer.wording import count

_LOSS = MONITORS["loss"].log_key


class KeepBest(EndsRun):
    """Keeps the weights with the best monitored metric. Ends the run after `patience` validations without a better one.

    As long as the best value is a BLEU of 0.0, which does not tell which weights are better (`Monitor.uninformative`),
    the weights with the lowest validation loss are kept, and the run is not ended.

    The weights are written by `kformer.runs.weights.save_weights`. The best value and the counter are in `state`, so a
    resumed run continues with them. Keras's `EarlyStopping` resets both when `fit` begins.

    Args:
        path: Ends in ".weights.h5". None: nothing is written, because another process writes.
        state: Shared with the other callbacks.
        patience: Validations without a better value before the run stops.
        monitor: The metric, by default the validation loss.

    Raises:
        ValueError: `path` does not end in ".weights.h5", or the logs do not have the metric.
    """

    def __init__(
        self,
        path: str | pathlib.Path | None,
        state: TrainingState,
        patience: int = 10,
        monitor: Monitor = MONITORS["loss"],
    ) -> None:
        super().__init__(state)
        if path is not None and not str(path).endswith(".weights.h5"):
            raise ValueError(f"The path of the best weights must end in .weights.h5. Received: {path}.")
        self.path = path
        self.patience = patience
        self.monitor = monitor
        self.reason = f"{count(patience, 'validation')} brought no better {monitor.label}"

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        logs = logs or {}
        if self.monitor.log_key not in logs:
            raise ValueError(
                f"KeepBest found no {self.monitor.log_key!r} in the logs, which have: {', '.join(sorted(logs))}. "
                "Give fit validation data and compile the metric, or choose another monitor."
            )
        value = float(logs[self.monitor.log_key])
        loss = float(logs[_LOSS]) if _LOSS in logs else None
        if self._is_better(value, loss):
            if self.path is not None:
                save_weights(self.path, self.model)
            self.state.best, self.state.best_loss = value, loss
            self.state.waited = 0
            return
        self.state.waited += 1
        if self.state.out_of_patience(self.patience, self.monitor):
            self.request_stop()

    def _is_better(self, value: float, loss: float | None) -> bool:
        best, best_loss = self.state.best, self.state.best_loss
        if best is None or not math.isfinite(value):
            return math.isfinite(value)
        if value == best == self.monitor.uninformative and loss is not None and best_loss is not None:
            return loss < best_loss
        return value > best if self.monitor.mode == "max" else value < best
