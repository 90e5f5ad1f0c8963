"""Where the shipped models are."""

import pathlib

from kformer.runs.folder import RunFolder
from kformer.wording import did_you_mean

_SHIPPED = pathlib.Path(__file__).parent


def preset_names(*tasks: str) -> list[str]:
    """The names of the shipped models.

    Args:
        *tasks: Only the models that have learned one of these tasks, each one of `kformer.config.TASKS`. Without any,
            all models.

    Examples:
        >>> preset_names()
        ['bible-books', 'bible-en-es', 'bible-english', 'cmudict']
        >>> preset_names("translate")
        ['bible-en-es', 'cmudict']
    """
    runs = {folder.name: RunFolder(folder) for folder in _SHIPPED.iterdir()}
    return sorted(
        name for name, run in runs.items() if run.exists() and (not tasks or run.transformer_config().task in tasks)
    )


def find_preset(preset: str | pathlib.Path) -> RunFolder:
    """The folder of a model.

    Args:
        preset: The name of a shipped model, or the path of a run folder, packed or not. If a folder has the name of a
            shipped model, write `./NAME` for the folder.

    Raises:
        ValueError: `preset` is neither.
        FileNotFoundError: The folder is no run folder, or has no weights yet.

    Examples:
        >>> find_preset("cmudict").transformer_config().d_model
        256
    """
    names = preset_names()
    if str(preset) in names:
        return RunFolder(_SHIPPED / preset).check()
    if not pathlib.Path(preset).is_dir():
        raise ValueError(
            f"There is no preset {str(preset)!r}. Choose one of {', '.join(names)}; or name a run folder, for "
            f"example one from `kformer pack`.{did_you_mean([str(preset)], names)}"
        )
    return RunFolder(preset).check()
