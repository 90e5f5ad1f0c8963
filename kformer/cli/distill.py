"""`kformer distill`."""

import dataclasses
from typing import Annotated, Any

import typer

from kformer.cli.command_form import with_options
from kformer.cli.job import told_progress
from kformer.cli.lines import warn
from kformer.cli.train import MachineOptions, RunOptions, run_training
from kformer.cli.train_config import FIELD_OPTIONS, StartOptions
from kformer.cli.train_corpus import CleaningOptions, CorpusOptions
from kformer.config import DecodingConfig
from kformer.data import Corpus
from kformer.jobs.distillation import BEAM_SIZE, check_teacher, distilled_corpus

DEFAULT_SIZE = "small-shallow-decoder"
_PANEL = "Teacher"


@dataclasses.dataclass(frozen=True)
class TeacherOptions:
    """The options that say what the student learns from."""

    teacher: Annotated[str, typer.Argument(metavar="TEACHER", help="A run folder or a preset: the large translator.")]
    teacher_beam_size: Annotated[
        int, typer.Option(min=1, help="Beams of the search for the teacher's translations.", rich_help_panel=_PANEL)
    ] = BEAM_SIZE
    targets: Annotated[
        int,
        typer.Option(
            min=1,
            help="How many of these translations are learned of each source: those nearest to the corpus's own target.",
            rich_help_panel=_PANEL,
        ),
    ] = 1
    processes: Annotated[
        int | None,
        typer.Option(
            min=1, help="Processes that translate. By default as many as there are cores.", rich_help_panel=_PANEL
        ),
    ] = None
    beam_size: Annotated[
        int, typer.Option(min=1, help="Beams of the student's own search. 1: greedy.", rich_help_panel="Model")
    ] = 1


@with_options(FIELD_OPTIONS)
def distill(
    teaching: TeacherOptions,
    run: RunOptions,
    corpus: CorpusOptions,
    cleaning: CleaningOptions,
    start: StartOptions,
    **fields: Any,
) -> None:
    """Train a small, fast translator on what a large one makes of the training sources.

    First the teacher translates the sources of the training part, as a job into RUN/teacher/. After any kill, the same
    command goes on there. Then the student is trained as by `kformer train`, whose options these are, but the default
    size is small-shallow-decoder; with --resume the training goes on, too. Validations use the corpus's own targets.
    With --word-level the student also learns the teacher's probabilities, and has the teacher's vocabulary.
    """
    teacher = check_teacher(teaching.teacher, teaching.targets, teaching.teacher_beam_size)
    if fields["word_level"] and fields["word_level_teacher"] is None:
        fields["word_level_teacher"] = teaching.teacher
    if not run.goes_on and (start.size, start.recipe, start.initialize_from) == (None, None, None):
        start = dataclasses.replace(start, size=DEFAULT_SIZE)

    def taught(given: Corpus) -> Corpus:
        with told_progress("translating", len(given.train)) as on_lines:
            return distilled_corpus(
                teacher.path,
                given,
                run.output / "teacher",
                beam_size=teaching.teacher_beam_size,
                targets=teaching.targets,
                processes=teaching.processes,
                on_lines=on_lines,
                tell=warn,
            )

    run_training(
        run, corpus, cleaning, start, MachineOptions(), fields, taught, DecodingConfig(beam_size=teaching.beam_size)
    )
