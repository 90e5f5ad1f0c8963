"""The steps of `kformer demo`: train, evaluate, export, and use the export in a process without kformer."""

import json
import pathlib
import subprocess
import sys
import time
from typing import Any

import rich.console

from kformer.cli.demo_settings import DemoSettings
from kformer.cli.progress import progress_bar
from kformer.data import Corpus, load_corpus, references
from kformer.data.corpus import sample_sources
from kformer.evaluation.evaluate import score, sentences
from kformer.export.saved_model import export_saved_model
from kformer.inference.load import load_model
from kformer.runs.folder import RunFolder
from kformer.training.train import TrainingReport, train
from kformer.translation.translator import Translator

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


def run_demo(corpus_name: str, settings: DemoSettings, output: pathlib.Path) -> dict[str, Any]:
    """Runs the demo and prints what happens.

    Args:
        corpus_name: A name for `kformer.data.load_corpus`.
        settings: What is trained and shown.
        output: An empty folder, or a new one, for the run and the export.

    Returns:
        The scores on the test set.
    """
    began = time.monotonic()
    console = rich.console.Console(soft_wrap=True, highlight=False)
    corpus = load_corpus(corpus_name)
    report = _train(settings, corpus, output / "run", console)
    scores = _evaluate(report.run, corpus, console)
    saved_model = _export(report.run, output / "export", console)
    _use(saved_model, settings, corpus, console)
    console.print(f"\n[bold]Done[/] in {(time.monotonic() - began) / 60:.1f} minutes. What next:")
    console.print(_next_steps(corpus_name, report.run, output), markup=False)
    return scores


def _train(settings: DemoSettings, corpus: Corpus, run: pathlib.Path, console: rich.console.Console) -> TrainingReport:
    console.print(f"[bold]1. Training[/] a Transformer for {settings.training.max_minutes:g} minutes: {settings.task}")
    samples = sample_sources(corpus.valid, settings.samples)
    report = train(corpus, run, settings.transformer, settings.training, samples=samples, console=console)
    console.print(f"{report.steps:,} steps: {report.reason}. Best validation loss {report.best:.3f}.")
    return report


def _evaluate(run: RunFolder, corpus: Corpus, console: rich.console.Console) -> dict[str, Any]:
    total = len(sentences(corpus.test, corpus.symbols))
    console.print(f"\n[bold]2. Evaluating[/] on {total:,} test items that nobody trained on")
    translate = load_model(run.path)
    with progress_bar("translating", total, console) as advance:
        scores = score(translate, corpus.test, corpus.symbols, on_batch=advance)
    console.print(json.dumps(scores, ensure_ascii=False), markup=False)
    return scores


def _export(run: RunFolder, directory: pathlib.Path, console: rich.console.Console) -> pathlib.Path:
    console.print("\n[bold]3. Exporting[/] tokenizer, model and beam search as one SavedModel")
    saved_model = export_saved_model(Translator.from_run(run.path), directory)
    size = sum(file.stat().st_size for file in saved_model.rglob("*") if file.is_file())
    console.print(f"{saved_model}, {size / 1e6:.0f} MB", markup=False)
    return saved_model


def _use(saved_model: pathlib.Path, settings: DemoSettings, corpus: Corpus, console: rich.console.Console) -> None:
    console.print("\n[bold]4. Using[/] the SavedModel in a fresh process without kformer")
    grouped = references(corpus.test)
    sources = sample_sources(corpus.test, settings.shown)
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
