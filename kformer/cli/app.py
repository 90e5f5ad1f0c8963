"""The form that all commands have: an option of one value is given once, and the help fits into any terminal."""

import collections
from collections.abc import Callable
from typing import Any

import typer
import typer.core


class App(typer.Typer):
    """A group of commands.

    Args:
        name: Of the group.
    """

    def __init__(self, name: str | None = None) -> None:
        # With Rich, a terminal of 80 columns shows names such as `--source-embedd…`, which cannot be typed.
        super().__init__(name=name, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)

    def add_commands(self, *functions: Callable[..., Any]) -> None:
        """Makes a command of each function, with the function's name."""
        for function in functions:
            self.command(cls=Command)(function)


class Command(typer.core.TyperCommand):
    """A command that refuses an option given twice if it takes one value: the first value would be lost silently."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for option, times in collections.Counter(given).items():
            if times > 1 and _takes_one_value(option) and not ctx.resilient_parsing:
                names = "/".join([*option.opts, *option.secondary_opts])
                ctx.fail(f"{names} takes one value, and was given {times} times. Give it once.")
        return super().parse_args(ctx, args)


def _takes_one_value(option: Any) -> bool:
    """False for an option that may be repeated, and for one that can only be switched on."""
    return not option.multiple and not (option.is_flag and not option.secondary_opts)
