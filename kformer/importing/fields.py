"""The fields of another toolkit's configuration file, with errors that name the file and the field."""

import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

# With larger numbers a damaged file would fill the memory before its tensors are looked at.
_MOST, _MOST_LAYERS = 100_000_000, 10_000


class Fields:
    """The content of a JSON file whose fields are asked for by name.

    Args:
        path: The file.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It holds no fields.
    """

    def __init__(self, path: pathlib.Path) -> None:
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing. Copy the whole folder.")
        self.path = path
        try:
            content = json.loads(path.read_text(encoding="utf-8-sig"))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} cannot be read as JSON: {error}. Copy it again.") from error
        if not isinstance(content, dict):
            raise ValueError(f"{path} holds no fields. Expected: a JSON object with fields such as model_type.")
        self._content: Mapping[str, Any] = content

    def __contains__(self, name: str) -> bool:
        return name in self._content

    def items(self) -> Iterable[tuple[str, Any]]:
        """The names and values of all fields."""
        return self._content.items()

    def get(self, name: str, default: Any = None) -> Any:
        """A field, or the default where it is missing or null."""
        value = self._content.get(name)
        return default if value is None else value

    def number(self, name: str, default: int | None = None) -> int:
        """A field that is a whole number of at least 1, such as a size.

        Raises:
            ValueError: It is missing and has no default, or is something else, or larger than in any model.
        """
        return self._whole(name, default, _MOST)

    def layers(self, name: str, default: int | None = None) -> int:
        """A field that is a number of layers; see `number`."""
        return self._whole(name, default, _MOST_LAYERS)

    def _whole(self, name: str, default: int | None, most: int) -> int:
        value = self.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            raise ValueError(
                f"{name} in {self.path} must be a whole number of at least 1 and at most {most:,}. Received: {value!r}."
            )
        return value

    def id(self, name: str, default: int | None = None) -> int:
        """A field that is a token's id.

        Raises:
            ValueError: It is missing and has no default, or is something else.
        """
        value = self.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ValueError(f"{name} in {self.path} must be a token's id. Received: {value!r}.")
        return value

    def choice(self, name: str, choices: Mapping[str, str], default: str | None = None) -> str:
        """What a field's value is called here.

        Args:
            name: Of the field.
            choices: kformer's value for each of the other toolkit's values.
            default: The other toolkit's value where the field is missing.

        Raises:
            ValueError: The value is none of the choices.
        """
        value = self.get(name, default)
        if value not in choices:
            raise ValueError(
                f"{name} in {self.path} is {value!r}, which kformer cannot represent. Known: {', '.join(choices)}."
            )
        return choices[value]

    def expect(self, name: str, value: Any, default: Any = None) -> None:
        """Refuses a field with another value than this one, which is the only one that kformer can represent.

        Args:
            name: Of the field.
            value: What it must be.
            default: What it is where it is missing.

        Raises:
            ValueError: It has another value.
        """
        found = self.get(name, default)
        if found != value:
            raise ValueError(
                f"{name} in {self.path} is {found!r}, which kformer cannot represent. Expected: {value!r}."
            )

    def same(self, *names: str) -> int:
        """The whole number that several fields have in common.

        Raises:
            ValueError: They differ, or one of them is no whole number.
        """
        values = [self.number(name) for name in names]
        if len({*values}) > 1:
            raise ValueError(
                f"{' and '.join(names)} in {self.path} are {' and '.join(map(str, values))}. kformer can represent "
                "only equal ones."
            )
        return values[0]
