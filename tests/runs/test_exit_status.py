"""What a program that starts a run learns from its exit status."""

import errno
import os

import pytest

from kformer.files.writing import WriteError
from kformer.runs.exit_status import exit_status
from kformer.runs.ownership import FolderLostError, RunInUseError


@pytest.mark.parametrize(
    ("error", "status"),
    [
        *(
            (OSError(number, os.strerror(number)), 74)
            for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
        ),
        (WriteError("the disk"), 74),
        (PermissionError(errno.EACCES, "not yours"), 1),
        (FolderLostError("moved"), 1),
        (RuntimeError("anything else"), 1),
        (RunInUseError("another process"), 75),
        (ConnectionResetError(errno.ECONNRESET, "the other process"), 75),
        (FloatingPointError("nan"), 3),
        (KeyboardInterrupt(), 130),
    ],
)
def test_the_status_tells_whether_to_resume_at_once_or_later_or_to_change_something(error, status):
    assert exit_status(error) == status
