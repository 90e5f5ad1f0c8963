"""Fields of the configurations: each says what it means, for the command line, the documentation and the checks."""

import dataclasses
from collections.abc import Collection
from typing import Any, TypeVar, get_args, get_type_hints

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Field:
    """A field of a configuration.

    Attributes:
        name: Its name in the class and in files; with hyphens, that of its option.
        type: int, float, str or bool, or such a type or None, written `int | None`.
        default: Its value where nothing else is said.
        meaning: One or two sentences for users, with the symbol in "Attention Is All You Need", if it has one.
        choices: All values, if they are names; without them, the type allows more.
        panel: The heading above its option in the help.
    """

    name: str
    type: Any
    default: Any
    meaning: str
    choices: tuple[str, ...]
    panel: str

    @property
    def types(self) -> tuple[type, ...]:
        """The classes that a value may have."""
        return get_args(self.type) or (self.type,)


def setting(default: T, meaning: str, choices: Collection[str] = (), panel: str = "") -> T:
    """The right side of a field in a configuration's class; arguments as in `Field`.

    Without `panel`, the field is in its class's panel. A value of None is always allowed where the type has it.
    """
    metadata = {"meaning": meaning, "choices": choices, "panel": panel}
    return dataclasses.field(default=default, metadata=metadata)


def fields_of(config: Any) -> tuple[Field, ...]:
    """The fields of a configuration's class, in their order."""
    types = get_type_hints(config)
    return tuple(
        Field(
            field.name,
            types[field.name],
            field.default,
            field.metadata["meaning"],
            tuple(field.metadata["choices"]),  # now, because a task of one's own may have come
            field.metadata["panel"] or config.panel,
        )
        for field in dataclasses.fields(config)
    )
