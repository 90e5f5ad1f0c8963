"""Files and folders that are written whole or not at all."""

import json
import os
import pathlib
import stat
import subprocess
import sys

import pytest

from kformer.files import writing
from kformer.files.writing import check_file_path, new_folder, replacing, replacing_folder, write_json, write_text
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
    assert events == ["sync a", "rename to a", f"sync {tmp_path.name}"]
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


def test_the_longest_names_that_are_allowed(tmp_path):
    for name in ("n" * 255, "\u540d" * 85):  # 255 bytes
        write_text(tmp_path / name, "whole")
        with replacing_folder(tmp_path / "run" / name):
            pass
    assert len(os.listdir(tmp_path)) == 3


def test_hidden_folders_of_others_are_left_alone(tmp_path):
    """Only what a killed process of kformer has left is removed."""
    for name in (".bible-notes", ".kformer-bible-notes", ".kformer-bible-abandoned", ".kformer-bible-replaced"):
        (tmp_path / name).mkdir()
    (tmp_path / ".kformer-bible-notes" / "diary.txt").touch()
    (tmp_path / ".kformer-bible-abandoned" / "new").mkdir()
    (tmp_path / ".kformer-bible-replaced" / "old").mkdir()  # killed before the new folder got its name
    with new_folder(tmp_path / "bible"):
        pass
    kept = [".bible-notes", ".kformer-bible-notes", ".kformer-bible-replaced", "bible"]
    assert sorted(os.listdir(tmp_path)) == kept


def test_two_writers_of_one_file_do_not_mix(tmp_path):
    (tmp_path / "partial-a").write_text("of a user")
    with replacing(tmp_path / "a") as first:
        first.write_text("first, longer")
        with replacing(tmp_path / "a") as second:
            second.write_text("second")
        assert (tmp_path / "a").read_text() == "second"
    assert (tmp_path / "a").read_text() == "first, longer"
    assert sorted(os.listdir(tmp_path)) == ["a", "partial-a"]


@pytest.mark.parametrize(("module", "function"), [("os", "open"), ("fcntl", "flock")])
def test_a_folder_that_another_process_takes_for_abandoned_before_it_is_locked_is_made_anew(
    module, function, tmp_path, monkeypatch
):
    called = getattr(getattr(writing, module), function)

    def removed_first(*arguments):
        monkeypatch.undo()
        for folder in tmp_path.iterdir():
            folder.rmdir()
        return called(*arguments)

    monkeypatch.setattr(f"kformer.files.writing.{module}.{function}", removed_first)
    write_text(tmp_path / "a", "text")
    assert (tmp_path / "a").read_text() == "text"


def test_a_path_that_is_not_utf_8_can_be_written_as_json(tmp_path):
    path = os.fsdecode(b"run\xff")
    write_json(tmp_path / "a.json", {"run": path})
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == {"run": path}


@pytest.mark.parametrize("content", ["old", None])
def test_a_symbolic_link_stays_and_its_target_is_written(content, tmp_path):
    (tmp_path / "data").mkdir()
    if content is not None:
        (tmp_path / "data" / "out.txt").write_text(content)
    (tmp_path / "data" / "inner").symlink_to("out.txt")
    (tmp_path / "link").symlink_to("data/inner")
    check_file_path(tmp_path / "link")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "data" / "inner").is_symlink()
    assert (tmp_path / "data" / "out.txt").read_text() == "new"
    assert sorted(os.listdir(tmp_path)) == ["data", "link"]


def test_a_symbolic_link_to_a_folder_stays_and_the_folder_is_replaced(tmp_path):
    (tmp_path / "first").mkdir()
    (tmp_path / "link").symlink_to("first")
    with replacing_folder(tmp_path / "link") as folder:
        (folder / "b").touch()
    assert (tmp_path / "link").is_symlink()
    assert os.listdir(tmp_path / "first") == ["b"]


def test_links_that_lead_round_in_a_circle_are_refused(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="leads round in a circle. Name another file"):
        check_file_path(tmp_path / "a")


def test_the_permissions_of_a_replaced_file_stay(tmp_path):
    (tmp_path / "private").touch(mode=0o600)
    write_text(tmp_path / "private", "new")
    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o600


def test_a_pipe_is_written_to_and_stays(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    check_file_path(tmp_path / "pipe")
    with subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE, text=True) as reader:
        write_text(tmp_path / "pipe", "text")
        assert reader.communicate()[0] == "text"
    assert (tmp_path / "pipe").is_fifo()


def test_standard_output_is_written_to_by_its_name_and_by_a_link_to_it(tmp_path):
    """The links in the folder stand for those in /dev, which root could replace for all programs."""
    (tmp_path / "stdout").symlink_to("/proc/self/fd/1")
    for path in ("stdout", "/proc/self/fd/1", "/dev/fd/1"):
        code = f"from kformer.files.writing import write_text; write_text({path!r}, 'text')"
        with (tmp_path / "file").open("w") as file:
            subprocess.run([sys.executable, "-c", code], cwd=tmp_path, stdout=file, check=True)
            assert (tmp_path / "file").stat().st_ino == os.fstat(file.fileno()).st_ino
        assert (tmp_path / "file").read_text() == "text"
        found = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert found.stdout == "text"
    assert (tmp_path / "stdout").is_symlink()


def test_a_name_may_be_as_long_as_the_system_allows(tmp_path):
    write_text(tmp_path / ("a" * 255), "text")
    assert (tmp_path / ("a" * 255)).read_text() == "text"
