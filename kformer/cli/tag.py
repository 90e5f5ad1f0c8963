"""`kformer tag`."""

import dataclasses

from kformer.cli.answering import answer_lines
from kformer.cli.asked_model import Request
from kformer.cli.line_options import LineOptions
from kformer.cli.options import TaggerPreset
from kformer.jobs.asking import AskedAnswers


@dataclasses.dataclass(frozen=True)
class TagOptions(LineOptions):
    """Its options."""

    preset: TaggerPreset = None


def tag(given: TagOptions) -> None:
    """Find a tag for each word of each line. Blanks divide words, and tags, too."""
    form = given.writing.form("tag", keep=given.reading.keep is not None)
    answer_lines(given, Request(AskedAnswers("tag"), "reading", form))
