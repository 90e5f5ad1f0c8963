"""Saved models load in a new process after `import kformer` alone."""

import importlib
import inspect
import json
import os
import pathlib
import pickle
import pkgutil
import subprocess
import sys

import keras
import numpy as np
import pytest

import kformer
from kformer.layers import DecoderLayer, EncoderLayer
from kformer.losses import LabelSmoothedCrossEntropy
from kformer.metrics import TokenAccuracy
from kformer.models import build_transformer
from kformer.process.saved_objects import CLASSES
from kformer.schedules import WarmupInverseSqrt
from kformer.training.optimizers import Adam

# Arguments that classes need, by name.
ARGUMENTS = {
    **{"d_model": 8, "d_ff": 16, "num_heads": 2, "num_steps": 2, "head_dim": 4, "max_length": 5},
    **{"units": 3, "input_dim": 9, "output_dim": 4, "rate": 0.1, "max_distance": 2, "alpha": 5.0, "share": 0.5},
    **{"peak": 0.1, "updates": 7},
}
SMALL = kformer.TransformerConfig(9, 9, 1, 1, d_model=8, d_ff=16, num_heads=2)
# Classes that need other arguments.
SPECIAL = {
    "Encoder": lambda kind: kind([EncoderLayer(8, 2, 16)]),
    "Decoder": lambda kind: kind([DecoderLayer(8, 2, 16)]),
    "GuidedAlignment": lambda kind: kind.of(build_transformer(SMALL), SMALL, weight=0.5),
    "TwoPasses": lambda kind: kind.of(build_transformer(SMALL)),
    "WithTeacher": lambda kind: kind.of(build_transformer(SMALL), build_transformer(SMALL)),
}

PROGRAM = """
import copy, json, pickle, sys
{imports}
import numpy as np

configs = json.load(open("configs.json"))
for config in configs:
    made = keras.saving.deserialize_keras_object(copy.deepcopy(config))  # it empties that of a functional model
    name = type(made).__module__ + "." + type(made).__name__
    assert name.startswith("kformer.") and config["registered_name"] == "kformer>" + type(made).__name__, name
    again = json.loads(json.dumps(keras.saving.serialize_keras_object(made)))  # with lists in place of tuples
    assert again["config"] == config["config"], name
    assert keras.saving.get_registered_object(config["registered_name"]) is type(made)
ids = np.full((2, 3), 5, "int32")
inputs = {{"source": ids, "target_in": ids}}
for model in (keras.models.load_model("m.keras"), pickle.load(open("m.pickle", "rb"))):
    assert type(model.optimizer).__module__ == "kformer.training.optimizers", type(model.optimizer)
    assert int(model.optimizer.iterations) == 1
    np.testing.assert_array_equal(model.predict(inputs, verbose=0), np.load("logits.npy"))
    model.fit(inputs, ids, verbose=0)
print("all", len(configs))
"""


def registered_classes():
    """All classes of kformer that Keras may find in a saved model."""
    for module in pkgutil.walk_packages(kformer.__path__, "kformer."):
        if not module.name.startswith(
            ("kformer.cli", "kformer.__main__", "kformer.inference.beam", "kformer.inference.ray")
        ):
            importlib.import_module(module.name)
    objects = keras.saving.get_custom_objects()
    return [objects[name] for name in sorted(objects) if name.startswith("kformer>")]


def made(kind):
    """An object of a class."""
    if kind.__name__ in SPECIAL:
        return SPECIAL[kind.__name__](kind)
    parameters = inspect.signature(kind).parameters.values()
    required = [one.name for one in parameters if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]
    return kind(**{name: ARGUMENTS[name] for name in required})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the configurations of an object of every class, and with a compiled model, saved and pickled."""
    path = tmp_path_factory.mktemp("saved")
    configs = [keras.saving.serialize_keras_object(made(kind)) for kind in registered_classes()]
    (path / "configs.json").write_text(json.dumps(configs))
    model = build_transformer(SMALL, dtype="float32")
    optimizer = Adam(learning_rate=WarmupInverseSqrt(8))
    model.compile(optimizer, LabelSmoothedCrossEntropy(0.1), metrics=[TokenAccuracy()], jit_compile=False)
    ids = np.full((2, 3), 5, "int32")
    inputs = {"source": ids, "target_in": ids}
    model.fit(inputs, ids, verbose=0)
    np.save(path / "logits.npy", model.predict(inputs, verbose=0))
    model.save(path / "m.keras")
    (path / "m.pickle").write_bytes(pickle.dumps(model))
    return path


def test_the_list_of_classes_is_complete():
    """A class that is missing would still load after another one of its module or package, but not by itself."""
    listed = {(module, name) for module, names in CLASSES.items() for name in names}
    assert {(kind.__module__, kind.__name__) for kind in registered_classes()} == listed


@pytest.mark.slow
@pytest.mark.parametrize(
    "imports", [pytest.param("import kformer\nimport keras", marks=pytest.mark.in_ci), "import keras\nimport kformer"]
)
def test_every_class_loads_in_a_new_process_that_imported_kformer_alone(imports, folder):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(imports=imports)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(pathlib.Path(kformer.__path__[0]).parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["all", str(len(registered_classes()))]
