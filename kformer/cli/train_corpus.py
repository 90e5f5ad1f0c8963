"""The corpus of `kformer train`: given by its name, as files of pairs, or as parallel files."""

import dataclasses
import functools
from typing import Annotated, Any

import typer

from kformer.cli.options import Columns, CorpusName, Path, open_file, read_corpus
from kformer.data import Corpus, Pairs, ParallelFiles, corpus_from_pairs, read_parallel

_data = functools.partial(typer.Option, rich_help_panel="Data")


@dataclasses.dataclass(frozen=True)
class CorpusOptions:
    """The options that choose the corpus."""

    corpus: CorpusName = None
    train: Annotated[
        Path | None,
        _data(
            help="Pairs to train on: source, tab and target on each line, or plain text for a language model; .gz, .xz "
            "and .bz2 are read."
        ),
    ] = None
    valid: Annotated[
        Path | None,
        _data(
            help="Pairs to validate on. By default one source in 50 of --train is held out, and 20 or one in 10 of a "
            "small file."
        ),
    ] = None
    columns: Columns = None
    train_source: Annotated[
        Path | None, _data(help="Source lines to train on, parallel to those of --train-target.")
    ] = None
    train_target: Annotated[Path | None, _data(help="Target lines to train on.")] = None
    valid_source: Annotated[
        Path | None, _data(help="Source lines to validate on, parallel to those of --valid-target.")
    ] = None
    valid_target: Annotated[Path | None, _data(help="Target lines to validate on.")] = None

    def read(self, plain_text: bool = False, began_with: str | None = None) -> Corpus:
        """The corpus.

        Args:
            plain_text: Whether `train` and `valid` are plain text, for a task that learns from it.
            began_with: The name of the corpus of a run that goes on, for the message if there is none here.

        Raises:
            ValueError: There is not exactly one corpus, or the options do not go together.
        """
        self._check(began_with)
        if self.corpus is not None:
            return read_corpus(self.corpus)
        train = _named(self.train) or _named(self.train_source, self.train_target)
        valid = _named(self.valid) or _named(self.valid_source, self.valid_target)
        pairs = self._open(train, plain_text)
        if not valid:
            return corpus_from_pairs(str(train[0]), pairs)
        return corpus_from_pairs(str(train[0]), pairs, self._open(valid, plain_text), valid_name=str(valid[0]))

    def _open(self, files: list[Path], plain_text: bool) -> Pairs:
        """The pairs of a file, or of two parallel files, which are looked through at once; those of pipes are held."""
        if len(files) == 1:
            return open_file(files[0], self.columns, plain_text)
        if not all(file.is_file() for file in files):
            return read_parallel(*files)
        pairs = ParallelFiles(*files)
        len(pairs)
        return pairs

    def _check(self, began_with: str | None) -> None:
        """Refuses anything but one corpus, and files that do not go together."""
        ways = _named(self.corpus, self.train, self.train_source or self.train_target)
        if len(ways) != 1:
            again = "" if began_with is None else f" Give the corpus that this run began with: {began_with}."
            raise ValueError(
                "train needs exactly one of --corpus NAME, --train PAIRS.tsv, or --train-source and --train-target "
                f"(a recipe has a corpus of its own). Received: {len(ways)} of them.{again}"
            )
        for form, train, valid in (
            ("", self.train, self.valid),
            ("-source", self.train_source, self.valid_source or self.valid_target),
        ):
            if train is None and valid is not None:
                raise ValueError(
                    f"Validation files must have the form of the training files. Received: --valid{form} without "
                    f"--train{form}. Give both parts as pairs or both as parallel files; a named corpus has its own "
                    "validation pairs."
                )
        for part in ("train", "valid"):
            if (getattr(self, f"{part}_source") is None) != (getattr(self, f"{part}_target") is None):
                raise ValueError(f"--{part}-source and --{part}-target go together. Give both.")
        if self.columns is not None and self.train is None:
            raise ValueError("--columns names the columns of tab-separated files. Give it together with --train.")


def _named(*given: Any) -> list[Any]:
    return [one for one in given if one is not None]
