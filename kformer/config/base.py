"""What the configurations have in common: checks of their fields, and their files."""

import dataclasses
import math
import pathlib
import sys
from typing import Any, ClassVar, Self

import yaml

from kformer.config.fields import fields_of
from kformer.config.reading import errors_name, read_mapping
from kformer.files.writing import write_json, write_text
from kformer.wording import did_you_mean


@dataclasses.dataclass(frozen=True)
class Config:
    """Checks and files shared by the configurations. Every field is a `kformer.config.fields.setting`."""

    panel: ClassVar[str]  # the heading in the help above the options of the fields

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Builds the configuration from plain values; unknown names are refused.

        Raises:
            ValueError: A name is no field of this configuration, or a value is out of range.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(str(name) for name in set(values) - set(known))
        if unknown:
            raise ValueError(
                f"{cls.__name__} has no field {', '.join(map(repr, unknown))}. "
                f"Its fields are: {', '.join(known)}. Remove or rename the unknown ones.{did_you_mean(unknown, known)}"
            )
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, ready for JSON or YAML."""
        return dataclasses.asdict(self)

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed, checked like a new one."""
        return self.from_dict({**self.to_dict(), **changes})

    @classmethod
    def load(cls, path: str | pathlib.Path) -> Self:
        """Reads a `.json`, `.yaml` or `.yml` file.

        Raises:
            FileNotFoundError: There is no such file.
            OSError: The file cannot be read.
            ValueError: The file is not a mapping of field names to values, a name is no field of this configuration, or
                a value is out of range. The message names the file.
        """
        values = read_mapping(path)
        with errors_name(path):
            return cls.from_dict(values)

    def save(self, path: str | pathlib.Path) -> None:
        """Writes a `.json`, `.yaml` or `.yml` file, whole or not at all."""
        path = pathlib.Path(path)
        if path.suffix == ".json":
            write_json(path, self.to_dict())
        else:
            write_text(path, yaml.safe_dump(self.to_dict(), sort_keys=False))

    def _check_types_and_choices(self) -> None:
        for field in fields_of(type(self)):
            value = getattr(self, field.name)
            if float in field.types and type(value) is int and abs(value) <= sys.float_info.max:
                object.__setattr__(self, field.name, float(value))
            elif type(value) not in field.types:
                expected = " or ".join(kind.__name__ for kind in field.types)
                raise ValueError(
                    f"{field.name} must be {expected}. Received: {field.name}={value!r} of type {type(value).__name__}."
                )
            elif field.choices and value is not None and value not in field.choices:
                raise ValueError(
                    f"{field.name} must be one of {', '.join(field.choices)}. Received: {field.name}={value!r}."
                    f"{did_you_mean([value], field.choices)}"
                )

    def _check_positive(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:  # refuses nan, too
                raise ValueError(f"{name} must be greater than 0 and finite. Received: {name}={value}.")

    def _check_rate(self, name: str) -> None:
        value = getattr(self, name)
        if not 0 <= value < 1:
            raise ValueError(f"{name} must be at least 0 and below 1. Received: {name}={value}.")
