"""Results in a file, a line of JSON each, so that what was measured is not measured again; and their means."""

import json
import pathlib
import statistics
from collections.abc import Sequence
from typing import Any


def missing(file: pathlib.Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that the file of results does not have."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    done = [json.loads(line) for line in lines]
    return [row for row in rows if not any(row.items() <= other.items() for other in done)]


def mean_and_spread(values: Sequence[float]) -> str:
    """The mean, and the standard deviation of a sample if there are several values."""
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread}"
