"""`kformer data`."""

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from kformer.cli.options import FileReading, Path, open_files, warnings_told
from kformer.cli.progress import status
from kformer.cli.startup import start_tensorflow
from kformer.cli.train_corpus import CleaningOptions
from kformer.data import Cleaning, Pairs
from kformer.data.cleaning import clean
from kformer.data.corpus_description import SIDES, describe
from kformer.data.pairs import SelectedPairs
from kformer.presets import find_preset

if TYPE_CHECKING:
    from kformer.tokenizers import Tokenizer


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
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="A run folder, or a trained model that comes with kformer by its name: show how many tokens its "
            "vocabularies make of the texts, and what they lack.",
            rich_help_panel="Vocabulary",
        ),
    ] = None,
    source_tokenizer: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The same for a SentencePiece model, of both sides without --target-tokenizer.",
            rich_help_panel="Vocabulary",
        ),
    ] = None,
    target_tokenizer: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A SentencePiece model of the targets.", rich_help_panel="Vocabulary"),
    ] = None,
) -> None:
    """Show what a corpus consists of: lengths, scripts, words, what is there twice, and what the rules would leave out.

    Nothing is written. Without rules, the duplicates and the copies are counted.
    """
    tokenizers = _tokenizers(model, source_tokenizer, target_tokenizer)
    pairs = _open(files, reading, plain_text)
    rules = cleaning.rules
    if rules == Cleaning():
        rules = Cleaning(drop_copies=not plain_text, duplicates="pairs")
    with warnings_told(), status("reading"):
        kept, report = clean(pairs, rules)
    print("\n".join(report.lines(examples=True)))
    print("\nWhat is kept:")
    print("\n".join(describe(SelectedPairs(pairs, kept)).lines()))
    if tokenizers is not None:
        _tell_tokens(SelectedPairs(pairs, kept), tokenizers, plain_text)


def _open(files: list[Path], reading: FileReading, plain_text: bool) -> Pairs:
    is_bare = dataclasses.replace(reading, skip_bad_lines=False) == FileReading() and not plain_text
    if len(files) > 2 or (len(files) == 2 and not is_bare):
        raise ValueError(
            "data takes one file of pairs, or two parallel files without --columns, --fields and --plain-text. "
            f"Received: {len(files)} files."
        )
    return open_files(files, reading, plain_text)


def _tokenizers(model: str | None, source: Path | None, target: Path | None) -> "tuple[Tokenizer, Tokenizer] | None":
    """Those of a model, or of SentencePiece models; None: the texts are not divided into tokens."""
    if model is None and source is None and target is None:
        return None
    if (model is None) == (source is None) or (model is not None and target is not None):
        raise ValueError(
            "data takes --model, or --source-tokenizer and perhaps --target-tokenizer. Received: "
            f"--model {model}, --source-tokenizer {source}, --target-tokenizer {target}. Leave out the others."
        )
    run = None if model is None else find_preset(model)
    start_tensorflow()
    from kformer.tokenizers import load_tokenizers, read_sentencepiece

    if run is not None:
        return load_tokenizers(run.tokenizer_folder)
    first = read_sentencepiece(source or "")
    return first, first if target is None else read_sentencepiece(target)


def _tell_tokens(pairs: Pairs, tokenizers: "tuple[Tokenizer, Tokenizer]", plain_text: bool) -> None:
    from kformer.data.token_use import token_use

    print("\nIn tokens:")
    for side, name in enumerate(SIDES[: 1 if plain_text else 2]):
        with status("dividing into tokens"):
            use = token_use((pair[side] for pair in pairs), tokenizers[side])
        print(f"{name}: {use.line()}")
