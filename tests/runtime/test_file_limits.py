"""The kinds and sizes of a version's files, which are looked at before any of them is opened."""

import os
import warnings

import pytest

from kformer.runtime.confinement import check_confined
from kformer.runtime.export_check import check_export
from kformer.runtime.export_description import description
from kformer.runtime.file_limits import MOST_EXTRA_BYTES, MOST_GRAPH_BYTES, check_files, outside_links


@pytest.fixture
def version(tmp_path):
    (tmp_path / "1" / "variables").mkdir(parents=True)
    (tmp_path / "1" / "saved_model.pb").touch()
    (tmp_path / "1" / "variables" / "variables.index").touch()
    return tmp_path / "1"


def test_a_relative_path_and_a_linked_folder_lead_to_the_same_files(version, monkeypatch):
    (version.parent / "link").symlink_to(version)
    monkeypatch.chdir(version.parent)
    for path in ("1", "link", version.parent / "link"):
        assert outside_links(path) == []


def test_regular_files_are_accepted(version):
    check_files(version)


@pytest.mark.parametrize("name", ["saved_model.pb", "variables/variables.index"])
def test_a_device_has_no_end_and_is_not_read(version, name):
    (version / name).unlink()
    (version / name).symlink_to("/dev/zero")
    for check in (check_files, check_confined):
        with pytest.raises(ValueError, match=f"{name} is no regular file"):
            check(version)


def test_a_pipe_is_not_waited_for(version):
    (version / "saved_model.pb").unlink()
    os.mkfifo(version / "saved_model.pb")
    with pytest.raises(ValueError, match="saved_model.pb is no regular file"):
        check_confined(version)


@pytest.mark.parametrize(
    ("name", "most"),
    [("saved_model.pb", MOST_GRAPH_BYTES), ("assets.extra/tf_serving_warmup_requests", MOST_EXTRA_BYTES)],
)
def test_a_file_that_is_too_large_is_not_read(version, name, most):
    (version / name).parent.mkdir(exist_ok=True)
    with (version / name).open("wb") as file:
        file.truncate(most)
        check_files(version)
        file.truncate(most + 1)  # a file with holes, which takes no room
    with pytest.raises(ValueError, match=f"{name} may have {most:,} bytes. Received: {most + 1:,}"):
        check_files(version)


def test_a_folder_without_a_graph_is_no_saved_model(version):
    (version / "saved_model.pb").unlink()
    with pytest.raises(ValueError, match="is no SavedModel: there is no saved_model.pb"):
        check_files(version)


def test_links_are_accepted_within_the_folder_only(version):
    (version / "variables" / "again").symlink_to("variables.index")
    (version / "more").symlink_to(version / "variables")
    check_files(version)
    assert outside_links(version) == []
    (version / "variables" / "out").symlink_to(version.parent)
    assert outside_links(version) == [version / "variables" / "out"]


@pytest.mark.parametrize("name", ["../../secret", "/proc/version"])
def test_checksums_of_files_elsewhere_are_not_computed(version, name):
    (version.parent / "secret").touch()
    (version / "assets.extra").mkdir()
    (version / "assets.extra" / "SHA256SUMS").write_text(f"{'0' * 64}  {name}\n")
    with pytest.raises(ValueError, match=f"SHA256SUMS lists {name}, which is not in"):
        check_export(version)


def test_a_link_out_of_the_folder_is_not_followed_before_it_is_refused(version):
    (version / "assets.extra").mkdir()
    (version / "assets.extra" / "kformer.json").symlink_to("/proc/version")
    with pytest.raises(ValueError, match="uses files outside its folder: .*kformer.json"):
        check_export(version)


def test_what_cannot_be_read_is_not_called_damaged(version):
    (version / "saved_model.pb").unlink()
    (version / "saved_model.pb").symlink_to("nothing")  # as on a disk that is away
    with pytest.raises(FileNotFoundError):
        check_files(version)


def described(version, content):
    """Writes what an export says of itself."""
    (version / "assets.extra").mkdir()
    (version / "assets.extra" / "kformer.json").write_bytes(content)


def test_a_model_of_another_program_has_no_description(version):
    assert description(version) == {}


DAMAGED = ["half an object", "a list", "null", "no text", "deep"]


@pytest.mark.parametrize("content", [b"{", b"[1]", b"null", b"\xff", b"[" * 100_000], ids=DAMAGED)
def test_a_damaged_description_is_told(version, content):
    described(version, content)
    with pytest.raises(ValueError, match="kformer.json is damaged: .* Export the model again."):
        description(version)


@pytest.mark.parametrize(
    ("precision", "multiplies", "is_slow"),
    [("bfloat16", False, True), ("bfloat16", True, False), ("float32", False, False)],
)
def test_a_processor_that_only_emulates_the_precision_of_an_export_is_told(
    version, precision, multiplies, is_slow, monkeypatch
):
    monkeypatch.setattr("kformer.runtime.export_check.cpu_multiplies_bfloat16", lambda: multiplies)
    described(version, b'{"precision": "%s"}' % precision.encode())
    with warnings.catch_warnings(record=True, action="always") as told:
        check_export(version)
    assert [str(warning.message) for warning in told] == is_slow * [
        f"{version} computes in bfloat16, which this CPU only emulates: it will be slow. Export with --precision "
        "float32 for this machine."
    ]
