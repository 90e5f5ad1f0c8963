"""`kformer classify`."""

from kformer.cli.answering import Request, answer_lines
from kformer.cli.lines import InputFields, InputFiles, JobOptions, LineOptions, OutputFile, OutputOptions
from kformer.cli.on_server import ServerUrl, TokenFile
from kformer.cli.options import ClassifierPreset, ModelArgument, Trust
from kformer.jobs.asking import AskedAnswers


def classify(
    model: ModelArgument = None,
    preset: ClassifierPreset = None,
    server: ServerUrl = None,
    token_file: TokenFile = None,
    input: InputFiles = None,
    output: OutputFile = None,
    trust: Trust = False,
    *,
    reading: InputFields,
    writing: OutputOptions,
    job: JobOptions,
) -> None:
    """Find the label of each line. A tab divides a line of two texts, for a model that learned from such lines."""
    given = LineOptions(model, preset, server, token_file, input or [], output, trust, reading, writing, job)
    form = writing.form("classify", keep=reading.keep is not None)
    answer_lines(given, Request(AskedAnswers("classify"), "reading", form))
