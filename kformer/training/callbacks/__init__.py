"""Keras callbacks of a training run. A Keras "epoch" is one interval between validations here.

They share one `kformer.training.checkpoints.TrainingState`. Keras calls them in the order of the list, and hands
them one dict of logs, which the first ones complete. The order must be:

1. `TrackState`: brings the state up to date and adds `step`, `learning_rate`, `gradient_norm`, `tokens_per_second` and
   `minutes` to the logs;
2. `StopOnNaN`, `Budget`, `GracefulInterrupt`, in any order: they end the run; where several processes train, what one
   process alone decides goes into a `StopTogether`;
3. `UseEMA`, those that see the averaged weights, such as `KeepBest` (the best figure and the patience counter) and
   `KeepLast`, then `UseTrained`;
4. `ProgressBar`, `TensorBoardLog`, `CSVLog` and a user's own, in any order;
5. `Checkpoint`: writes where the run stands when all the others have done their part.

On JAX, Keras runs ahead of the device as long as every callback with a hook at the end of a training batch says
`async_safe = True`, as these do; one that does not makes every step wait for its figures. On TensorFlow Keras
reads the figures at every step whatever the callbacks are.

`fit` does not call `on_train_end` when it is left by an exception. Call `close()` of `GracefulInterrupt` and
`ProgressBar` in a `finally:`; a second call does nothing.
"""

from kformer.training.callbacks.budget import Budget
from kformer.training.callbacks.checkpoint import Checkpoint, KeepBest, KeepLast
from kformer.training.callbacks.csv_log import CSVLog
from kformer.training.callbacks.ema import UseEMA, UseTrained
from kformer.training.callbacks.graceful_interrupt import GracefulInterrupt
from kformer.training.callbacks.progress_bar import ProgressBar
from kformer.training.callbacks.stop_on_nan import StopOnNaN
from kformer.training.callbacks.stop_together import StopTogether
from kformer.training.callbacks.tensorboard_log import TensorBoardLog
from kformer.training.callbacks.track_state import TrackState

__all__ = [
    "Budget",
    "CSVLog",
    "Checkpoint",
    "GracefulInterrupt",
    "KeepBest",
    "KeepLast",
    "ProgressBar",
    "StopOnNaN",
    "StopTogether",
    "TensorBoardLog",
    "TrackState",
    "UseEMA",
    "UseTrained",
]
