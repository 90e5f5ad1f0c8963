"""Scalars, texts and images for TensorBoard."""

import os
import pathlib
import time
from typing import Any

import keras
import numpy as np

from kformer.training.checkpoints import TrainingState


class TensorBoardLog(keras.callbacks.Callback):
    """Writes the logs of every epoch as scalars at `state.step`: training and validation as two runs of one tag.

    Unlike `keras.callbacks.TensorBoard` it counts updates, not epochs, and needs the package `tensorboard` only for
    viewing, not for writing. It needs TensorFlow on every backend. When a run is resumed, TensorBoard ignores what the
    killed run wrote after its last checkpoint.

    Args:
        directory: Gets the folders `train` and `validation`; a resumed run adds a file to each.
        state: Shared with the other callbacks; `TrackState` must come before.
    """

    def __init__(self, directory: str | pathlib.Path, state: TrainingState) -> None:
        super().__init__()
        self.directory = pathlib.Path(directory)
        self.state = state
        self._writers: dict[str, Any] = {}

    def on_train_begin(self, logs: dict | None = None) -> None:
        self._first_step = self.state.step

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        logs = logs or {}
        self._write_scalars("train", {name: value for name, value in logs.items() if not name.startswith("val_")})
        validation = {name.removeprefix("val_"): value for name, value in logs.items() if name.startswith("val_")}
        if validation:
            self._write_scalars("validation", validation)

    def on_train_end(self, logs: dict | None = None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the files. Keras calls `on_train_end` only if `fit` ends without an exception."""
        for writer in self._writers.values():
            writer.close()
        self._writers = {}

    def write_text(self, tag: str, markdown: str) -> None:
        """Writes a text of the validation at `state.step`."""
        import tensorflow as tf

        metadata = tf.compat.v1.SummaryMetadata(plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="text"))
        tensor = tf.make_tensor_proto([markdown], dtype=tf.string)
        self._write("validation", [tf.compat.v1.Summary.Value(tag=tag, tensor=tensor, metadata=metadata)])

    def write_image(self, tag: str, pixels: np.ndarray) -> None:
        """Writes an image of the validation, (height, width) uint8 from black to white, at `state.step`."""
        import tensorflow as tf

        image = tf.compat.v1.Summary.Image(
            height=pixels.shape[0],
            width=pixels.shape[1],
            colorspace=1,
            encoded_image_string=tf.io.encode_png(pixels[:, :, np.newaxis]).numpy(),
        )
        self._write("validation", [tf.compat.v1.Summary.Value(tag=tag, image=image)])

    def _write_scalars(self, run: str, scalars: dict[str, float]) -> None:
        import tensorflow as tf

        self._write(
            run, [tf.compat.v1.Summary.Value(tag=tag, simple_value=float(value)) for tag, value in scalars.items()]
        )

    def _write(self, run: str, values: list[Any]) -> None:
        # An event file is a TFRecord of Event messages. `tf.summary.scalar` would need the package tensorboard.
        import tensorflow as tf

        if run not in self._writers:
            folder = self.directory / run
            folder.mkdir(parents=True, exist_ok=True)
            self._writers[run] = tf.io.TFRecordWriter(
                os.fsencode(folder / f"events.out.tfevents.{time.time_ns()}")  # any bytes may be in a name
            )
            version = tf.compat.v1.Event(wall_time=time.time(), file_version="brain.Event:2")
            self._writers[run].write(version.SerializeToString())
            # This event makes TensorBoard ignore what earlier files hold from this step on.
            start = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
            restart = tf.compat.v1.Event(wall_time=time.time(), step=self._first_step + 1, session_log=start)
            self._writers[run].write(restart.SerializeToString())
        event = tf.compat.v1.Event(
            wall_time=time.time(), step=self.state.step, summary=tf.compat.v1.Summary(value=values)
        )
        self._writers[run].write(event.SerializeToString())
        self._writers[run].flush()
