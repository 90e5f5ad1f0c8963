"""The commands of docs/your-corpus.md run as they stand."""

import json
import shlex

import pytest
from page_commands import blocks_of, run_block, served, wait_for_version

pytestmark = pytest.mark.tensorflow_only
PAGE = "your-corpus.md"


@pytest.mark.slow
def test_all_commands(tmp_path):
    making, looking, training, scoring, exporting, serving, asking, renewing = blocks_of(PAGE)
    run_block(making, tmp_path)
    told = run_block(looking, tmp_path)
    assert told.count("1,000 pairs") >= 4
    run_block(training, tmp_path)
    scores, *_, translation = run_block(scoring, tmp_path).splitlines()
    assert json.loads(scores)["bleu_interval"] >= 0
    assert (tmp_path / "training.png").is_file()
    assert translation
    run_block(exporting, tmp_path)
    with served(shlex.split(serving), tmp_path) as port:
        ask = asking.replace("localhost:8501", f"localhost:{port}")
        (answer,) = json.loads(run_block(ask, tmp_path))["predictions"]
        assert "translation" in answer
        run_block(renewing, tmp_path)
        wait_for_version(port, "en-es", "2")
