"""Reads configuration files, in JSON or YAML."""

import contextlib
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from kformer.wording import did_you_mean


class _Loader(yaml.SafeLoader):
    """A safe YAML loader that reads 1e-9 as a number, as JSON and YAML 1.2 do. YAML 1.1 requires a dot in it."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


@contextlib.contextmanager
def errors_name(path: str | pathlib.Path) -> Iterator[None]:
    """Puts the path of a file before the message of a ValueError."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def read_parts(path: str | pathlib.Path, parts: Sequence[str], others: Sequence[str] = ()) -> dict[str, Any]:
    """Reads a JSON or YAML file with a mapping under each of the names `parts`, and values under the names `others`.

    Returns:
        The values by name; an empty mapping for a part that is missing.

    Raises:
        ValueError: The file does not parse, has an unknown name, or a part is not a mapping.
    """
    values = read_mapping(path)
    unknown = sorted(str(name) for name in set(values) - {*parts, *others})
    if unknown:
        raise ValueError(
            f"{path} has the unknown part {', '.join(unknown)}. Put every field under one of: {', '.join(parts)}."
            f"{did_you_mean(unknown, (*parts, *others))}"
        )
    for part in parts:
        values[part] = values.get(part) or {}
        if not isinstance(values[part], dict):
            raise ValueError(
                f"{path} must contain a mapping of fields to values under {part}. Received: {values[part]!r}. "
                f"Write, for example, `{part}: {{FIELD: VALUE}}`."
            )
    return values


def read_mapping(path: str | pathlib.Path) -> dict[str, Any]:
    """The mapping in a JSON or YAML file.

    Raises:
        FileNotFoundError: There is no such file.
        OSError: The file cannot be read.
        ValueError: The file does not parse, or does not contain a mapping.
    """
    path = pathlib.Path(path)
    if path.suffix not in (".json", ".yaml", ".yml"):
        raise ValueError(f"The name of a configuration file must end in .json, .yaml or .yml. Received: {path}.")
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}. Name a JSON or YAML file that exists.")
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), _Loader)  # JSON is a subset of YAML
    except OSError as error:
        raise OSError(
            f"{path} cannot be read: {error.strerror}. Name a JSON or YAML file that you may read."
        ) from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error}. Convert the file.") from error
    except (yaml.YAMLError, ValueError) as error:  # a date such as 2026-13-01 is a ValueError
        raise ValueError(f"{path} is not valid {path.suffix[1:]}: {error}. Correct the file.") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} must contain a mapping of names to values. Received: {type(values).__name__}.")
    return values
