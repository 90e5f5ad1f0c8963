"""Which callbacks of a user a run can have."""

from collections.abc import Sequence
from typing import Any

import keras

from kformer.training.callbacks import AverageWeights

_ASSIGNS = (
    "it assigns weights in the middle of a run, so that a resumed run would give other results than one without a stop"
)
_OWN_CHECKPOINTS = "Leave it out: the run saves its own checkpoints, and resume goes on from the last one."
_HAS_SCHEDULE = "the learning rate follows a schedule and cannot be set"
_RATE = "Leave it out, and choose schedule and warmup_steps in training."
_AVERAGES = "Leave it out, and set ema_decay in training: the run validates and keeps the averaged weights."

_REFUSED: dict[type[keras.callbacks.Callback], tuple[str, str]] = {
    keras.callbacks.BackupAndRestore: (_ASSIGNS, _OWN_CHECKPOINTS),
    keras.callbacks.SwapEMAWeights: (_ASSIGNS, _AVERAGES),
    AverageWeights: (_ASSIGNS, _AVERAGES),
    keras.callbacks.LearningRateScheduler: (_HAS_SCHEDULE, _RATE),
    keras.callbacks.ReduceLROnPlateau: (_HAS_SCHEDULE, _RATE),
}


def check_callbacks(callbacks: Sequence[Any]) -> None:
    """Refuses what is no callback, and callbacks that a run cannot have.

    Raises:
        ValueError: A callback cannot be used.
    """
    for callback in callbacks:
        if not isinstance(callback, keras.callbacks.Callback):
            raise ValueError(f"callbacks must be instances of keras.callbacks.Callback. Received: {callback!r}.")
        name = type(callback).__name__
        for kind, (reason, remedy) in _REFUSED.items():
            if isinstance(callback, kind):
                raise ValueError(f"A run cannot have the callback {name}: {reason}. {remedy}")
        if isinstance(callback, keras.callbacks.EarlyStopping) and callback.restore_best_weights:
            raise ValueError(
                f"A run cannot have the callback {name} with restore_best_weights=True: {_ASSIGNS}. Leave it out, and "
                "set patience in training: the run ends then, and its folder keeps the best weights in any case."
            )
        if isinstance(callback, keras.callbacks.ModelCheckpoint) and callback.save_best_only:
            raise ValueError(
                f"A run cannot have the callback {name} with save_best_only=True: when the run is resumed, it has "
                "forgotten the best value, and would replace its file by worse weights. Leave it out: the run folder "
                "keeps the best weights, by the monitor of training."
            )
