"""`kformer evaluate`."""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kformer.cli.options import (
    BleuTokenizer,
    CorpusName,
    FileReading,
    Limit,
    ModelArgument,
    Path,
    PresetName,
    SearchOptions,
    Split,
    Tag,
    Trust,
    check_tag,
    choose_decoding,
    choose_model,
    choose_part,
    look_through,
    open_file,
    read_corpus,
)
from kformer.cli.progress import progress_bar, status
from kformer.cli.startup import start_tensorflow
from kformer.config import DecodingConfig, TaskKind, task_kind
from kformer.data import Corpus, Pair, Pairs
from kformer.data.file_names import short_names
from kformer.data.label_checks import check_targets
from kformer.data.pairs import MappedPairs
from kformer.data.tags import tagged
from kformer.inference import Model
from kformer.inference.find import check_answers, check_search, check_task, find_model, reads_symbols, task_name
from kformer.inference.model import threads_for
from kformer.recipes import load_recipe
from kformer.runs.folder import RunFolder
from kformer.wording import count

if TYPE_CHECKING:
    from kformer.evaluation import Comparison


_SCORE_NAMES = {"WER": "word_error_rate"}


def evaluate(
    model: ModelArgument = None,
    preset: PresetName = None,
    corpus: CorpusName = None,
    split: Split = None,
    test: Annotated[
        Path | None,
        typer.Option(help="Pairs instead of a corpus: source, tab and target on each line.", rich_help_panel="Data"),
    ] = None,
    *,
    search: SearchOptions,
    bleu_tokenizer: BleuTokenizer = None,
    limit: Limit = None,
    tag: Tag = None,
    intervals: Annotated[
        bool,
        typer.Option(
            "--intervals",
            help="Add half of the width of each score's confidence interval of 95 %, by bootstrap resampling.",
            rich_help_panel="Scores",
        ),
    ] = False,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL",
            help="Add the scores of another translator, and how probable so large a difference is if none is better: "
            "paired bootstrap resampling. It searches in its own way, whatever the options here say. kformer compare "
            "shows more.",
            rich_help_panel="Scores",
        ),
    ] = None,
    trust: Trust = False,
    reading: FileReading,
) -> None:
    """Print the scores on a test set as one JSON line.

    Of a translator: BLEU and chrF by sacreBLEU, or word and phoneme error rate for symbols such as those of cmudict. Of
    a classifier or tagger: accuracy and macro F1. Of a language model: perplexity and bits a character.

    A recipe gives its corpus and, for a run folder, its search; a SavedModel has its own search.
    """
    chosen = load_recipe(search.recipe) if search.recipe is not None else None
    if corpus is None and test is None and chosen is not None:
        corpus = chosen.corpus
    path = choose_model(model, preset)
    found = find_model(path)
    check_answers(found)
    if not isinstance(found, RunFolder):
        search = dataclasses.replace(search, recipe=None)
    decoding = choose_decoding(found, search)
    check_search(found, decoding)
    parts, symbols = test_pairs(found, corpus, None if test is None else [test], reading, split)
    [pairs] = parts.values()
    if tag is not None:
        check_tag(found, tag)
        pairs = tagged_pairs(pairs, tag)
    kind = task_kind(task_name(found))
    symbols = symbols and kind.scored_by == "translations"
    if (intervals or against is not None) and kind.scored_by != "translations":
        raise ValueError(f"--intervals and --against are for translators. Received: a model of the task {kind.name}.")
    if against is not None:
        check_task(find_model(against), "translate")
        if tag is not None:
            check_tag(find_model(against), tag)
    if kind.scored_by != "translations" and (names := [*dataclasses.replace(search, recipe=None).given()]):
        raise ValueError(
            f"The scores of a model of the task {kind.name} need no search. Leave out "
            f"{', '.join('--' + name.replace('_', '-') for name in names)}."
        )
    check_targets(kind.name, pairs)
    has_bleu = kind.scored_by == "translations" and not symbols
    bleu_tokenizer = usable_bleu_tokenizer(bleu_tokenizer, {"": pairs} if has_bleu else {})
    match kind.scored_by:
        case "texts":
            scores = _evaluate_texts(found, decoding, pairs, limit)
        case "translations" if intervals or against is not None:
            models = {"": (found, decoding)} | ({} if against is None else {str(against): (find_model(against), None)})
            scores = _evaluate_surely(models, pairs, symbols, limit, bleu_tokenizer, trust)
        case "translations" | "labels":
            scores = _evaluate_answers(found, kind, decoding, pairs, symbols, limit, bleu_tokenizer, trust)
        case None:
            raise ValueError(f"kformer cannot score a model of the task {kind.name}. Compare its answers yourself.")
    print(json.dumps(scores))  # in ASCII: escapes are JSON's own, whatever standard output can write


def tagged_pairs(pairs: Pairs, tag: str) -> Pairs:
    """The pairs, whose sources have the tag before them."""
    return MappedPairs(lambda pair: (tagged(pair[0], tag), pair[1]), pairs)


def usable_bleu_tokenizer(name: str | None, parts: Mapping[str, Iterable[Pair]]) -> str | None:
    """The tokenizer of this name, or the one that suits the targets, which is printed where it is not the usual one.

    Args:
        name: As the user named it; None: not.
        parts: The pairs of each test set; none: BLEU scores nothing.

    Returns:
        Its name; None: different tokenizers suit different parts, so that each is to be scored by its own, or none is
        needed.

    Raises:
        ValueError: The tokenizer cannot be used on this machine, or is named where BLEU scores nothing.
    """
    if not parts:
        if name is not None:
            raise ValueError("--bleu-tokenizer is for translations of sentences, which BLEU scores. Leave it out.")
        return None
    from kformer.evaluation.bleu_tokenizers import bleu_metric, tokenizer_of_parts

    if name is not None:
        bleu_metric(name)
        return name
    one, told = tokenizer_of_parts({part: [target for _, target in pairs] for part, pairs in parts.items()})
    for texts, found in told.items():
        typer.echo(
            f"kformer: BLEU splits {texts} into words by sacreBLEU's tokenizer {found}, because the script of the "
            "references has no blanks between words. --bleu-tokenizer names another one.",
            err=True,
        )
    return one


def _number_of_sources(parts: Sequence[Pairs], symbols: bool, limit: int | None) -> int:
    """How many sources are scored. Pairs with a blank target, which cannot be, are told."""
    from kformer.evaluation.evaluate import sentences

    for pairs in parts:
        if left_out := sum(bool(source.strip()) and not target.strip() for source, target in pairs):
            typer.echo(f"kformer: left out, because the target is blank: {count(left_out, 'pair')}.", err=True)
    total = sum(len(sentences(pairs, symbols)) for pairs in parts)
    return min(total, limit or total)


def _loaded(found: RunFolder | Path, task: str, decoding: DecodingConfig | None, total: int, trust: bool) -> Model:
    """A model from `find_model`, for so many sources."""
    path = found.path if isinstance(found, RunFolder) else found
    model = Model(path, decoding, threads_per_operation=threads_for(total), task=task, trust=trust)
    with status(f"loading {path}"):
        return model.load()


def compared(
    models: Mapping[str, tuple[RunFolder | Path, DecodingConfig | None]],
    parts: Sequence[Pairs],
    symbols: bool,
    limit: int | None,
    bleu_tokenizer: str | None,
    trust: bool,
) -> "tuple[Comparison, list[int]]":
    """The translations of test sets by several models with their searches, and how many sources each set has."""
    from kformer.evaluation import Comparison
    from kformer.evaluation.evaluate import translated

    total = _number_of_sources(parts, symbols, limit)
    translations = {}
    for name, (found, decoding) in models.items():
        model = _loaded(found, "translate", decoding, total, trust)
        with progress_bar(f"translating with {model.path}", total) as advance:
            made = translated(model, parts, symbols, limit, advance)
        translations[name] = made.translations
    with status("comparing"):
        comparison = Comparison(made.sources, made.references, translations, symbols, bleu_tokenizer)
    return comparison, made.sizes


def _evaluate_surely(
    models: Mapping[str, tuple[RunFolder | Path, DecodingConfig | None]],
    pairs: Pairs,
    symbols: bool,
    limit: int | None,
    bleu_tokenizer: str | None,
    trust: bool,
) -> dict[str, Any]:
    """Scores with their confidence intervals, and those of a second model with p-values."""
    from kformer.evaluation.evaluate import measured

    comparison, _ = compared(models, [pairs], symbols, limit, bleu_tokenizer, trust)
    first, *others = comparison.names
    scores = measured(comparison.translations[first], comparison.references, symbols, bleu_tokenizer)
    scores |= {"resamples": comparison.samples, **_intervals(comparison, first)}
    for other in others:
        scores["against"] = {"model": other, **_intervals(comparison, other)}
    return scores


def _intervals(comparison: "Comparison", model: str) -> dict[str, float]:
    """The scores of a model, with their intervals and, if it is not the first one, p-values."""
    found: dict[str, float] = {}
    for metric, of_models in comparison.scores.items():
        name, score = _SCORE_NAMES.get(metric, metric.lower()), of_models[model]
        found |= {name: score.value, f"{name}_interval": score.interval}
        if score.p_value is not None:
            found[f"{name}_p_value"] = score.p_value
    return found


def _evaluate_answers(
    model: RunFolder | Path,
    kind: TaskKind,
    decoding: DecodingConfig | None,
    pairs: Pairs,
    symbols: bool,
    limit: int | None,
    bleu_tokenizer: str | None,
    trust: bool,
) -> dict[str, Any]:
    """Compares the model's translations or labels with the targets."""
    from kformer.evaluation.evaluate import score, score_labels

    total = _number_of_sources([pairs], symbols, limit)
    answer = _loaded(model, kind.name, decoding, total, trust)
    with progress_bar("translating" if kind.scored_by == "translations" else "reading", total) as advance:
        if kind.scored_by == "translations":
            return score(answer, pairs, symbols, limit, advance, bleu_tokenizer)
        return score_labels(answer, pairs, limit, advance)


def _evaluate_texts(
    model: RunFolder | Path, decoding: DecodingConfig | None, pairs: Pairs, limit: int | None
) -> dict[str, Any]:
    """How probable the sources are to a language model."""
    if not isinstance(model, RunFolder):
        raise ValueError(
            f"{model} is an export. Perplexity is that of a run folder: name it. kformer score writes how probable an "
            "export with the signature score finds each text."
        )
    start_tensorflow()
    from kformer.evaluation.evaluate import score_texts
    from kformer.tasks import LanguageModel

    with status(f"loading {model.path}"):
        predictor = LanguageModel.from_run(model.path, decoding)
    return score_texts(predictor.score, [text for text, _ in pairs], limit)


def test_pairs(
    model: RunFolder | Path, corpus: str | None, files: list[Path] | None, reading: FileReading, split: str | None
) -> tuple[dict[str, Pairs], bool]:
    """The pairs of each test set by its name, and whether they are symbols."""
    if corpus is not None and not files:
        pairs, symbols = _read_part(model, corpus, reading, split)
        return {corpus: pairs}, symbols
    if files and corpus is None:
        found = [_read_file(model, file, reading, split) for file in files]
        names = short_names([(file,) for file in files])
        return {name: pairs for name, (pairs, _) in zip(names, found, strict=True)}, found[0][1]
    raise ValueError("There must be one test set. Give --corpus or --test, or else --recipe, which has a corpus.")


def _read_part(model: RunFolder | Path, corpus: str, reading: FileReading, split: str | None) -> tuple[Pairs, bool]:
    """The pairs of a part of a corpus, and whether they are symbols."""
    if reading != FileReading():
        raise ValueError(
            "--columns, --fields and --inline-tags say how a file is read. Give them together with --test."
        )
    part = choose_part(split)
    loaded = read_corpus(corpus)
    _warn_of_another_kind(model, loaded)
    return getattr(loaded, part), loaded.symbols


def _read_file(model: RunFolder | Path, file: Path, reading: FileReading, split: str | None) -> tuple[Pairs, bool]:
    """The pairs of a file, and whether they are symbols, which only the model can tell."""
    if split is not None:
        raise ValueError("--split names a part of a corpus, and a file has no parts. Leave out --split or --test.")
    if task_kind(task_name(model)).learns_from_plain_text:
        if reading.columns is not None:
            raise ValueError("A language model reads plain text, a text on each line. Leave out --columns.")
        return look_through(open_file(file, reading, plain_text=True)), False
    return look_through(open_file(file, reading)), bool(reads_symbols(model))


def _warn_of_another_kind(model: RunFolder | Path, corpus: Corpus) -> None:
    """Warns if the corpus consists of symbols but the model reads sentences, or the other way round."""
    reads = reads_symbols(model)
    if reads is None or reads == corpus.symbols:
        return
    kinds = {True: "symbols split by blanks", False: "sentences"}
    typer.echo(
        f"kformer: warning: the corpus {corpus.name} consists of {kinds[corpus.symbols]}, but the model reads "
        f"{kinds[reads]}. The scores say nothing about its quality.",
        err=True,
    )
