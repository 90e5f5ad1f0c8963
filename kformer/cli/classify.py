"""`kformer classify`."""

import dataclasses

from kformer.cli.answering import answer_lines
from kformer.cli.asked_model import Request
from kformer.cli.line_options import ClassifierFields, LineOptions
from kformer.cli.options import ClassifierPreset, Path, choose_model
from kformer.inference.find import find_model
from kformer.jobs.asking import AskedAnswers
from kformer.runs.folder import RunFolder


@dataclasses.dataclass(frozen=True)
class ClassifyOptions(LineOptions):
    """Its options."""

    preset: ClassifierPreset = None


def classify(given: ClassifyOptions) -> None:
    """Find the label of each line. A tab divides a line of two texts, for a model that learned from such lines.

    Of a table, --fields names the text, or the two texts of a pair.
    """
    reading = ClassifierFields(**dataclasses.asdict(given.reading))
    given = dataclasses.replace(given, reading=reading)
    if reading.names_pairs and given.server is None:
        _check_reads_pairs(find_model(choose_model(given.model, given.preset)), given.reading.fields)
    form = given.writing.form("classify", keep=given.reading.keep is not None)
    answer_lines(given, Request(AskedAnswers("classify"), "reading", form))


def _check_reads_pairs(model: RunFolder | Path, fields: str | None) -> None:
    """Refuses two texts for a model that has learned from single ones. An export does not tell."""
    if isinstance(model, RunFolder) and not model.corpus().get("tabs_in_sources", True):
        raise ValueError(
            f"{model.path} has learned from single texts. Received: --fields {fields}, which names two texts. Name the "
            "field of the text alone."
        )
