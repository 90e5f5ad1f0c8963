"""docs/layers.md shows what works."""

import pathlib
import re

import pytest
import tensorflow as tf

from kformer.tasks.translator import Translator

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "layers.md"


@pytest.mark.tensorflow_only
@pytest.mark.filterwarnings("ignore:Even though the `tf.config.experimental_run_functions_eagerly`")
def test_the_code_on_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # The page names a preset whose `fit` takes seconds; a smaller one has the same layers.
    load, smaller = Translator.from_preset, {"bible-en-es": "cmudict"}
    monkeypatch.setattr(Translator, "from_preset", lambda preset: load(smaller[preset]))
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) == 8
    names = {}
    tf.config.run_functions_eagerly(True)  # each `fit` has one step: tracing it would take most of the time
    try:
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), names)
    finally:
        tf.config.run_functions_eagerly(False)
