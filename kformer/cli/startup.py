"""Starts TensorFlow without the lines that it prints meanwhile."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator

from kformer.cli.progress import status


def start_tensorflow() -> None:
    """Imports TensorFlow and looks for devices once, with what its C++ side prints meanwhile held back.

    The lines about CPU instructions, missing GPU drivers and logging before initialisation go straight to
    file descriptor 2, past Python. If the import fails they are shown, since they may say why.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with status("starting TensorFlow"), _held_back_stderr():
        import tensorflow as tf

        tf.config.list_physical_devices()


@contextlib.contextmanager
def _held_back_stderr() -> Iterator[None]:
    sys.stderr.flush()
    former = os.dup(2)
    with tempfile.TemporaryFile() as held_back:
        os.dup2(held_back.fileno(), 2)
        try:
            yield
        except BaseException:
            held_back.seek(0)
            os.write(former, held_back.read())
            raise
        finally:
            os.dup2(former, 2)
            os.close(former)
