"""Memory that is free within the process is given back to the system."""

import ctypes
import os

_ONEDNN = "TF_ENABLE_ONEDNN_OPTS"  # TensorFlow reads it when it starts
_OFF = "0"


def give_back() -> None:
    """Gives back what the C library keeps of freed memory, where it is glibc.

    It keeps an arena for each thread. A version has threads of its own, whose arenas stay when it is let go, with holes
    that the threads of the next version do not fill. A load and a burst of requests leave such holes, too.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def start_without_onednn() -> None:
    """Has TensorFlow give back what it frees, for a command that holds weights and computes nothing with them.

    On x86-64, TensorFlow has oneDNN, and with it an allocator that keeps every large block until the process ends. Call
    this before TensorFlow starts. A user who has set the variable decides.
    """
    os.environ.setdefault(_ONEDNN, _OFF)


def has_onednn() -> bool:
    """Whether TensorFlow may have oneDNN."""
    return os.environ.get(_ONEDNN) != _OFF
