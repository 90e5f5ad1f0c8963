"""The versions that a run's results may depend on."""

import importlib
import platform

import keras

from kformer import __version__

# TensorFlow reads the text on every backend.
PACKAGES = ("keras", "numpy", "sentencepiece", "tensorflow", "tensorflow_text")


def describe_environment() -> dict[str, str]:
    """Versions of kformer, Python and the packages that compute, the Keras backend, system and kind of processor."""
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
    """What of an earlier `describe_environment` is another now, such as "keras 3.15.0 (now 3.15.1)"."""
    now = describe_environment()
    return [
        f"{name} {value} (now {now.get(name, 'not used')})" for name, value in before.items() if now.get(name) != value
    ]
