"""Memory that is free within the process is given back to the system."""

import ctypes


def give_back() -> None:
    """Gives back what the C library keeps of freed memory, where it is glibc.

    It keeps an arena for each thread. A version has threads of its own, whose arenas stay when it is let go, with holes
    that the threads of the next version do not fill. A load and a burst of requests leave such holes, too.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
