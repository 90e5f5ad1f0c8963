"""What a job is to do."""

import dataclasses
import pathlib
from collections.abc import Callable, Generator
from typing import Any

from kformer.inference.line_forms import LineForm, TextColumns
from kformer.inference.line_limits import LineLimits
from kformer.inference.lines import DEFAULT_INSTEAD, InputLine

ReadLines = Callable[[pathlib.Path], Generator[InputLine, None, None]]
LINES_PER_PART = 10_000
BATCH_SECONDS = 120.0  # the longest time for a batch


@dataclasses.dataclass(frozen=True)
class JobSettings:
    """What a job is to do. Another job in the same folder is refused if one of these differs.

    Args:
        inputs: The files, whose lines are answered one file after the other.
        model: What tells the model and how it answers: values for JSON.
        reading: What tells how the files are read: values for JSON.
        form: What is written for each line.
        lines_per_part: Lines of a part, the last one of a file excepted. A kill loses the parts that are not written:
            small parts lose less. Lines of like lengths make batches within a part: large ones pad less.
        on_fault: What stands in the place of an answer: a name in `kformer.inference.line_limits.INSTEAD`.
        limits: Which lines the model is asked for.
        seed: Of texts that are drawn at random: the same for each line, however often the job was killed.

    Raises:
        ValueError: There are no inputs, or `lines_per_part` is less than 1.
    """

    inputs: tuple[pathlib.Path, ...]
    model: dict[str, Any]
    reading: dict[str, Any] = dataclasses.field(default_factory=dict)
    form: LineForm = dataclasses.field(default_factory=TextColumns)
    lines_per_part: int = LINES_PER_PART
    on_fault: str = DEFAULT_INSTEAD
    limits: LineLimits = dataclasses.field(default_factory=LineLimits)
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.inputs:
            raise ValueError("A job needs at least one file. Name it by --input FILE.")
        if self.lines_per_part < 1:
            raise ValueError(f"lines_per_part must be at least 1. Received: {self.lines_per_part}.")

    def to_json(self) -> dict[str, Any]:
        """The settings as values for JSON, by which a later process knows whether it goes on with the same job."""
        return {
            "inputs": [str(path.absolute()) for path in self.inputs],
            "model": self.model,
            "reading": self.reading,
            "form": {type(self.form).__name__: dataclasses.asdict(self.form)},  # type: ignore[call-overload]
            "lines_per_part": self.lines_per_part,
            "on_fault": self.on_fault,
            "limits": dataclasses.asdict(self.limits),
            "seed": self.seed,
        }
