"""Where the shipped models are, and the weights of any run folder."""

import pathlib

import keras

from kformer.presets import packed_weights
from kformer.run import RunFolder
from kformer.training import checkpoints

_SHIPPED = pathlib.Path(__file__).parent


def preset_names() -> list[str]:
    """The names of the shipped models."""
    return sorted(folder.name for folder in _SHIPPED.iterdir() if RunFolder(folder).exists())


def find_preset(preset: str | pathlib.Path) -> RunFolder:
    """The folder of a model.

    Args:
        preset: The name of a shipped model, or the path of a run folder, packed or not. A name comes before a path:
            write `./NAME` for a folder of the same name.

    Raises:
        ValueError: It is neither.
        FileNotFoundError: The folder is no run folder, or has no weights yet.
    """
    names = preset_names()
    if str(preset) in names:
        return RunFolder(_SHIPPED / preset)
    if not pathlib.Path(preset).is_dir():
        raise ValueError(
            f"There is no preset {str(preset)!r}. Choose one of {', '.join(names)}; or name a run folder, such as "
            "`kformer pack` writes."
        )
    return RunFolder(preset).check()


def load_weights(run: RunFolder, model: keras.Model) -> None:
    """Reads a run's best weights, packed or not, into a model of its configuration, on any backend.

    Args:
        run: From `find_preset`, or any run folder that has weights.
        model: From `build_transformer(run.transformer_config())`, compiled or not; its optimizer stays as it is.

    Raises:
        ValueError: The file is damaged, or the model is of another configuration.
    """
    file = run.weights_file()
    if file == run.packed_weights_file:
        packed_weights.load_packed_weights(file, model)
    else:
        checkpoints.load_weights(file, model)
