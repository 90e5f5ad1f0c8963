"""The formats of other toolkits that can be imported, and how a folder is recognized. TensorFlow is not needed here."""

import pathlib
from typing import NamedTuple

from kformer.importing.fields import Fields
from kformer.runs.folder import RunFolder
from kformer.wording import did_you_mean

_CONFIG = "config.json"  # of Hugging Face


class ImportFormat(NamedTuple):
    """A format of models.

    Attributes:
        name: By which it is chosen.
        reader: Module and name of the function that reads a folder; `pkgutil.resolve_name` reads it when it is used.
            It takes the folder (or file), and `Languages` if the format has them, and returns a
            `kformer.importing.imported_model.ImportedModel`.
        model_types: Values of `model_type` in a config.json of Hugging Face.
        suffixes: Of a file that is named in place of a folder, because it says where the model's files are.
        has_languages: Whether its models translate between many languages, of which a run has two.
    """

    name: str
    reader: str
    model_types: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()
    has_languages: bool = False


_FORMATS = (
    ImportFormat("marian", "kformer.importing.marian:read", model_types=("marian",)),
    ImportFormat("opennmt-tf", "kformer.importing.opennmt_tf:read", suffixes=(".yml", ".yaml")),
    ImportFormat("m2m100", "kformer.importing.m2m100:read", model_types=("m2m_100",), has_languages=True),
    ImportFormat("mbart", "kformer.importing.mbart:read", model_types=("mbart",), has_languages=True),
    ImportFormat("bart", "kformer.importing.bart:read", model_types=("bart",)),
    ImportFormat("t5", "kformer.importing.t5:read", model_types=("t5",)),
    ImportFormat("bert", "kformer.importing.bert:read", model_types=("bert",)),
    ImportFormat("gpt2", "kformer.importing.gpt2:read", model_types=("gpt2",)),
    ImportFormat("llama", "kformer.importing.llama:read", model_types=("llama", "mistral")),
)
# By name, in the order in which messages and pages list them.
IMPORT_FORMATS: dict[str, ImportFormat] = {format.name: format for format in _FORMATS}


def choose_format(path: pathlib.Path, name: str | None = None) -> ImportFormat:
    """The format with this name, or the one of a model.

    Args:
        path: The model's folder, or a file that says where its files are.
        name: Of the format; None: the one that fits.

    Raises:
        FileNotFoundError: There is no such folder or file.
        ValueError: There is no such format, or none fits.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist. Name the folder that holds the model's files.")
    if name is not None and name not in IMPORT_FORMATS:
        raise ValueError(
            f"There is no format {name!r}. Choose one of {', '.join(IMPORT_FORMATS)}."
            f"{did_you_mean([name], IMPORT_FORMATS)}"
        )
    if name is not None:
        return IMPORT_FORMATS[name]
    if RunFolder(path).exists():
        raise ValueError(
            f"{path} is a run folder of kformer already. Use it as it is; or, to import another model, name its folder "
            "first and the new run folder second."
        )
    config = path / _CONFIG
    model_type = Fields(config).get("model_type") if config.is_file() else None
    for format in IMPORT_FORMATS.values():
        if model_type in format.model_types or (path.is_file() and path.suffix in format.suffixes):
            return format
    if (path / "model_description.py").is_file():
        raise ValueError(
            f"{path} is a run of OpenNMT-tf. Name the YAML file that it was trained by, which says where its "
            "vocabularies are."
        )
    found = f"its config.json has model_type={model_type!r}" if model_type is not None else "it has no config.json"
    raise ValueError(
        f"{path} holds no model that kformer can import: {found}. It can import: {', '.join(IMPORT_FORMATS)}. If it is "
        "one of these, say which by --format."
    )
