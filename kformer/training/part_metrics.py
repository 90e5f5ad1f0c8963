"""The metrics of each of several corpora at a validation."""

from collections.abc import Callable, Mapping
from typing import Any

import keras

from kformer.config import MONITORS


class PartMetrics:
    """Evaluates a model on the validation pairs of each corpus apart: loss, perplexity, accuracy.

    Keras evaluates all pairs together, and its metrics cannot tell afterwards whose they were. So the validation pairs
    are read a second time.

    Args:
        model: Compiled.
        parts: The batches of each corpus, by its name.
        on_batch: Called before each batch. It may end the validation by raising an exception.
    """

    def __init__(
        self, model: keras.Model, parts: Mapping[str, Any], on_batch: Callable[[], None] = lambda: None
    ) -> None:
        self.model = model
        self.parts = dict(parts)
        self.on_batch = on_batch

    def __call__(self) -> dict[str, float]:
        """The metrics of the current weights, by their names in the logs, with a corpus's name behind a blank."""
        wanted = [monitor for monitor in MONITORS.values() if monitor.translations is None]
        found: dict[str, float] = {}
        for name, batches in self.parts.items():
            leave = keras.callbacks.LambdaCallback(on_test_batch_begin=lambda batch, logs: self.on_batch())
            metrics = self.model.evaluate(batches, callbacks=[leave], verbose=0, return_dict=True)
            found |= {f"{one.log_key} {name}": metrics[one.metric] for one in wanted if one.metric in metrics}
        return found
