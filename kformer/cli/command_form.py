"""The form that all commands have: an option of one value is given once, and the help fits into any terminal."""

import collections
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import typer
import typer.core

NO_PANEL = "Options"  # the title of the options without a panel, which come last


class App(typer.Typer):
    """A group of commands.

    Args:
        name: Of the group.
    """

    def __init__(self, name: str | None = None) -> None:
        # With Rich, a terminal of 80 columns shows names such as `--source-embedd…`, which cannot be typed.
        super().__init__(name=name, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)

    def add_commands(self, *functions: Callable[..., Any]) -> None:
        """Makes a command of each function, with the function's name, or that without a last "_".

        An argument whose class is a dataclass stands for an option for each field of the class, whose own fields may be
        dataclasses again.
        """
        for function in functions:
            self.command(function.__name__.rstrip("_"), cls=Command)(_with_flat_arguments(function))


def with_options(options: Iterable[inspect.Parameter]) -> Callable[[Any], Any]:
    """Gives a command that takes any number of `**options` these ones, for example made from a table."""

    def change(function: Any) -> Any:
        own = inspect.signature(function).parameters.values()
        named = [parameter for parameter in own if parameter.kind is not inspect.Parameter.VAR_KEYWORD]
        function.__signature__ = inspect.Signature([*named, *options])  # which typer reads
        return function

    return change


def _with_flat_arguments(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with the fields of each dataclass among its arguments in the place of this argument."""

    @functools.wraps(function)
    def command(**values: Any) -> Any:
        return function(**_made(function, values))

    # Without an order: typer calls by name, and an argument without a default may stand behind one with a default.
    by_name = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in _flat(function)]
    command.__signature__ = inspect.Signature(by_name)  # type: ignore[attr-defined]  # typer reads it
    command.__annotations__ = {}
    return command


def _flat(function: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    """The arguments, and in the place of a dataclass its fields, of which one may be a dataclass, too."""
    for one in inspect.signature(function).parameters.values():
        if _is_group(one):
            yield from _flat(one.annotation)
        else:
            yield one


def _made(function: Callable[..., Any], values: dict[str, Any]) -> dict[str, Any]:
    """The arguments by their names, of which the dataclasses are made from the values of their fields."""
    return {
        name: one.annotation(**_made(one.annotation, values)) if _is_group(one) else values[name]
        for name, one in inspect.signature(function).parameters.items()
    }


def _is_group(argument: inspect.Parameter) -> bool:
    return dataclasses.is_dataclass(argument.annotation)


class Command(typer.core.TyperCommand):
    """A command that refuses an option given twice if it takes one value: the first value would be lost silently.

    Its help has the options in their panels (`rich_help_panel`), which typer itself shows only with Rich.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for parameter in sorted(self.get_params(ctx), key=lambda one: panel_of(one) == NO_PANEL):
            record = parameter.get_help_record(ctx)
            if record is not None:
                panels.setdefault(panel_of(parameter), []).append(record)
        for title, records in panels.items():
            with formatter.section(title):
                formatter.write_dl(records)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for option, times in collections.Counter(given).items():
            if times > 1 and _takes_one_value(option) and not ctx.resilient_parsing:
                names = "/".join([*option.opts, *option.secondary_opts])
                ctx.fail(f"{names} takes one value, and was given {times} times. Give it once.")
        return super().parse_args(ctx, args)


def panel_of(parameter: Any) -> str:
    """The title above an argument or option in the help."""
    if parameter.param_type_name == "argument":
        return "Arguments"
    return getattr(parameter, "rich_help_panel", None) or NO_PANEL  # --help, of typer itself, has no such attribute


def _takes_one_value(option: Any) -> bool:
    """False for an option that may be repeated, and for one that can only be switched on."""
    return not option.multiple and not (option.is_flag and not option.secondary_opts)
