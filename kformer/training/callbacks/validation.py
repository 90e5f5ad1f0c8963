"""A validation, from the checkpoint before it to the decision whether the run goes on."""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence

import keras

from kformer.training.callbacks.budget import Budget
from kformer.training.callbacks.checkpoint import Checkpoint
from kformer.training.callbacks.kept_weights import KeepBest, keep_last
from kformer.training.callbacks.progress_bar import ProgressBar
from kformer.training.callbacks.stop_together import end_run
from kformer.training.checkpoints import TrainingState
from kformer.training.optimizers import inner_optimizer


@dataclasses.dataclass(frozen=True)
class InMainProcess:
    """What only the main process does at a validation: it writes and shows.

    Attributes:
        weights_folder: Gets the weights of the last validations.
        keep_weights: The number of validations whose weights are kept.
        progress: Shows the metrics.
        show_samples: Shows translations; None: there are none.
        export_best: Exports the weights that were just kept as the best; None: they are not exported.
    """

    weights_folder: pathlib.Path
    keep_weights: int
    progress: ProgressBar
    show_samples: Callable[[], None] | None = None
    export_best: Callable[[], None] | None = None


class Validation(keras.callbacks.Callback):
    """All that a run does at a validation besides Keras's own computation of the metrics.

    When the validation begins, the averages of the weights are put into the model, if the optimizer keeps them. They
    stay there until `Checkpoint` puts the trained weights back, so the callbacks between the two see the weights that
    are validated. (Keras's `SwapEMAWeights` swaps by sums and differences, which are rounded, so that validations would
    change the weights.)

    Args:
        state: Shared with the other callbacks; `TrackState` must come before.
        checkpoint: Saves the run, so that a stop during the validation loses no training.
        keep_best: Keeps the best weights.
        budget: The run ends when its patience does.
        scores: Each measures the current weights, and returns metrics for the logs: of translations, for example.
        main: None where another process writes and shows.
    """

    def __init__(
        self,
        state: TrainingState,
        checkpoint: Checkpoint,
        keep_best: KeepBest,
        budget: Budget,
        scores: Sequence[Callable[[], Mapping[str, float]]] = (),
        main: InMainProcess | None = None,
    ) -> None:
        super().__init__()
        self.state = state
        self.checkpoint = checkpoint
        self.keep_best = keep_best
        self.budget = budget
        self.scores = scores
        self.main = main

    def on_test_begin(self, logs: dict | None = None) -> None:
        self.checkpoint.save(validating=True)
        inner_optimizer(self.model.optimizer).put_averages(in_model=True)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        logs = {} if logs is None else logs
        for score in self.scores:
            logs.update(score())
        is_best = self.keep_best(self.model, logs)
        if self.main is not None:
            keep_last(self.main.weights_folder, self.model, self.state.step, self.main.keep_weights)
            self.main.progress.show_validation(logs)
            if self.main.show_samples is not None:
                self.main.show_samples()
            if is_best and self.main.export_best is not None:
                self.main.export_best()
        if (spent := self.budget.out_of_patience(self.state)) is not None:
            end_run(self.model, self.state, spent.now)
