"""Files and folders that are written whole or not at all."""

import os
import pathlib

import pytest

from kformer.files import new_folder, replacing_folder, write_text
from kformer.runs.ownership import owned


@pytest.fixture
def events(monkeypatch):
    """What is put on the disk, by name, and what gets a new name, in order."""
    found, fsync = [], os.fsync

    def synced(descriptor):
        found.append(f"sync {os.path.basename(os.readlink(f'/proc/self/fd/{descriptor}'))}")
        fsync(descriptor)

    def renamed(rename):
        def noted(path, target):
            found.append(f"rename to {target.name}")
            return rename(path, target)

        return noted

    monkeypatch.setattr(os, "fsync", synced)
    for name in ("replace", "rename"):
        monkeypatch.setattr(pathlib.Path, name, renamed(getattr(pathlib.Path, name)))
    return found


def test_content_is_on_the_disk_before_it_gets_its_name_and_the_name_before_the_end(events, tmp_path):
    write_text(tmp_path / "a", "text")
    assert events == ["sync partial-a", "rename to a", f"sync {tmp_path.name}"]
    events.clear()
    with new_folder(tmp_path / "new") as folder:
        (folder / "b").touch()
    assert events == ["sync b", "sync new", "rename to new", f"sync {tmp_path.name}"]
    events.clear()
    with owned(tmp_path):
        assert events == ["sync lock"]  # other machines read the owner's name


def test_a_folder_that_another_process_makes_meanwhile_is_kept(tmp_path):
    def write():
        with new_folder(tmp_path / "new") as folder:
            (folder / "b").touch()
            (tmp_path / "new").mkdir()  # the system would replace an empty folder

    with pytest.raises(FileExistsError, match="exists already. Name another folder"):
        write()
    assert list((tmp_path / "new").iterdir()) == []


def test_a_folder_that_cannot_be_replaced_stays(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "a").touch()
    rename = pathlib.Path.rename

    def full(path, target):
        if path.name == "new":
            raise OSError("No space left on device")
        return rename(path, target)

    def write():
        with replacing_folder(tmp_path / "run") as folder:
            (folder / "b").touch()
            monkeypatch.setattr(pathlib.Path, "rename", full)

    with pytest.raises(OSError, match="No space left on device"):
        write()
    assert [entry.name for entry in (tmp_path / "run").iterdir()] == ["a"]
