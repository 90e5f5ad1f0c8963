"""The file that tells a program how a run ended."""

import json

import pytest

from kformer.runs.folder import RunFolder
from kformer.runs.summary import check_summary, failures_noted


@pytest.mark.parametrize("content", ["", "text", "5", "[]", '{"name": "numbers"}'])
def test_a_file_that_is_no_summary_is_refused_and_stays(content, tmp_path):
    (tmp_path / "end.json").write_text(content)
    with pytest.raises(ValueError, match="end.json exists and is no summary of a run. Name another file, or remove"):
        check_summary(tmp_path / "end.json", RunFolder(tmp_path / "run"))
    assert (tmp_path / "end.json").read_text() == content


def test_an_error_without_a_message_is_noted_by_its_kind(tmp_path):
    with pytest.raises(KeyboardInterrupt), failures_noted(tmp_path / "end.json"):
        raise KeyboardInterrupt
    assert json.loads((tmp_path / "end.json").read_text()) == {"exit_status": 130, "reason": "KeyboardInterrupt"}
