"""Notes the versions of the packages that a run's results may depend on."""

import importlib
import platform

import keras

from kformer.version import __version__

# TensorFlow is among them on every backend, because it processes the texts.
PACKAGES = ("keras", "numpy", "sentencepiece", "tensorflow", "tensorflow_text")


def describe_environment() -> dict[str, str]:
    """The versions of kformer, of Python and of the packages above, the Keras backend, the system and its processor."""
    backend = keras.backend.backend()
    versions = {name: importlib.import_module(name).__version__ for name in sorted({*PACKAGES, backend})}
    return {
        "kformer": __version__,
        "python": platform.python_version(),
        **versions,
        "backend": backend,
        "platform": f"{platform.system()} {platform.machine()}",
    }


def environment_changes(before: dict[str, str]) -> list[str]:
    """The entries of an earlier `describe_environment` that differ now, such as "keras 3.15.0 (now 3.15.1)"."""
    now = describe_environment()
    return [
        f"{name} {value} (now {now.get(name, 'not used')})" for name, value in before.items() if now.get(name) != value
    ]
