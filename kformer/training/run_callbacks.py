"""The callbacks of a training run, in the order that `kformer.training.callbacks` asks for."""

import dataclasses
import functools
import itertools
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence

import keras
import rich.console

from kformer.config import MONITORS
from kformer.data import Corpus, Pair, references
from kformer.data.arrangements import Arrangement
from kformer.evaluation.bleu_tokenizers import bleu_metric, suitable_bleu_tokenizer, tokenizer_of_parts
from kformer.runs.folder import RunFolder
from kformer.tasks import task_of
from kformer.training import callbacks
from kformer.training.checkpoints import TrainingState
from kformer.training.distributed import ProcessGroup
from kformer.training.live_translation import LiveTranslator, SampleTranslations, ScoreTranslations, export_best
from kformer.training.plan import describe_minutes
from kformer.training.run_setup import RunSetup

SHOWN_SAMPLES = 3  # translations to show if sources are scored but no samples are given


@dataclasses.dataclass(frozen=True)
class ActiveRun:
    """A run that is being trained.

    Attributes:
        folder: The run folder; in processes other than the main one, a temporary copy.
        setup: What the run trains with.
        group: The devices and processes that train together.
        model: Compiled, with the weights of `state`.
        state: The progress of the run.
        console: Where to print.
        check_there: From `kformer.runs.ownership.owned`; None in processes that write nothing into the folder.
    """

    folder: RunFolder
    setup: RunSetup
    group: ProcessGroup
    model: keras.Model
    state: TrainingState
    console: rich.console.Console
    check_there: Callable[[], None] | None

    @property
    def arrangement(self) -> Arrangement:
        """How the batches of validations become inputs and labels of the model."""
        setup = self.setup
        return task_of(setup.transformer.task).arrangement(setup.tokenizers, setup.training)

    @property
    def training_arrangement(self) -> Arrangement:
        """How the batches that the model learns from become its inputs and labels."""
        setup = self.setup
        return task_of(setup.transformer.task).training_arrangement(setup.tokenizers, setup.training)


@dataclasses.dataclass(frozen=True)
class Translations:
    """What a run does with translations at its validations. None: it does not.

    Attributes:
        tensorboard: The log, which gets samples, too.
        score: Scores translations, in every process.
        show_samples: Shows some, in the main process.
        export_best: Exports the best weights, in the main process.
    """

    tensorboard: callbacks.TensorBoardLog
    score: Callable[[], dict[str, float]] | None = None
    show_samples: Callable[[], None] | None = None
    export_best: Callable[[], None] | None = None


def translate_at_validations(
    run: ActiveRun,
    corpus: Corpus,
    samples: Sequence[str],
    export_to: str | pathlib.Path | None,
    interrupt: callbacks.GracefulInterrupt,
) -> Translations:
    """What a run's options ask for; arguments as in `kformer.train`."""
    tensorboard = callbacks.TensorBoardLog(run.folder.tensorboard_folder, run.state)
    score, show_samples = None, None
    scored_sources = run.setup.training.scored_sources
    if samples or scored_sources:
        parts = _validation_parts(run, corpus)
        translate = LiveTranslator(run.model, run.setup.transformer, run.setup.tokenizers, run.folder.decoding_config())
        if scored_sources:
            tokenizer, monitor = _bleu_tokenizer(run, parts), MONITORS[run.setup.training.monitor]
            symbols, leave = run.setup.training.reads_symbols, interrupt.leave_validation
            score = ScoreTranslations(translate, parts, symbols, scored_sources, tokenizer, monitor, leave)
        samples = samples or _shown(parts)
        show_samples = SampleTranslations(samples, translate, run.console, tensorboard)
    export = None if export_to is None else functools.partial(export_best, run.folder, export_to, run.console)
    return Translations(tensorboard, score, show_samples, export)


def _shown(parts: Mapping[str, Sequence[Pair]]) -> list[str]:
    """Some of the sources, of each corpus in turn."""
    in_turn = itertools.chain.from_iterable(itertools.zip_longest(*map(references, parts.values())))
    return [*itertools.islice((source for source in in_turn if source is not None), SHOWN_SAMPLES)]


def _validation_parts(run: ActiveRun, corpus: Corpus) -> dict[str, Sequence[Pair]]:
    """The validation pairs of each joined corpus that has any, by the name that the run has given it.

    They are in memory: validations read them again and again, also when their file is gone.
    """
    pairs = list(corpus.valid)
    if sum(part.valid for part in corpus.parts) != len(pairs):  # one corpus, or validation pairs that belong to no part
        return {corpus.name: pairs}
    names = run.folder.corpus()["parts"]
    ends = itertools.accumulate(part.valid for part in corpus.parts)
    return {
        name: pairs[end - part.valid : end]
        for name, part, end in zip(names, corpus.parts, ends, strict=True)
        if part.valid
    }


def _bleu_tokenizer(run: ActiveRun, parts: Mapping[str, Sequence[Pair]]) -> str | None:
    """sacreBLEU's tokenizer for the validation targets; None: different ones suit the corpora.

    It is printed where it is not the usual one.

    Raises:
        ValueError: The tokenizer cannot be used on this machine.
    """
    training = run.setup.training
    if training.reads_symbols:  # BLEU is not computed
        return None
    targets = {name: [target for _, target in pairs] for name, pairs in parts.items()}
    tokenizer, told = tokenizer_of_parts(targets, training.bleu_tokenizer)
    for texts, found in told.items():
        run.console.print(f"BLEU splits {texts} into words by sacreBLEU's tokenizer {found}.", markup=False)
    every = list(itertools.chain.from_iterable(targets.values()))
    scored, usual = every[: training.scored_sources], tokenizer or suitable_bleu_tokenizer(every)
    if training.monitor == "bleu" and bleu_metric(usual).corpus_score(scored, [scored]).score == 0:
        run.console.print(
            "BLEU is 0.0 for every translation of the validation sources, even a perfect one: no target has four words."
            " Choose another monitor, such as chrf, or another bleu_tokenizer."
        )
    return tokenizer


def list_callbacks(
    run: ActiveRun,
    budget: callbacks.Budget,
    interrupt: callbacks.GracefulInterrupt,
    translations: Translations,
    user_callbacks: Sequence[keras.callbacks.Callback],
    of_parts: Callable[[], Mapping[str, float]] | None = None,
) -> list[keras.callbacks.Callback]:
    """All callbacks of a run; `of_parts` measures each of several corpora at a validation."""
    training, state, folder, is_main = run.setup.training, run.state, run.folder, run.group.is_main
    together = interrupt.together
    checkpoint = callbacks.Checkpoint(folder.path if is_main else None, state, training.checkpoint_minutes)
    scores = [score for score in (of_parts, translations.score) if score is not None]
    best_file = folder.best_weights_file if is_main else None
    keep_best = callbacks.KeepBest(best_file, state, budget.monitor, budget.least_improvement)
    main: callbacks.InMainProcess | None = None
    looking: list[keras.callbacks.Callback] = []
    if is_main:
        progress = callbacks.ProgressBar(state, budget.max_steps, budget.max_minutes, run.console)
        shows = (progress, translations.show_samples, translations.export_best)
        main = callbacks.InMainProcess(folder.weights_folder, training.keep_weights, *shows)
        notices = [callbacks.NoticeStop(state, callback, together) for callback in user_callbacks]
        of_user = itertools.chain.from_iterable(zip(user_callbacks, notices, strict=True))
        log = callbacks.CSVLog(folder.log_file, state)
        looking = [progress, translations.tensorboard, *of_user, log, *_estimates(run, budget.max_steps)]
    return [
        callbacks.TrackState(state),
        *([] if run.check_there is None else [callbacks.CheckFolder(run.check_there)]),
        *_endings(state, budget, interrupt),
        callbacks.Validation(state, checkpoint, keep_best, budget, scores, main),
        *looking,
        *_time_budget(state, budget, together),
        checkpoint,
        *([] if together is None else [callbacks.CompareLast(together)]),
    ]


def _estimates(run: ActiveRun, max_steps: int | None) -> list[keras.callbacks.Callback]:
    """The callback that tells how many updates a budget in minutes holds, if there is one."""
    if run.setup.training.max_minutes is None:
        return []

    def tell(seconds_per_update: float) -> None:
        told = describe_minutes(run.setup.training, run.state, seconds_per_update, max_steps)
        if told:
            run.console.print(told, markup=False)

    return [callbacks.UpdateTimer(tell)]


def _endings(
    state: TrainingState, budget: callbacks.Budget, interrupt: callbacks.GracefulInterrupt
) -> list[keras.callbacks.Callback]:
    """The callbacks that end the run, but for the budget of minutes."""
    together = interrupt.together
    endings: list[keras.callbacks.Callback] = [callbacks.StopOnNaN(state, together)]
    if budget.max_steps is not None:
        endings.insert(0, callbacks.StepBudget(state, budget.max_steps))
    endings.append(interrupt)
    return endings if together is None else [*endings, together]


def _time_budget(
    state: TrainingState, budget: callbacks.Budget, together: callbacks.StopTogether | None
) -> list[keras.callbacks.Callback]:
    if budget.max_minutes is None:
        return []
    started = time.monotonic() - state.seconds
    return [callbacks.TimeBudget(state, budget.max_minutes, started, together=together)]
