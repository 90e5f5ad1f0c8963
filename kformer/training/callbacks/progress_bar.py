"""The progress line of a training run."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping

import keras
import rich.console
import rich.progress

from kformer.config import MONITORS
from kformer.process.console import Console
from kformer.training.checkpoints import TrainingState

_REFRESH_SECONDS = 0.5
_OF_TRAINING = ("loss", "accuracy")  # training metrics to show, over the batches of the epoch so far


class ProgressBar(keras.callbacks.Callback):
    """A live line with updates, loss, accuracy, target tokens per second and time left; and a line per validation.

    If the output is not a terminal, a plain line is printed every `line_seconds` instead. Other code prints above the
    live line through `progress_bar.console`. The line is not updated at every batch, to save time.

    Args:
        state: Shared with the other callbacks; `TrackState` must come before.
        total_steps: Updates of the whole run; None: unknown.
        max_minutes: Minutes of the whole run, those before a resume included; None: no limit. The bar shows the limit
            that will be reached first.
        console: Where to print; None: standard output.
        line_seconds: Seconds between plain lines.
        clock: Returns the time in seconds; tests replace it.
    """

    async_safe = True

    def __init__(
        self,
        state: TrainingState,
        total_steps: int | None = None,
        max_minutes: float | None = None,
        console: rich.console.Console | None = None,
        line_seconds: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.state = state
        self.total_steps = total_steps
        self.max_minutes = max_minutes
        self.console = console or Console()
        self.line_seconds = line_seconds
        self.clock = clock
        self._live: rich.progress.Progress | None = None
        self._lock = threading.Lock()  # on JAX, ends of batches come from several threads

    def on_train_begin(self, logs: dict | None = None) -> None:
        self._began = self._shown_at = self.clock()
        self._first_step = self.state.step
        self._run_began = self._began - self.state.seconds
        if self.console.is_terminal:
            columns = (rich.progress.BarColumn(), rich.progress.TextColumn("{task.description}", markup=False))
            self._live = rich.progress.Progress(*columns, console=self.console, transient=True)
            self._task = self._live.add_task("compiling the first step", total=1.0)
            self._live.start()

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        # Where an epoch is resumed in its middle, its tokens so far are restored, and are none of this time.
        self._tokens_shown: float | None = None if self.state.epoch_batch else 0.0
        self._tokens_at = self.clock()

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        with self._lock:
            now = self.clock()
            if now - self._shown_at < (_REFRESH_SECONDS if self._live else self.line_seconds):
                return
            self._shown_at = now
            text = self._text(now, logs or {})
            if self._live:
                self._live.update(self._task, description=text, completed=self._share_done(now))
            else:
                self._print(text)

    def on_test_begin(self, logs: dict | None = None) -> None:
        if self._live:
            self._live.update(self._task, description=f"step {self.state.step}  validating")

    def show_validation(self, logs: Mapping[str, float]) -> None:
        """Prints a line with the metrics of the epoch and of its validation."""
        parts = [f"step {self.state.step}", *_metrics(logs, _OF_TRAINING)]
        of_validation = _metrics(logs, MONITORS, "val_")
        if of_validation:
            parts += ["validation:", *of_validation]
        if "tokens_per_second" in logs:
            parts.append(f"{logs['tokens_per_second']:,.0f} tokens/s")
        self._print("  ".join(parts))
        for corpus in dict.fromkeys(name.partition(" ")[2] for name in logs if " " in name):
            of_corpus = {name.removesuffix(f" {corpus}"): logs[name] for name in logs if name.endswith(f" {corpus}")}
            self._print(f"  {corpus}: {'  '.join(_metrics(of_corpus, MONITORS, 'val_'))}")

    def on_train_end(self, logs: dict | None = None) -> None:
        self.close()

    def close(self) -> None:
        """Removes the live line and restores the terminal."""
        if self._live:
            self._live.stop()
            self._live = None

    def _print(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _text(self, now: float, logs: dict) -> str:
        total = f"/{self.total_steps}" if self.total_steps else ""
        parts = [f"step {self.state.step}{total}", *_metrics(logs, _OF_TRAINING)]
        if "tokens" in logs and now > self._tokens_at:
            if self._tokens_shown is not None:
                rate = max(0.0, logs["tokens"] - self._tokens_shown) / (now - self._tokens_at)
                parts.append(f"{rate:,.0f} tokens/s")
            self._tokens_shown, self._tokens_at = logs["tokens"], now
        seconds_left = self._seconds_left(now)
        if seconds_left is not None:
            parts.append(f"{_duration(seconds_left)} left")
        return "  ".join(parts)

    def _seconds_left(self, now: float) -> float | None:
        estimates = []
        done = self.state.step - self._first_step
        if self.total_steps is not None and done:
            estimates.append((self.total_steps - self.state.step) * (now - self._began) / done)
        if self.max_minutes is not None:
            estimates.append(self._run_began + self.max_minutes * 60 - now)
        return max(0.0, min(estimates)) if estimates else None

    def _share_done(self, now: float) -> float:
        """The share of the budget that is spent, from 0 to 1; with two limits, the larger share."""
        shares = [0.0]
        if self.total_steps is not None:
            shares.append(self.state.step / self.total_steps)
        if self.max_minutes is not None:
            shares.append((now - self._run_began) / (self.max_minutes * 60))
        return min(1.0, max(shares))


def _metrics(logs: Mapping[str, float], names: Iterable[str], prefix: str = "") -> list[str]:
    """The metrics that the logs have, as texts. Without the metric `TokenLoss`, the loss is Keras's own mean."""
    found = []
    for name in names:
        monitor = MONITORS[name]
        value = logs.get(prefix + monitor.metric, logs.get(prefix + name))
        if value is not None:
            found.append(f"{monitor.label} {value:.{monitor.decimals}f}")
    return found


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"
