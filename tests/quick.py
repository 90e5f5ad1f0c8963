"""Which cases of a table are tested each time."""

from collections.abc import Collection, Iterable

import pytest


def mostly_slow(names: Iterable[str], quick: Collection[str]) -> list:
    """The names of cases as parameters. All but the quick ones are slow: they show something similar."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]
