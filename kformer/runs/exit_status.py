"""How a command ended, for the programs that start it: the exit statuses."""

import errno

from kformer.files.writing import WriteError
from kformer.runs.ownership import RunInUseError

FINISHED = 0
USER_ERROR = 1  # an option, an input or a file is wrong: a person must change something
USAGE = 2  # the command line cannot be parsed (Click's status)
DIVERGED = 3  # the loss is not finite any more
WRITING = 74  # a file could not be written, such as on a full disk (EX_IOERR): resume when the cause is removed
RESUME = 75  # stopped by a signal, or another process was lost or owns the run (EX_TEMPFAIL): resume
INTERRUPTED = 130  # stopped at once, by a second Ctrl-C or before the training began (128 + SIGINT): resume


def exit_status(error: BaseException) -> int:
    """The exit status of a command that ends by this error."""
    if isinstance(error, FloatingPointError):
        return DIVERGED
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, RunInUseError | ConnectionError):
        return RESUME
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
    return WRITING if full or isinstance(error, WriteError) else USER_ERROR
