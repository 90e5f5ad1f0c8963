"""A command that answers lines as a job: into a folder, by several processes or servers."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from kformer.cli.asked_model import Chosen, Request, choose, limits_of, model_of, watchers_of
from kformer.cli.bearer_token import read_token
from kformer.cli.line_options import LineOptions
from kformer.cli.lines import check_files, number_of_lines, warn
from kformer.cli.on_server import no_answer, server_urls
from kformer.cli.options import Path
from kformer.cli.progress import progress_bar, status
from kformer.client import ServerError
from kformer.client.settings import ServerAddress
from kformer.inference.find import search_of
from kformer.inference.fingerprint import fingerprint
from kformer.inference.line_counts import CountedLines, CutLines, LinesWithoutAnswer
from kformer.inference.lines import DEFAULT_INSTEAD
from kformer.jobs import JobReport, JobSettings, run_job
from kformer.jobs.answerer import LocalModel, ServedModel
from kformer.jobs.asking import facts_of
from kformer.jobs.processes import ProcessWorkers
from kformer.jobs.servers import ServerWorkers
from kformer.jobs.workers import Workers
from kformer.runs.folder import RunFolder
from kformer.wording import count

_PATIENCE = 600.0  # seconds without an answer of any server
_SECONDS_BETWEEN = 60.0  # two lines that tell the progress where nobody sees a bar


def answer_job(given: LineOptions, request: Request) -> None:
    """Writes the answers to all lines into the folder, or those that are missing there."""
    if not given.inputs:
        raise ValueError("A job reads files. Name each by --input FILE, or a file by --output instead of a folder.")
    for file in given.inputs:
        check_files(file, None)
    chosen = None if given.server is not None else choose(given, request)
    workers, model = _local(given, request, chosen) if chosen is not None else _served(given, request)
    folder = given.output.path if given.output is not None else Path()
    settings = JobSettings(
        inputs=tuple(given.inputs),
        model=model,
        reading={"fields": given.reading.fields, "inline_tags": given.reading.inline_tags, "keep": given.reading.keep},
        form=request.form,
        lines_per_part=given.job.lines_per_part,
        on_fault=given.writing.on_error or DEFAULT_INSTEAD,
        limits=limits_of(given, request),
        seed=request.asking.seed,
    )
    total = sum(number_of_lines(file, given.reading) for file in given.inputs)
    with told_progress(request.doing, total) as on_lines:
        try:
            report = run_job(folder, settings, given.reading.lines, workers, on_lines, warn)
        except KeyboardInterrupt:
            print(f"kformer: stopped. The same command goes on in {folder}.", file=sys.stderr)
            raise
    _tell(report, folder, settings, chosen)


def _local(given: LineOptions, request: Request, chosen: Chosen) -> tuple[Workers, dict[str, object]]:
    """Processes with the model, and what tells it from other models."""
    found = chosen.found
    search = search_of(found, chosen.decoding)  # not what the run folder says later
    path = found.path if isinstance(found, RunFolder) else found  # not the folder of versions: one may come later
    decoding = found.decoding_config(chosen.decoding) if isinstance(found, RunFolder) else None
    with status(f"reading {path}"):
        sums = fingerprint(chosen.found)
    model = model_of(given, request, path, decoding, threads_per_operation=1)
    source = LocalModel(model, request.asking, chosen.short_ratio, sums)
    return ProcessWorkers(source, given.job.processes, given.job.batch_seconds), {
        "sha256": sums,
        "search": search,
        **facts_of(request.asking),
    }


def _served(given: LineOptions, request: Request) -> tuple[Workers, dict[str, object]]:
    """The servers, of which one must answer now, and what tells their model from others."""
    token, seconds = read_token(given.token_file), given.job.batch_seconds
    sources = [ServedModel(url, token, seconds, request.asking) for url in server_urls(given.server or "")]
    silent: list[ServerError] = []
    for source in sources:
        try:
            with status(f"connecting to {source.url}"), source.opened():
                pass
        except ServerError as error:
            silent.append(error)
            warn(f"{error}. The job begins without it, and asks it again.")
    if len(silent) == len(sources):
        raise no_answer(silent) from silent[0]
    addresses = [ServerAddress.of_url(source.url) for source in sources]
    names = {" ".join(map(str, filter(None, (one.model, one.version, one.label)))) for one in addresses}
    patience = max(_PATIENCE, 5 * given.job.batch_seconds)
    return ServerWorkers(sources, patience), {"served_as": sorted(names), **facts_of(request.asking)}


@contextlib.contextmanager
def told_progress(doing: str, total: int) -> Iterator[Callable[[int], None]]:
    """Tells how far a job is; yields a function that takes the number of further lines that are done."""
    told = Progress(total)
    with progress_bar(doing, total) as advance:

        def on_lines(lines: int) -> None:
            advance(lines)
            told(lines)

        yield on_lines


class Progress:
    """Tells the progress on standard error from time to time, where it is no terminal.

    Args:
        total: The number of lines.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = self._told = 0
        self._last = time.monotonic()

    def __call__(self, lines: int) -> None:
        now = time.monotonic()
        self._done += lines
        seconds = now - self._last
        if seconds < _SECONDS_BETWEEN or sys.stderr.isatty():
            return
        rate = (self._done - self._told) / seconds  # of the time since the last such line
        self._last, self._told = now, self._done
        left = (self._total - self._done) / max(rate, 1e-9) / 60
        print(
            f"kformer: {self._done:,} of {count(self._total, 'line')}, {rate:,.0f} a second, about "
            f"{count(round(left), 'minute')} left",
            file=sys.stderr,
        )


def _tell(report: JobReport, folder: Path, settings: JobSettings, chosen: Chosen | None) -> None:
    """Tells what was done, and what a person should know of the lines."""
    before = f", {report.before:,} of them before" if report.before else ""
    print(f"kformer: {folder} has the answers to {count(report.lines, 'line')}{before}.", file=sys.stderr)
    if report.faults:
        warn(LinesWithoutAnswer(settings.on_fault).told(report.faults, report.first_fault))
    watchers: dict[str, CountedLines] = {"cut": CutLines()}
    if chosen is not None:
        watchers |= zip(("unknown", "cut", "short"), watchers_of(chosen), strict=True)
    for kind, told in report.notes.items():
        warn(watchers[kind].told(*told))
