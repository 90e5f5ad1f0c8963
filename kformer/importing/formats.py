"""The formats of other toolkits that can be imported, each with the module that reads it."""

import pathlib
import pkgutil

from kformer.importing.imported import ImportedModel
from kformer.wording import did_you_mean

# In the order in which folders are tried. A module has the functions `recognizes(folder)` and `read(folder)`.
FORMATS = {"marian": "kformer.importing.marian"}


def find_format(folder: pathlib.Path) -> str:
    """The format of a folder's model.

    Raises:
        FileNotFoundError: There is no such folder.
        ValueError: No format fits.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is no folder. Name the folder that holds config.json and the weights.")
    for name, module in FORMATS.items():
        if pkgutil.resolve_name(f"{module}:recognizes")(folder):
            return name
    raise ValueError(
        f"{folder} holds no model that kformer can import. It knows: {', '.join(FORMATS)}. Name one by --format if "
        "the folder does not say what it is."
    )


def read_folder(folder: pathlib.Path, format: str | None = None) -> ImportedModel:
    """Reads a folder, in the format of this name or in the one that fits.

    Raises:
        FileNotFoundError: The folder, or one of its files, is missing.
        ValueError: There is no such format, or the model cannot be represented.
    """
    if format is not None and format not in FORMATS:
        raise ValueError(
            f"There is no format {format!r}. Choose one of {', '.join(FORMATS)}.{did_you_mean([format], FORMATS)}"
        )
    return pkgutil.resolve_name(f"{FORMATS[format or find_format(folder)]}:read")(folder)
