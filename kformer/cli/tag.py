"""`kformer tag`."""

from kformer.cli.answering import Request, answer_lines
from kformer.cli.lines import InputFields, InputFiles, JobOptions, LineOptions, OutputFile, OutputOptions
from kformer.cli.on_server import ServerUrl, TokenFile
from kformer.cli.options import ModelArgument, TaggerPreset, Trust
from kformer.jobs.asking import AskedAnswers


def tag(
    model: ModelArgument = None,
    preset: TaggerPreset = None,
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
    """Find a tag for each word of each line. Blanks divide words, and tags, too."""
    given = LineOptions(model, preset, server, token_file, input or [], output, trust, reading, writing, job)
    form = writing.form("tag", keep=reading.keep is not None)
    answer_lines(given, Request(AskedAnswers("tag"), "reading", form))
