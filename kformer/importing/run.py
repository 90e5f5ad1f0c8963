"""Makes a run folder of a model of another toolkit."""

import json
import pathlib
import pkgutil
import re
from collections.abc import Sequence
from typing import Any

import yaml

from kformer.files.checksums import checksum
from kformer.files.writing import check_new_folder, new_folder
from kformer.importing.formats import ImportFormat, choose_format
from kformer.importing.imported_model import ImportedModel
from kformer.importing.languages import Languages, check_languages
from kformer.runs.create import create_run
from kformer.runs.folder import RunFolder

_HEADING = re.compile(r"---[ \t]*\n(.*?)^---[ \t]*$", re.MULTILINE | re.DOTALL)


def import_model(
    folder: str | pathlib.Path,
    output: str | pathlib.Path,
    format: str | None = None,
    languages: Languages | None = None,
    samples: Sequence[str] = (),
) -> RunFolder:
    """Makes a run folder of a model that another toolkit has trained.

    It can be used like one that was trained here: it translates, is fine-tuned, evaluated and exported. Only local
    folders are read, and no code of a folder is run. The model is checked before anything is written.

    Args:
        folder: Of the other toolkit, with configuration, vocabulary and weights.
        output: The run folder to make.
        format: One of `kformer.importing.IMPORT_FORMATS`; None: the one that fits.
        languages: From and to which the run translates, if the model knows many languages; None: what its files say.
        samples: Texts of the kind that the model reads. An export of the model is tried on them.

    Returns:
        The run folder.

    Raises:
        FileExistsError: `output` exists.
        FileNotFoundError: The folder, or one of its files, is missing.
        ValueError: The model cannot be represented, or a file is damaged; or a language is missing, unknown, or given
            for a format without languages.

    Examples:
        >>> run = import_model("opus-mt-en-es", "runs/en-es")  # doctest: +SKIP
        >>> kformer.Translator.from_run(run.path)("A sentence.")  # doctest: +SKIP
        'Una frase.'
    """
    folder = pathlib.Path(folder)
    check_new_folder(pathlib.Path(output))
    chosen = choose_format(folder, format)
    imported = read_folder(folder, chosen, languages)
    model = imported.build()
    origin = describe_origin(folder, chosen.name)
    corpus = {"name": f"that of {origin['name']}", "symbols": False}
    with new_folder(output) as fresh:
        parts = (imported.transformer, imported.tokenizers, imported.decoding, corpus)
        create_run(RunFolder(fresh), *parts, samples=samples, model=model, origin=origin)
    return RunFolder(output)


def read_folder(folder: pathlib.Path, format: ImportFormat, languages: Languages | None = None) -> ImportedModel:
    """Reads a folder of another toolkit. The weights stay on disk.

    Args:
        folder: Of the model.
        format: From `choose_format`.
        languages: See `import_model`.

    Raises:
        FileNotFoundError, ValueError: See `import_model`.
    """
    languages = languages or Languages()
    check_languages(format, languages)
    arguments = (folder, languages) if format.has_languages else (folder,)
    try:
        return pkgutil.resolve_name(format.reader)(*arguments)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError) as error:
        # A file of another program may hold anything: a list where a number belongs, for example.
        raise ValueError(
            f"{folder} cannot be read as {format.name}: a value in its files has the wrong type or size ({error!r}). "
            "Copy the whole folder again."
        ) from error


def describe_origin(folder: pathlib.Path, format: str) -> dict[str, Any]:
    """Where a model comes from: the name of its folder or model, its licence if a file says it, and its files.

    Args:
        folder: Of the other toolkit.
        format: Its name.

    Returns:
        `name`, `licence` (None: no file says it), `format`, and `files`: the SHA-256 of each file.
    """
    folder = folder if folder.is_dir() else folder.parent
    files = sorted(file for file in folder.iterdir() if file.is_file())
    return {
        "name": _name(folder),
        "licence": _licence(folder),
        "format": format,
        "files": {file.name: checksum(file) for file in files},
    }


def _name(folder: pathlib.Path) -> str:
    try:
        name = json.loads((folder / "config.json").read_text(encoding="utf-8-sig")).get("_name_or_path")
    except (OSError, ValueError, AttributeError):
        name = None
    return name or folder.resolve().name


def _licence(folder: pathlib.Path) -> str | None:
    """The licence in the heading of a model card (README.md), which is YAML between two lines of hyphens."""
    card = folder / "README.md"
    heading = _HEADING.match(card.read_text(encoding="utf-8-sig", errors="replace")) if card.is_file() else None
    try:
        fields = yaml.safe_load(heading[1]) if heading else None
    except yaml.YAMLError:
        return None
    found = fields.get("license") if isinstance(fields, dict) else None
    return ", ".join(map(str, found)) if isinstance(found, list) else None if found is None else str(found)
