"""`kformer compare`."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import rich.box
import rich.table
import rich.text
import typer

from kformer.cli.evaluate import compared, tagged_pairs, test_pairs, usable_bleu_tokenizer
from kformer.cli.figure_files import checked_figure, write_figure
from kformer.cli.options import (
    BleuTokenizer,
    CorpusName,
    FileReading,
    Limit,
    Path,
    SearchOptions,
    Split,
    Trust,
    check_tag,
    choose_decoding,
)
from kformer.config import DecodingConfig
from kformer.data import Pairs
from kformer.inference.find import check_search, check_task, find_model, search_of
from kformer.process.console import Console
from kformer.runs.folder import RunFolder
from kformer.wording import count

if TYPE_CHECKING:
    from kformer.evaluation import Comparison

_SHOWN_SETTINGS = ("transformer", "training", "decoding")


def compare(
    models: Annotated[
        list[Path],
        typer.Argument(metavar="MODEL...", help="Two or more run folders or exports. The first is compared with each."),
    ],
    reading: FileReading,
    corpus: CorpusName = None,
    split: Split = None,
    test: Annotated[
        list[Path] | None,
        typer.Option(help="Pairs instead of a corpus. May be repeated: each is scored apart.", rich_help_panel="Data"),
    ] = None,
    limit: Limit = None,
    bleu_tokenizer: BleuTokenizer = None,
    *,
    search: SearchOptions,
    tag: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORD",
            help="The tag of the texts, as of evaluate. May be repeated, one for each --test.",
            rich_help_panel="Search",
        ),
    ] = None,
    lines: Annotated[
        int, typer.Option(min=0, help="How many lines of each kind are shown, in which the models differ most.")
    ] = 3,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the scores: .png, .svg or .html (needs the extra `plots`)."),
    ] = None,
    trust: Trust = False,
) -> None:
    """Compare translators on a test set: settings, scores, how sure a difference is, and lines where they differ.

    Scores have a confidence interval of 95 % and a p-value, by paired bootstrap resampling: how probable so large a
    difference from the first model is, if none is better. The options of the search hold for all models.
    """
    picture = None if plot is None else checked_figure(plot, "comparison", option="--plot")
    if len(models) < 2:
        raise ValueError(f"compare needs two or more models. Received: {len(models)}. kformer evaluate scores one.")
    names = _names(models)
    found = {name: find_model(path) for name, path in zip(names, models, strict=True)}
    for model in found.values():
        check_task(model, "translate")
    searching = {name: (model, choose_decoding(model, search)) for name, model in found.items()}
    for model, decoding in searching.values():
        check_search(model, decoding)
    parts, symbols = test_pairs(next(iter(found.values())), corpus, test, reading, split)
    if tag:
        parts = _tagged(parts, tag, found.values())
    bleu_tokenizer = usable_bleu_tokenizer(bleu_tokenizer, {} if symbols else parts)
    comparison, sizes = compared(searching, [*parts.values()], symbols, limit, bleu_tokenizer, trust)
    console = Console()
    _print_settings(console, searching)
    _print_scores(console, comparison)
    first = next(iter(comparison.scores))
    if len(parts) > 1:
        ends = [0, *itertools.accumulate(sizes)]
        by_part = {
            name: comparison.of_lines(range(begin, end))
            for name, (begin, end) in zip(parts, itertools.pairwise(ends), strict=True)
        }
        _print_table(console, f"{first} of each test set", ["", *names], _rows(by_part))
    _print_table(console, f"{first} by the length of the source", ["", *names], _rows(comparison.by_length()))
    for other in names[1:]:
        _print_lines(console, comparison, other, lines)
    if picture is not None:
        from kformer.visualization import plot_comparison

        write_figure(plot_comparison(comparison), picture)


def _tagged(parts: Mapping[str, Pairs], tags: Sequence[str], models: Iterable[RunFolder | Path]) -> dict[str, Pairs]:
    """The test sets, whose texts have their tags before them: one tag for all sets, or one for each."""
    if len(tags) not in (1, len(parts)):
        raise ValueError(
            f"There must be one --tag, or one for each --test. Received: {len(tags)}, and {len(parts)} of those."
        )
    for model in models:
        for one in tags:
            check_tag(model, one)
    of_parts = list(tags) * (len(parts) if len(tags) == 1 else 1)
    return {name: tagged_pairs(pairs, one) for (name, pairs), one in zip(parts.items(), of_parts, strict=True)}


def _names(models: Sequence[Path]) -> list[str]:
    """The names of folders, or their paths where names are the same."""
    names = [path.resolve().name for path in models]
    names = names if len({*names}) == len(names) else [str(path) for path in models]
    if len({*names}) < len(names):
        raise ValueError(f"The models must differ. Received: {', '.join(names)}.")
    return names


def _settings(model: RunFolder | Path, decoding: DecodingConfig | None) -> dict[str, Any]:
    """The settings of a model and of a search with it, those of the search alone if it is an export."""
    found = {f"decoding.{name}": value for name, value in search_of(model, decoding).items()}
    if isinstance(model, RunFolder):
        found |= {f"transformer.{name}": value for name, value in model.transformer_config().to_dict().items()}
        if model.training_file.is_file():
            found |= {f"training.{name}": value for name, value in model.training_config().to_dict().items()}
    return {name: value for name, value in found.items() if not isinstance(value, dict | list)}


def _print_settings(console: Console, models: Mapping[str, tuple[RunFolder | Path, DecodingConfig | None]]) -> None:
    settings = [_settings(*model) for model in models.values()]
    every = dict.fromkeys(name for found in settings for name in found if name.split(".")[0] in _SHOWN_SETTINGS)
    rows = [[name, *(str(found.get(name, "-")) for found in settings)] for name in every]
    rows = [row for row in rows if len({*row[1:]} - {"-"}) > 1]
    _print_table(console, "Settings that differ", ["", *models], rows or [["none", *[""] * len(models)]])


def _print_scores(console: Console, comparison: "Comparison") -> None:
    rows = []
    for metric, scores in comparison.scores.items():
        digits = 3 if metric == "WER" else 2
        cells = []
        for score in scores.values():
            p_value = "" if score.p_value is None else f" (p {score.p_value:.3f})"
            cells.append(f"{score.value:.{digits}f} ± {score.interval:.{digits}f}{p_value}")
        rows.append([metric, *cells])
    title = f"Scores of {len(comparison.sources):,} lines, ± 95 %; p: against {comparison.names[0]}"
    _print_table(console, title, ["", *comparison.names], rows)


def _rows(scores: Mapping[str, Mapping[str, float]]) -> list[list[str]]:
    return [[name, *(f"{value:.3g}" for value in of_names.values())] for name, of_names in scores.items()]


def _print_table(console: Console, title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = rich.table.Table(title=title, title_justify="left", title_style="bold", box=rich.box.SIMPLE_HEAD)
    for name in header:
        table.add_column(rich.text.Text(name), overflow="fold")
    for row in rows:
        table.add_row(*map(rich.text.Text, row))
    console.print(table)


def _print_lines(console: Console, comparison: "Comparison", other: str, number: int) -> None:
    """The lines with the largest gains and losses of another model."""
    found = comparison.lines(other)
    better = [line for line in found[:number] if line.gain > 0]
    worse = [line for line in found[::-1][:number] if line.gain < 0]
    first = comparison.names[0]
    same = len(comparison.sources) - len(found)
    console.print(f"{other} and {first} give the same translation of {count(same, 'line')}.", markup=False)
    for kind, lines in (("better", better), ("worse", worse)):
        for line in lines:
            console.print(f"\n  {other} is {kind} ({line.gain:+.1f}):", markup=False)
            for name, text in (("source", line.source), ("reference", line.reference)):
                console.print(f"    {name}: {text}", markup=False)
            for name, text in ((first, line.first), (other, line.other)):
                console.print(f"    {name}: {text}", markup=False)
