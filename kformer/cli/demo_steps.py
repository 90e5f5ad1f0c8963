"""The steps of `kformer demo`: measure the machine, train, evaluate, export, and use the export without kformer."""

import functools
import json
import pathlib
import subprocess
import sys
import time
from typing import Any

import typer

from kformer.cli.demo_settings import Demo, choose_minutes
from kformer.cli.progress import progress_bar
from kformer.config import TrainingConfig
from kformer.data import Corpus, load_corpus, references
from kformer.data.corpus import sample_sources
from kformer.evaluation.evaluate import score, sentences
from kformer.export.saved_model import export_saved_model
from kformer.inference import Model
from kformer.process.console import Console
from kformer.runs.exit_status import RESUME
from kformer.runs.folder import RunFolder
from kformer.tasks.translator import Translator
from kformer.training.plan import shorten_warmup
from kformer.training.speed import measure_seconds_per_update
from kformer.training.train import TrainingReport, train
from kformer.wording import count

# This program does what a server does: it uses TensorFlow and its text operations, but not kformer.
FRESH_PROCESS = """
import json, sys
import tensorflow as tf
import tensorflow_text
translate = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
found = translate(text=tf.constant(json.load(sys.stdin)))
if any(name.split(".")[0] == "kformer" for name in sys.modules):
    sys.exit("The SavedModel has loaded kformer, which a server does not have.")
json.dump([text.decode("utf-8") for text in found["translation"].numpy()], sys.stdout)
"""


def run_demo(corpus_name: str, demo: Demo, minutes: float | None, output: pathlib.Path) -> dict[str, Any]:
    """Runs the demo and prints what happens.

    Args:
        corpus_name: A name for `kformer.data.load_corpus`.
        demo: What is trained and shown.
        minutes: The budget of training; None: as the demo and the machine's speed decide.
        output: An empty folder, or a new one, for the run and the export.

    Returns:
        The scores on the test set.

    Raises:
        typer.Exit: A signal ended the training, which can be resumed.
    """
    began = time.monotonic()
    console = Console(markup=True)
    corpus = load_corpus(corpus_name)
    training = choose_training(demo, minutes, corpus, console)
    report = _train(demo, training, corpus, output / "run", console)
    if report.interrupted:
        goes_on = f"kformer train --corpus {corpus_name} --output {report.run.path} --resume"
        console.print(f"To go on, give: {goes_on}", markup=False)
        raise typer.Exit(RESUME)
    scores = evaluate(report.run, corpus, console)
    saved_model = _export(report.run, output / "export", console)
    use(saved_model, demo, corpus, console)
    console.print(f"\n[bold]Done[/] in {(time.monotonic() - began) / 60:.1f} minutes. What next:")
    console.print(_next_steps(corpus_name, report.run, output), markup=False)
    console.print(_outlook(demo, report), markup=False)
    return scores


def choose_training(demo: Demo, minutes: float | None, corpus: Corpus, console: Console) -> TrainingConfig:
    """What the demo trains, with the budget for this machine, and a shorter warm-up if few updates fit in it."""
    console.print("[bold]0. Measuring[/] how fast this machine trains")
    seconds = measure_seconds_per_update(corpus, demo.transformer, demo.training)
    budget, expected = choose_minutes(demo, minutes, seconds, functools.partial(console.print, markup=False))
    training = demo.training.replace(max_minutes=budget)
    return training if expected >= demo.updates else shorten_warmup(training, expected)


def _train(demo: Demo, training: TrainingConfig, corpus: Corpus, run: pathlib.Path, console: Console) -> TrainingReport:
    console.print(f"\n[bold]1. Training[/] {demo.model} for {count(training.max_minutes or 0, 'minute')}: {demo.task}")
    samples = sample_sources(corpus.valid, demo.samples)
    report = train(corpus, run, demo.transformer, training, samples=samples, console=console)
    best = "none" if report.best is None else f"{report.best:.3f}"
    console.print(f"{report.steps:,} steps: {report.reason}. Best validation loss {best}.")
    return report


def evaluate(run: RunFolder, corpus: Corpus, console: Console) -> dict[str, Any]:
    total = len(sentences(corpus.test, corpus.symbols))
    console.print(f"\n[bold]2. Evaluating[/] on {total:,} test items that nobody trained on")
    translate = Model(run.path)
    with progress_bar("translating", total, console) as advance:
        scores = score(translate, corpus.test, corpus.symbols, on_batch=advance)
    console.print(json.dumps(scores), markup=False)
    return scores


def _export(run: RunFolder, directory: pathlib.Path, console: Console) -> pathlib.Path:
    console.print("\n[bold]3. Exporting[/] tokenizer, model and beam search as one SavedModel")
    saved_model = export_saved_model(Translator.from_run(run.path), directory)
    size = sum(file.stat().st_size for file in saved_model.rglob("*") if file.is_file())
    console.print(f"{saved_model}, {size / 1e6:.0f} MB", markup=False)
    return saved_model


def use(saved_model: pathlib.Path, demo: Demo, corpus: Corpus, console: Console) -> None:
    console.print("\n[bold]4. Using[/] the SavedModel in a fresh process without kformer")
    grouped = references(corpus.test)
    sources = sample_sources(corpus.test, demo.shown)
    process = subprocess.run(
        [sys.executable, "-c", FRESH_PROCESS, str(saved_model)],
        input=json.dumps(sources),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    if process.returncode:
        raise ValueError(f"The exported model failed in a process of its own:\n{process.stderr}")
    for source, translation in zip(sources, json.loads(process.stdout), strict=True):
        console.print(f"  source     {source}\n  kformer    {translation}", markup=False)
        console.print(f"  reference  {' | '.join(grouped[source])}\n", markup=False)


def _next_steps(corpus_name: str, run: RunFolder, output: pathlib.Path) -> str:
    example = "c h e e s e" if corpus_name == "cmudict" else "In the beginning God created the heavens."
    train = f"kformer train --corpus {corpus_name} --output runs/{corpus_name} --max-minutes 60"
    return (
        f'  translate your own lines:  echo "{example}" | kformer translate {run.path}\n'
        f"  train longer:              {train}\n"
        "  train on your own pairs:   kformer train --train pairs.tsv --output runs/mine\n"
        f"  serve {output / 'export'}: see export/README.md"
    )


def _outlook(demo: Demo, report: TrainingReport) -> str:
    """What this training was, and what a longer one or a faster machine gives."""
    lines = [
        f"This was {demo.model} after {count(report.steps, 'update')}. More minutes or a faster machine give more:",
        *demo.reached,
    ]
    return "\n  ".join(lines)
