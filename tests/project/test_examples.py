"""Every public class and function has an example in its docstring, and it is true."""

import doctest
import importlib
import inspect

import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow_only
# What a user imports from; each has an __all__, or its public names are those that it defines.
PACKAGES = [
    *("kformer", "kformer.layers", "kformer.models", "kformer.losses", "kformer.losses.inputs", "kformer.metrics"),
    *(
        "kformer.schedules",
        "kformer.decoding",
        "kformer.data",
        "kformer.tokenizers",
        "kformer.presets",
        "kformer.evaluation",
        "kformer.inference",
    ),
    *("kformer.serving", "kformer.tasks", "kformer.visualization"),
]
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def public_objects():
    """The full name of each class and function, and the object: those that stand in several packages once."""
    found = {}
    for name in PACKAGES:
        module = importlib.import_module(name)
        own = [key for key, value in vars(module).items() if getattr(value, "__module__", None) == name]
        for key in getattr(module, "__all__", own):
            value = getattr(module, key)
            is_ours = (inspect.isclass(value) or inspect.isfunction(value)) and not key.startswith("_")
            if is_ours and value not in found.values():
                found[f"{name}.{key}"] = value
    return found


OBJECTS = public_objects()
# What these show is tested by itself; each writes and loads a model again, which takes some ten seconds.
LONG = {"kformer.export_safetensors", "kformer.inference.answer_column", "kformer.inference.answer_column_with_scores"}


@pytest.fixture(scope="module")
def surroundings():
    """What examples may use without importing it."""
    import kformer

    translator = kformer.Translator.from_preset("cmudict", kformer.DecodingConfig(beam_size=2))
    return {"np": np, "kformer": kformer, "translator": translator}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in OBJECTS]
)
def test_an_example_says_what_happens(name, surroundings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.tsv").write_text("one two\tuno dos\nthree\ttres\n", encoding="utf-8")
    package = importlib.import_module(name.rpartition(".")[0])
    names = {key: getattr(package, key) for key in getattr(package, "__all__", vars(package))}
    text = inspect.cleandoc(OBJECTS[name].__doc__)
    test = doctest.DocTestParser().get_doctest(text, {**names, **surroundings}, name, None, 0)
    assert test.examples, f"the docstring of {name} has no example"
    told = []
    doctest.DocTestRunner(optionflags=OPTIONS, verbose=False).run(test, out=told.append)
    assert not told, "".join(told)
