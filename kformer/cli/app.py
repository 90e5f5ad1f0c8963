"""The form that all commands have: an option of one value is given once, and the help fits into any terminal."""

import collections
from collections.abc import Callable
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
        """Makes a command of each function, with the function's name, or that without a last "_"."""
        for function in functions:
            self.command(function.__name__.rstrip("_"), cls=Command)(function)


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
