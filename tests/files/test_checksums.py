"""Checksums of a folder's files: what was damaged, edited or lost is told."""

import os
import subprocess

import pytest

from kformer.files import checksums
from kformer.files.checksums import DamagedFileError, check_file, check_folder, note_checksums, replacing_noted


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(checksums, "_SECONDS_BETWEEN", 0.0)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "part").mkdir()
    files = [tmp_path / "a.json", tmp_path / "part" / "b c.txt"]
    for file in files:
        file.write_text(f"content of {file.name}")
    note_checksums(tmp_path, files)
    return tmp_path


def test_the_command_sha256sum_checks_the_same_file(folder):
    assert subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, check=False).returncode == 0
    (folder / "a.json").write_text("other")
    assert subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=folder, check=False).returncode == 1


def test_every_flipped_bit_of_a_file_and_of_its_checksums_is_found(folder):
    check_folder(folder)
    for name in ("a.json", "part/b c.txt", "SHA256SUMS"):
        content = (folder / name).read_bytes()
        for bit in range(8 * len(content)):
            flipped = bytearray(content)
            flipped[bit // 8] ^= 1 << bit % 8
            (folder / name).write_bytes(flipped)
            with pytest.raises(DamagedFileError, match="does not match its checksum|is missing|is damaged: a line"):
                check_folder(folder)
        (folder / name).write_bytes(content)


def test_a_missing_file_is_told(folder):
    (folder / "a.json").unlink()
    with pytest.raises(DamagedFileError, match=r"a.json is missing: .*SHA256SUMS lists it. Restore it from a copy."):
        check_folder(folder)
    check_folder(folder, but=(".json",))
    (folder / "SHA256SUMS").unlink()
    with pytest.raises(DamagedFileError, match="SHA256SUMS is missing or empty"):
        check_folder(folder)


@pytest.mark.parametrize("put", [lambda path: path.mkdir(), lambda path: path.symlink_to("nowhere"), os.mkfifo])
def test_checksums_that_are_no_file_are_not_taken_for_none(folder, put):
    (folder / "SHA256SUMS").unlink()
    put(folder / "SHA256SUMS")
    with pytest.raises(DamagedFileError, match=r"SHA256SUMS is no file. Restore it from a copy."):
        check_file(folder / "a.json")


def test_an_edited_file_is_told_with_the_way_to_note_it_anew(folder):
    (folder / "a.json").write_text("edited")
    said = r"edited. Ask Ann. If you edited the file .* `cd .* && sha256sum a.json` prints"
    with pytest.raises(DamagedFileError, match=said):
        check_file(folder / "a.json", "Ask Ann.")


def test_lines_of_files_that_are_gone_are_dropped(folder):
    (folder / "a.json").unlink()
    note_checksums(folder, [])
    check_folder(folder)
    assert [line.split("  ")[1] for line in (folder / "SHA256SUMS").read_text().splitlines()] == ["part/b c.txt"]


def test_a_file_that_is_replaced_passes_at_every_moment(folder):
    path = folder / "a.json"
    with replacing_noted(path) as partial:
        partial.write_text("new")
        check_file(path)  # the old content
    assert path.read_text() == "new"
    check_file(path)
    assert (folder / "SHA256SUMS").read_text().count("a.json") == 1


def test_a_process_killed_before_the_new_name_leaves_a_good_file(folder, monkeypatch):
    class Killed(BaseException):
        pass

    def killed(*arguments):
        raise Killed

    monkeypatch.setattr(checksums, "note_checksums", killed)
    with pytest.raises(Killed), replacing_noted(folder / "a.json") as partial:
        partial.write_text("new")
    check_folder(folder)  # both contents are noted, and the new one is there


def test_a_file_replaced_while_it_is_checked_is_read_again(folder, monkeypatch):
    """The file is replaced twice between the two readings, so that the checksum of its old content is gone."""
    checksum, path = checksums.checksum, folder / "a.json"

    def then_replaced(file):
        monkeypatch.setattr(checksums, "checksum", checksum)
        found = checksum(file)
        for text in ("second", "third"):
            with replacing_noted(path) as partial:
                partial.write_text(text)
        return found

    monkeypatch.setattr(checksums, "checksum", then_replaced)
    check_file(path)
    assert path.read_text() == "third"  # the replacement came in the middle of the check
