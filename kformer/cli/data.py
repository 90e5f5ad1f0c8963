"""`kformer data`."""

from typing import Annotated

import typer

from kformer.cli.options import FileReading, Path, open_file, warnings_told
from kformer.cli.progress import status
from kformer.cli.train_corpus import CleaningOptions
from kformer.data import Cleaning, Pairs, ParallelFiles
from kformer.data.cleaning import clean
from kformer.data.description import describe
from kformer.data.pairs import SelectedPairs


def data(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILES", help="A file of pairs, or two parallel files: source and target lines."),
    ],
    reading: FileReading,
    cleaning: CleaningOptions,
    plain_text: Annotated[
        bool,
        typer.Option("--plain-text", help="Each line of the file is a text without a target.", rich_help_panel="Data"),
    ] = False,
) -> None:
    """Show what a corpus consists of: lengths, scripts, what is there twice, and what the rules would leave out.

    Nothing is written. Without rules, the duplicates and the copies are counted.
    """
    pairs = _open(files, reading, plain_text)
    rules = cleaning.rules
    if rules == Cleaning():
        rules = Cleaning(drop_copies=not plain_text, duplicates="pairs")
    with warnings_told(), status("reading"):
        kept, report = clean(pairs, rules)
    print("\n".join(report.lines(examples=True)))
    print("\nWhat is kept:")
    print("\n".join(describe(SelectedPairs(pairs, kept)).lines()))


def _open(files: list[Path], reading: FileReading, plain_text: bool) -> Pairs:
    if len(files) == 1:
        return open_file(files[0], reading, plain_text)
    if len(files) > 2 or reading != FileReading() or plain_text:
        raise ValueError(
            "data takes one file of pairs, or two parallel files without --columns, --fields and --plain-text. "
            f"Received: {len(files)} files."
        )
    return ParallelFiles(*files)
