"""What the README shows is what works."""

import dataclasses
import pathlib
import re

import pytest

from kformer.data import load_corpus

README = pathlib.Path(__file__).parents[2] / "README.md"


@pytest.mark.slow
@pytest.mark.in_ci
@pytest.mark.tensorflow_only
def test_the_python_examples_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    first, second = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert "steps_per_epoch=300, epochs=2" in first
    quick = first.replace("steps_per_epoch=300, epochs=2", "steps_per_epoch=2, epochs=1")
    assert 'of_size("small", **sizes)' in quick
    quick = quick.replace(
        'of_size("small", **sizes)', 'of_size("small", num_encoder_layers=1, num_decoder_layers=1, **sizes)'
    )
    corpus = load_corpus("bible-en-es")
    small = dataclasses.replace(corpus, train=corpus.train[:5000])
    monkeypatch.setattr("kformer.data.load_corpus", {"bible-en-es": small}.__getitem__)
    exec(compile(quick, str(README), "exec"), {})
    assert (tmp_path / "exported" / "translator" / "1" / "saved_model.pb").is_file()
    exec(compile(second, str(README), "exec"), {})
    assert "'translation': <tf.Tensor: shape=(1,), dtype=string" in capsys.readouterr().out
