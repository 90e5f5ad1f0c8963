"""Keras callbacks of a training run. A Keras "epoch" is one interval between validations here.

They share one `kformer.training.checkpoints.TrainingState`. Keras calls them in the order of the list, and passes
them one dict of logs, which the first ones complete. The order must be:

1. `TrackState`: brings the state up to date and adds `step`, `learning_rate`, `gradient_norm`, `tokens_per_second` and
   `minutes` to the logs;
2. `StepBudget`, `StopOnNaN`, `GracefulInterrupt`, in any order: they end the run, and write the reason to
   `TrainingState.end_reason`; where several processes train, `StopTogether` comes after the last two, whose decisions
   may differ between processes, as those of `TimeBudget` may;
3. `Validation`: saves the run, lets averaged weights into the model, completes the logs with the scores of
   translations, keeps the best weights, shows and exports, and ends a run that gets no better;
4. the callbacks that look at the weights and the logs of a validation: `ProgressBar`, `TensorBoardLog` and a user's own
   callbacks, each of these followed by a `NoticeStop`; then `CSVLog` and `UpdateTimer`;
5. `TimeBudget`: ends the run, too, also if its minutes ran out during the validation;
6. `Checkpoint`: puts the trained weights back and saves the state of the run after all other callbacks; where several
   processes train, `CompareLast` comes after it.

`kformer.train` makes this list. `AverageWeights` is for your own calls of `model.fit`.

On JAX, Keras runs ahead: it starts further batches before the device has finished the last ones, if every callback with
a hook at the end of a training batch sets `async_safe = True`, as these callbacks do. A callback without this attribute
makes Keras wait for the metrics of every step. On TensorFlow, Keras reads the metrics at every step in any case.

`fit` does not call `on_train_end` if it raises an exception. Call `close()` of `ProgressBar` and `TensorBoardLog` in a
`finally:`; a second call does nothing.
"""

from kformer.training.callbacks.budget import Budget, StepBudget, TimeBudget
from kformer.training.callbacks.checkpoint import CheckFolder, Checkpoint
from kformer.training.callbacks.csv_log import CSVLog
from kformer.training.callbacks.ema import AverageWeights
from kformer.training.callbacks.ends_run import EndsRun, NoticeStop
from kformer.training.callbacks.graceful_interrupt import GracefulInterrupt, Interrupted
from kformer.training.callbacks.kept_weights import KeepBest
from kformer.training.callbacks.progress_bar import ProgressBar
from kformer.training.callbacks.stop_on_nan import StopOnNaN
from kformer.training.callbacks.stop_together import CompareLast, StopTogether
from kformer.training.callbacks.tensorboard_log import TensorBoardLog
from kformer.training.callbacks.track_state import TrackState
from kformer.training.callbacks.update_timer import UpdateTimer
from kformer.training.callbacks.validation import InMainProcess, Validation

__all__ = [
    "AverageWeights",
    "Budget",
    "CSVLog",
    "CheckFolder",
    "Checkpoint",
    "CompareLast",
    "EndsRun",
    "GracefulInterrupt",
    "InMainProcess",
    "Interrupted",
    "KeepBest",
    "NoticeStop",
    "ProgressBar",
    "StepBudget",
    "StopOnNaN",
    "StopTogether",
    "TensorBoardLog",
    "TimeBudget",
    "TrackState",
    "UpdateTimer",
    "Validation",
]
