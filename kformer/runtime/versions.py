"""The numbered versions in a model's base folder, which TensorFlow Serving looks for.

Nothing here needs TensorFlow, so a command can refuse a wrong folder or option before it starts TensorFlow.
"""

import json
import pathlib
import re
from collections.abc import Collection, Sequence
from typing import Any

from kformer.runtime.version_files import MOST_EXTRA_BYTES
from kformer.wording import did_you_mean

EXPORT_PRECISIONS = ("float32", "bfloat16", "int8")
VARIANTS = ("portable", "xla")
LARGEST_VERSION = 2**63 - 1  # versions are int64 numbers
DEFAULT_SIGNATURE = "serving_default"
# Signature: how the model reads a text. Its outputs: is most of it not in the vocabulary, is its end not read? Only the
# cache has it.
READING, MOSTLY_UNKNOWN, CUT = "reading", "mostly_unknown", "cut"
# An export has only those that are asked for.
MORE_SIGNATURES = ("n_best", "score", "translate_detailed", "translate_with_options", "generate_with_options")
# TensorFlow Serving ignores this folder of a SavedModel.
DESCRIPTION_FILE = "assets.extra/kformer.json"


def check_kind(precision: str, variant: str) -> None:
    """Refuses a precision or a variant that no export has.

    Raises:
        ValueError: There is no such precision or variant, or the two do not go together.
    """
    if precision not in EXPORT_PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(EXPORT_PRECISIONS)}. Received: {precision!r}.")
    if variant not in VARIANTS:
        raise ValueError(f"variant must be one of {', '.join(VARIANTS)}. Received: {variant!r}.")
    if variant == "xla" and precision != "float32":
        raise ValueError(f"The variant xla computes in float32. Received: {precision}. Choose the variant portable.")


def check_signatures(signatures: Sequence[str], variant: str, known: Collection[str] = MORE_SIGNATURES) -> None:
    """Refuses signatures that an export cannot have beside `serving_default`.

    Args:
        signatures: Names of signatures.
        variant: Of the export.
        known: Those that the model can have.

    Raises:
        ValueError: There is no such signature, or the variant has no other one.
    """
    for name in signatures:
        if name not in known:
            raise ValueError(
                f"There is no signature {name!r}. Beside {DEFAULT_SIGNATURE}, an export of this model may have: "
                f"{', '.join(known) or 'none'}.{did_you_mean([name], known)}"
            )
    if signatures and variant == "xla":
        raise ValueError(
            f"The variant xla has {DEFAULT_SIGNATURE} alone. Received: {', '.join(signatures)}. Choose the variant "
            "portable."
        )


def check_version(directory: pathlib.Path, version: int) -> None:
    """Refuses a version that cannot be written.

    Raises:
        ValueError: It is negative, or no int64 number.
        FileExistsError: It exists.
    """
    if not 0 <= version <= LARGEST_VERSION:
        raise ValueError(f"version must be from 0 to {LARGEST_VERSION}. Received: version={version}.")
    path = versions(directory).get(version, directory / str(version))
    if path.exists():
        raise FileExistsError(f"{path} exists already. Choose another version, or leave it out to get the next one.")


def next_version(directory: pathlib.Path) -> int:
    """One more than the last version in a base folder; 1 where there is none.

    Raises:
        ValueError: The last version is the largest that there can be.
    """
    number = max(versions(directory), default=0) + 1
    if number > LARGEST_VERSION:
        raise ValueError(f"{directory} has the largest version, {LARGEST_VERSION}. Choose a version that is free.")
    return number


def find_saved_model(path: str | pathlib.Path) -> pathlib.Path | None:
    """`path` if it is a SavedModel, else its last numbered version that is one, else None."""
    path = pathlib.Path(path)
    found = versions(path)
    for candidate in (path, *(found[number] for number in sorted(found, reverse=True))):
        if (candidate / "saved_model.pb").is_file():
            return candidate
    return None


def description(saved_model: str | pathlib.Path) -> dict[str, Any]:
    """How an export was made; empty for a SavedModel that kformer did not write."""
    path = pathlib.Path(saved_model, DESCRIPTION_FILE)
    if not path.is_file():
        return {}
    if path.stat().st_size > MOST_EXTRA_BYTES:
        raise ValueError(f"{path} may have {MOST_EXTRA_BYTES:,} bytes. Export the model again.")
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}. Export the model again.") from error


def versions(directory: pathlib.Path) -> dict[int, pathlib.Path]:
    """The entries of a base folder whose name is a number in ASCII digits, which TensorFlow Serving takes for versions.

    As there, a name may begin with zeros. Of two names of one number, such as 01 and 1, the one with fewer zeros
    counts; TensorFlow Serving takes either of them.
    """
    if not directory.is_dir():
        return {}
    # In this order, the name with fewer zeros comes later and stays.
    entries = (entry for entry in sorted(directory.iterdir()) if re.fullmatch("[0-9]+", entry.name))
    return {int(entry.name): entry for entry in entries if int(entry.name) <= LARGEST_VERSION}
