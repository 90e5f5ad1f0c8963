"""One process owns a run folder: the others are refused, and a killed owner is told."""

import errno
import fcntl
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from kformer.runs import ownership
from kformer.runs.ownership import FolderLostError, RunInUseError, check_not_owned, owned

OWNER = """
import pathlib, sys, time
from kformer.runs.ownership import owned
with owned(pathlib.Path(sys.argv[1])):
    pathlib.Path(sys.argv[1], "begun").touch()
    print("owned", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def owner(tmp_path):
    """Another process that owns the folder `run`."""
    process = subprocess.Popen([sys.executable, "-c", OWNER, tmp_path / "run"], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "owned\n"
    yield process
    process.kill()
    process.communicate()


def test_a_folder_that_another_process_owns_is_refused_with_its_name(owner, tmp_path):
    said = rf"Another process works in .*run: process {owner.pid} on {socket.gethostname()} since 20\d\d-.*Wait until"
    with pytest.raises(RunInUseError, match=said), owned(tmp_path / "run"):
        pytest.fail("Two processes own the folder.")
    with pytest.raises(RunInUseError, match=said):
        check_not_owned(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "lock").read_text())["process"] == owner.pid  # the refused one wrote nothing


def test_a_killed_owner_is_told_and_the_folder_is_taken_over(owner, tmp_path):
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    check_not_owned(tmp_path / "run")
    notes = []
    with owned(tmp_path / "run", notes.append):
        assert json.loads((tmp_path / "run" / "lock").read_text())["process"] == os.getpid()
    (note,) = notes
    assert f"The last owner of {tmp_path / 'run'}, process {owner.pid} on" in note
    assert "ended without notice: it was killed. This process takes over." in note


def locked_for(seconds, path):
    """Locks the file in a thread for so long."""
    descriptor, begun = os.open(path, os.O_RDWR | os.O_CREAT), threading.Event()

    def hold():
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        begun.set()
        time.sleep(seconds)
        os.close(descriptor)

    thread = threading.Thread(target=hold)
    thread.start()
    begun.wait()
    return thread


def test_a_process_that_only_looks_does_not_keep_others_out(tmp_path):
    looking = locked_for(ownership.LOCK_SECONDS / 3, tmp_path / "lock")
    with owned(tmp_path):
        assert json.loads((tmp_path / "lock").read_text())["process"] == os.getpid()
    looking.join()


def test_the_name_is_that_of_an_owner_that_writes_it_only_now(tmp_path):
    """An owner has the lock before it has written its name over that of the last one."""
    (tmp_path / "lock").write_text(json.dumps({"host": "h", "process": 1, "since": "long ago"}))
    new = json.dumps({"host": "h", "process": 2, "since": "now"})
    owner = locked_for(8 * ownership.LOCK_SECONDS, tmp_path / "lock")
    writing = threading.Timer(ownership.LOCK_SECONDS / 3, lambda: (tmp_path / "lock").write_text(new))
    writing.start()
    with pytest.raises(RunInUseError, match="process 2 on h since now"), owned(tmp_path):
        pytest.fail("Two processes own the folder.")
    owner.join()


def test_an_owner_that_ends_leaves_nothing_to_tell(tmp_path):
    notes = []
    for _ in range(2):
        with owned(tmp_path, notes.append):
            (tmp_path / "begun").touch()
    assert notes == []
    assert (tmp_path / "lock").read_text() == ""


def test_a_folder_that_stays_empty_is_removed(tmp_path):
    with owned(tmp_path / "new" / "run"):
        assert (tmp_path / "new" / "run" / "lock").exists()
    assert not (tmp_path / "new" / "run").exists()


def test_the_folder_of_another_process_that_has_just_begun_is_not_removed(tmp_path):
    """The owner's folder was moved away, and another process has made one of the same name."""
    with owned(tmp_path / "run"):
        (tmp_path / "run").rename(tmp_path / "moved")
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "lock").write_text("another")
    assert (tmp_path / "run" / "lock").read_text() == "another"


def test_a_folder_removed_while_it_is_locked_is_made_anew(tmp_path, monkeypatch):
    """Another process leaves the folder empty between the opening of the lock file and its lock."""
    flock, path = ownership.fcntl.flock, tmp_path / "run" / "lock"

    def removed_first(descriptor, operation):
        monkeypatch.setattr(ownership.fcntl, "flock", flock)
        path.unlink()
        path.parent.rmdir()
        flock(descriptor, operation)

    monkeypatch.setattr(ownership.fcntl, "flock", removed_first)
    with owned(tmp_path / "run"):
        assert json.loads(path.read_text())["process"] == os.getpid()
        with pytest.raises(RunInUseError):
            check_not_owned(tmp_path / "run")


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL])
def test_without_locks_an_owner_is_believed_to_train_until_its_name_is_removed(number, tmp_path, monkeypatch):
    def no_locks(descriptor, operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(ownership.fcntl, "flock", no_locks)
    notes = []
    with owned(tmp_path, notes.append):
        assert f"The file system of {tmp_path} has no locks" in notes[0]
        (tmp_path / "begun").touch()
        with pytest.raises(RunInUseError, match=f"If it has ended, remove {tmp_path}/lock and start"), owned(tmp_path):
            pytest.fail("Two processes own the folder.")
        assert json.loads((tmp_path / "lock").read_text())["process"] == os.getpid()  # the refused one wrote nothing
    with owned(tmp_path):  # an owner that ends in good order takes its name out
        pass


def test_a_folder_removed_while_it_is_owned_hides_no_error(tmp_path):
    def work():
        with owned(tmp_path / "run"):
            shutil.rmtree(tmp_path / "run")
            raise ValueError("the error that counts")

    with pytest.raises(ValueError, match="the error that counts"):
        work()


def test_the_lock_is_held_until_an_empty_folder_is_removed(tmp_path, monkeypatch):
    removed, unlink = [], pathlib.Path.unlink

    def another_begins_beside(path):
        with pytest.raises(RunInUseError):
            check_not_owned(tmp_path / "run")
        removed.append(path.name)
        unlink(path)

    monkeypatch.setattr(pathlib.Path, "unlink", another_begins_beside)
    with owned(tmp_path / "run"):
        pass
    assert removed == ["lock"]


def test_a_broken_file_system_is_not_taken_for_another_owner(tmp_path, monkeypatch):
    def broken(descriptor, operation):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(ownership.fcntl, "flock", broken)
    with pytest.raises(OSError, match="Input/output error"), owned(tmp_path):
        pytest.fail("The folder is owned without a lock.")


@pytest.mark.parametrize("what", ["the folder", "its lock"])
def test_an_owner_notices_that_its_folder_was_moved_or_removed(what, tmp_path):
    run = tmp_path / "run"
    with owned(run) as check_there:
        (run / "begun").touch()
        check_there()
        if what == "the folder":
            run.rename(tmp_path / "moved")
        else:
            (run / "lock").unlink()
        with pytest.raises(FolderLostError, match="was moved or removed while this process worked there"):
            check_there()
        with owned(run) as check_there_too:  # another process begins in the folder of that name
            check_there_too()
            with pytest.raises(FolderLostError):
                check_there()
