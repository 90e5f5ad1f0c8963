"""Where the shipped models are."""

import pathlib

from kformer.runs.folder import RunFolder
from kformer.wording import did_you_mean

_SHIPPED = pathlib.Path(__file__).parent


def preset_names() -> list[str]:
    """The names of the shipped models.

    Example:
        >>> preset_names()
        ['bible-books', 'bible-en-es', 'bible-english', 'cmudict']
    """
    return sorted(folder.name for folder in _SHIPPED.iterdir() if RunFolder(folder).exists())


def find_preset(preset: str | pathlib.Path) -> RunFolder:
    """The folder of a model.

    Args:
        preset: The name of a shipped model, or the path of a run folder, packed or not. If a folder has the name of a
            shipped model, write `./NAME` for the folder.

    Raises:
        ValueError: `preset` is neither.
        FileNotFoundError: The folder is no run folder, or has no weights yet.

    Example:
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
