"""`kformer classify`."""

import dataclasses

from kformer.cli.answering import Request, answer_lines
from kformer.cli.line_options import LineOptions
from kformer.cli.options import ClassifierPreset
from kformer.jobs.asking import AskedAnswers


@dataclasses.dataclass(frozen=True)
class ClassifyOptions(LineOptions):
    """Its options."""

    preset: ClassifierPreset = None


def classify(given: ClassifyOptions) -> None:
    """Find the label of each line. A tab divides a line of two texts, for a model that learned from such lines."""
    form = given.writing.form("classify", keep=given.reading.keep is not None)
    answer_lines(given, Request(AskedAnswers("classify"), "reading", form))
