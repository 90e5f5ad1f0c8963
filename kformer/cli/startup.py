"""Starts TensorFlow for a command."""

from kformer.cli.progress import status


def start_tensorflow() -> None:
    """Imports TensorFlow and looks for devices. A terminal shows a message meanwhile.

    `import kformer` has made TensorFlow quiet, see `kformer.process.quiet`.
    """
    with status("starting TensorFlow"):
        import tensorflow as tf

        tf.config.list_physical_devices()
