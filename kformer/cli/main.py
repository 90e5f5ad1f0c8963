"""The command line: thin commands over the Python interface.

TensorFlow is imported inside the commands, so that `--help` answers at once.
"""

import contextlib
import json
import pathlib
import sys
from collections.abc import Iterator
from typing import Annotated, BinaryIO

import typer

from kformer import files

app = typer.Typer(
    name="kformer",
    help='The Transformer of "Attention Is All You Need": train a translator, use it, export it.',
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ModelArgument = Annotated[
    pathlib.Path | None,
    typer.Argument(metavar="MODEL", help="A run folder, or a SavedModel (or its base folder: the last version)."),
]
ShippedModel = Annotated[
    str | None, typer.Option(metavar="NAME", help="A model that kformer brings, instead of MODEL.")
]
BeamSize = Annotated[
    int | None,
    typer.Option(min=1, help="Width of the beam; 1 is greedy search. Default 4; a SavedModel has its own."),
]
CorpusName = Annotated[
    str | None,
    typer.Option(help="cmudict, bible-en-es, or tfds:NAME (any TFDS translation data set); tfds:NAME@en-de turns it."),
]
RecipeName = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="A whole experiment, such as wmt14-en-de-base, or a YAML file like it."),
]
File = pathlib.Path


@app.command()
def train(
    output: Annotated[File, typer.Option(metavar="RUN", help="The run folder to write.")],
    corpus: CorpusName = None,
    train: Annotated[File | None, typer.Option(help="Pairs, source TAB target a line; .gz and .xz are read.")] = None,
    valid: Annotated[File | None, typer.Option(help="Validation pairs; default: one in 50 of --train.")] = None,
    train_source: Annotated[File | None, typer.Option(help="Source lines, parallel to --train-target.")] = None,
    train_target: Annotated[File | None, typer.Option(help="Target lines.")] = None,
    valid_source: Annotated[File | None, typer.Option(help="Validation source lines.")] = None,
    valid_target: Annotated[File | None, typer.Option(help="Validation target lines.")] = None,
    size: Annotated[
        str | None, typer.Option(help="Sizes and settings of a new run: tiny, small (default), base or big.")
    ] = None,
    recipe: RecipeName = None,
    config: Annotated[
        File | None, typer.Option(help="JSON or YAML with `transformer:` and `training:` fields to change.")
    ] = None,
    monitor: Annotated[
        str | None, typer.Option(help="What tells the best weights: validation loss, bleu or word_error_rate.")
    ] = None,
    export_to: Annotated[
        File | None, typer.Option("--export", metavar="DIR", help="Export each best model so far as a new version.")
    ] = None,
    max_minutes: Annotated[float | None, typer.Option(help="Budget in minutes of training.")] = None,
    max_epochs: Annotated[int | None, typer.Option(help="Budget in passes over the corpus.")] = None,
    max_steps: Annotated[int | None, typer.Option(help="Budget in optimizer updates.")] = None,
    initialize_from: Annotated[
        str | None,
        typer.Option(
            metavar="RUN", help="Begin with the weights, vocabulary and sizes of a run folder, or of a model by name."
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint in RUN, as if nothing had happened.")
    ] = False,
    devices: Annotated[
        int | None, typer.Option(min=1, help="Devices of this machine that share every batch; default: all GPUs.")
    ] = None,
    num_processes: Annotated[
        int | None,
        typer.Option(
            envvar="KERAS_DISTRIBUTION_NUM_PROCESSES",
            help="Processes that train together, on one or more machines: start the same command in each.",
        ),
    ] = None,
    process_id: Annotated[
        int | None,
        typer.Option(envvar="KERAS_DISTRIBUTION_PROCESS_ID", help="Number of this process, from 0 up."),
    ] = None,
    coordinator: Annotated[
        str | None,
        typer.Option(envvar="KERAS_DISTRIBUTION_JOB_ADDRESSES", help="HOST:PORT of process 0."),
    ] = None,
) -> None:
    """Train a translator on a corpus, a file of pairs or two parallel files.

    Ctrl-C ends the run in good order: the best weights and the last checkpoint are saved. Without a budget the
    run ends when the validation loss has stopped falling.
    """
    from kformer.cli.startup import quiet_tensorflow

    quiet_tensorflow()
    from kformer.cli.options import change, choose_corpus, start_of_new_run, start_of_resumed_run
    from kformer.recipes import load_recipe
    from kformer.training.distributed import initialize, is_main
    from kformer.training.train import train as train_run

    options = {"monitor": monitor, "max_minutes": max_minutes, "max_epochs": max_epochs, "max_steps": max_steps}
    if resume and (size, recipe) == (None, None):
        start = start_of_resumed_run(output)
    else:  # `train` refuses to resume with a size or recipe of other settings than the run's
        start = start_of_new_run(size, recipe, initialize_from)
    if recipe is not None and (corpus, train, train_source, train_target) == (None,) * 4:
        corpus = load_recipe(recipe).corpus
    pairs = choose_corpus(corpus, (train, valid), (train_source, train_target), (valid_source, valid_target))
    transformer, training = change(start, config, options)
    if (num_processes, process_id, coordinator) != (None, None, None):  # last: what is wrong before ends no other one
        initialize(coordinator, num_processes, process_id)
    report = train_run(
        pairs,
        output,
        transformer,
        training,
        resume=resume,
        initialize_from=initialize_from,
        export_to=export_to,
        devices=devices,
    )
    if not is_main():
        return
    best = "none" if report.best is None else f"{report.best:.4f}"
    monitor = report.run.training_config().monitor
    print(
        f"{report.steps:,} steps: {report.reason}. Best validation {monitor} {best}. The run is in {report.run.path}."
    )


@app.command()
def translate(
    model: ModelArgument = None,
    preset: ShippedModel = None,
    input: Annotated[File | None, typer.Option(help="UTF-8 lines; default: standard input.")] = None,
    output: Annotated[File | None, typer.Option(help="Where to write; default: standard output.")] = None,
    beam_size: BeamSize = None,
    n_best: Annotated[int, typer.Option(min=1, help="Hypotheses a line, as `number ||| translation ||| score`.")] = 1,
) -> None:
    """Translate line by line: as many lines out as in, in order."""
    from kformer.cli.startup import quiet_tensorflow

    if input is not None and not input.is_file():
        raise FileNotFoundError(f"{input} is no regular file. Name a text file, or leave out --input to read a pipe.")
    quiet_tensorflow()
    from kformer.cli.options import choose_decoding, choose_model
    from kformer.cli.progress import progress_bar
    from kformer.inference.batches import load_model
    from kformer.inference.lines import FILE_LINES_AT_ONCE, LINES_AT_ONCE, count_lines, translate_lines

    function = load_model(choose_model(model, preset), choose_decoding(beam_size), n_best)
    if input is None:
        lines_at_once = 1 if sys.stdin.isatty() else LINES_AT_ONCE
        with _written(output) as target:
            translate_lines(function, sys.stdin.buffer, target, n_best, lines_at_once)
        return
    with input.open("rb") as lines:
        total = count_lines(lines)
    with input.open("rb") as source, _written(output) as target, progress_bar("translating", total) as advance:
        translate_lines(function, source, target, n_best, FILE_LINES_AT_ONCE, advance)


@contextlib.contextmanager
def _written(output: File | None) -> Iterator[BinaryIO]:
    """Standard output, or a file that appears under its name when it is whole."""
    if output is None:
        yield sys.stdout.buffer
        return
    with files.replacing(output) as partial, partial.open("wb") as target:
        yield target


@app.command()
def evaluate(
    model: ModelArgument = None,
    preset: ShippedModel = None,
    corpus: CorpusName = None,
    split: Annotated[str, typer.Option(help="Part of --corpus: train, valid or test.")] = "test",
    test: Annotated[File | None, typer.Option(help="Pairs, source TAB target a line, instead of --corpus.")] = None,
    recipe: RecipeName = None,
    beam_size: BeamSize = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N sentences.")] = None,
) -> None:
    """Print one JSON line: BLEU and chrF by sacreBLEU, or word and phoneme error rate for cmudict."""
    from kformer.cli.startup import quiet_tensorflow

    quiet_tensorflow()
    from kformer.cli.options import choose_decoding, choose_model, corpus_part
    from kformer.cli.progress import progress_bar
    from kformer.data import load_corpus, read_tsv
    from kformer.evaluation.evaluate import score, sentences
    from kformer.inference.batches import find_saved_model, load_model
    from kformer.recipes import load_recipe
    from kformer.runs.folder import RunFolder

    if [corpus, test, recipe].count(None) != 2:
        raise ValueError("evaluate needs exactly one of --corpus, --test and --recipe. Give one of the three.")
    model = choose_model(model, preset)
    decoding = choose_decoding(beam_size)
    if recipe is not None:
        corpus = load_recipe(recipe).corpus
        if find_saved_model(model) is None:  # that one has its own search
            decoding = choose_decoding(beam_size, load_recipe(recipe).decoding)
    if corpus is not None:
        loaded = load_corpus(corpus)
        pairs, symbols = corpus_part(loaded, split), loaded.symbols
    else:
        run = RunFolder(model)
        pairs, symbols = read_tsv(test), run.exists() and run.corpus()["symbols"]
    total = len(sentences(pairs, symbols))
    with progress_bar("translating", min(total, limit or total)) as advance:
        scores = score(load_model(model, decoding), pairs, symbols, limit, advance)
    print(json.dumps(scores, ensure_ascii=False))


@app.command()
def export(
    folders: Annotated[
        list[File],
        typer.Argument(
            metavar="[RUN] DIR",
            help="A run folder, if there is no --preset; the model's base folder, for a new version.",
        ),
    ],
    preset: ShippedModel = None,
    beam_size: Annotated[int, typer.Option(min=1, help="Width of the beam; 1 is greedy search.")] = 4,
    precision: Annotated[
        str,
        typer.Option(
            help="float32 runs well everywhere; bfloat16 is for CPUs with AVX512-BF16 or AMX, int8 for those with VNNI."
        ),
    ] = "float32",
    variant: Annotated[
        str,
        typer.Option(
            help="portable runs everywhere; xla (float32 only) is compiled where it runs, which a server must allow."
        ),
    ] = "portable",
) -> None:
    """Write DIR/<version>/, a SavedModel for TensorFlow Serving: strings in, strings out."""
    from kformer.cli.startup import quiet_tensorflow

    quiet_tensorflow()
    from kformer.cli.options import choose_model
    from kformer.config import DecodingConfig
    from kformer.export.saved_model import export_saved_model
    from kformer.translation.translator import Translator

    *run, directory = folders
    if len(run) > 1:
        raise ValueError(f"export needs RUN and DIR. Received: {len(folders)} folders.")
    translator = Translator.from_run(choose_model(run[0] if run else None, preset), DecodingConfig(beam_size=beam_size))
    print(export_saved_model(translator, directory, precision=precision, variant=variant))


@app.command()
def average(
    run: Annotated[File, typer.Argument(metavar="RUN", help="A run folder.")],
    output: Annotated[File, typer.Argument(metavar="NEW", help="The run folder to make.")],
    last: Annotated[
        int | None, typer.Option(min=1, help="How many of the last validations. Default: all that the run has kept.")
    ] = None,
) -> None:
    """Average the weights of a run's last validations into a new run folder."""
    from kformer.cli.startup import quiet_tensorflow

    quiet_tensorflow()
    from kformer.training.averaging import average_weights

    print(average_weights(run, output, last).path)


@app.command()
def pack(
    run: Annotated[File, typer.Argument(metavar="RUN", help="A run folder.")],
    output: Annotated[File, typer.Argument(metavar="NEW", help="The folder to make.")],
    about: Annotated[
        File | None,
        typer.Option(help="JSON or YAML of what to say: description, command, scores, licence, provenance."),
    ] = None,
    steps: Annotated[
        int, typer.Option(min=1, max=127, help="From zero to a row's largest weight; fewer make a smaller file.")
    ] = 127,
) -> None:
    """Make a run folder small enough to be passed on: its best weights in bytes, nothing of its course."""
    from kformer.cli.startup import quiet_tensorflow

    quiet_tensorflow()
    from kformer.config import read_mapping
    from kformer.presets import pack_run

    report = pack_run(run, output, read_mapping(about) if about is not None else None, steps)
    print(
        f"{report.run.path}: {report.parameters:,} parameters, {report.size / 1e6:.2f} MB in all; the packed weights "
        f"are {report.relative_error:.2%} from the run's."
    )


@app.command()
def demo(
    corpus: Annotated[str, typer.Option(help="bible-en-es (translation) or cmudict (pronunciation).")] = "bible-en-es",
    output: Annotated[File | None, typer.Option(help="Where to write; default: demo-CORPUS.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Training time; default: 10, or 5 for cmudict.")] = None,
) -> None:
    """Train, evaluate, export and use a small translator, in under fifteen minutes on two cores."""
    from kformer.cli.startup import quiet_tensorflow

    quiet_tensorflow()
    from kformer.cli.demo import run_demo

    run_demo(corpus, output or File(f"demo-{corpus}"), minutes)
