"""`kformer evaluate`."""

import json
from typing import Annotated, Any

import typer

from kformer.cli.options import (
    BeamSize,
    CorpusName,
    FileReading,
    LengthPenalty,
    MaxSourceLength,
    ModelArgument,
    Path,
    PresetName,
    SearchOptions,
    SearchRecipe,
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
from kformer.config import BLEU_TOKENIZERS, DecodingConfig, TaskKind, task_kind
from kformer.data import Corpus, Pairs
from kformer.data.labels import check_targets
from kformer.data.pairs import MappedPairs
from kformer.data.tags import tagged
from kformer.inference import Model
from kformer.inference.find import check_answers, check_search, find_model, reads_symbols, task_name
from kformer.inference.model import threads_for
from kformer.recipes import load_recipe
from kformer.runs.folder import RunFolder
from kformer.wording import count


def evaluate(
    model: ModelArgument = None,
    preset: PresetName = None,
    corpus: CorpusName = None,
    split: Annotated[
        str | None,
        typer.Option(
            metavar="PART", help="Part of the corpus: train, valid, or test, the default.", rich_help_panel="Data"
        ),
    ] = None,
    test: Annotated[
        Path | None,
        typer.Option(help="Pairs instead of a corpus: source, tab and target on each line.", rich_help_panel="Data"),
    ] = None,
    recipe: SearchRecipe = None,
    beam_size: BeamSize = None,
    length_penalty: LengthPenalty = None,
    max_source_length: MaxSourceLength = None,
    bleu_tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"How BLEU splits texts into words, by sacreBLEU: {', '.join(BLEU_TOKENIZERS)}. The default is 13a, "
            "but zh for Chinese references and char for other scripts without blanks.",
            autocompletion=lambda: list(BLEU_TOKENIZERS),
            rich_help_panel="Scores",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Number of sentences to score, from the first one.", rich_help_panel="Data"),
    ] = None,
    tag: Tag = None,
    trust: Trust = False,
    *,
    reading: FileReading,
) -> None:
    """Print the scores on a test set as one JSON line.

    Of a translator: BLEU and chrF by sacreBLEU, or word and phoneme error rate for symbols such as those of cmudict. Of
    a classifier or tagger: accuracy and macro F1. Of a language model: perplexity and bits a character.

    A recipe gives its corpus and, for a run folder, its search; a SavedModel has its own search.
    """
    chosen = load_recipe(recipe) if recipe is not None else None
    if corpus is None and test is None and chosen is not None:
        corpus = chosen.corpus
    path = choose_model(model, preset)
    found = find_model(path)
    check_answers(found)
    searching = recipe if isinstance(found, RunFolder) else None
    decoding = choose_decoding(found, SearchOptions(searching, beam_size, length_penalty, max_source_length))
    check_search(found, decoding)
    if corpus is not None and test is None:
        pairs, symbols = _read_part(found, corpus, reading, split)
    elif test is not None and corpus is None:
        pairs, symbols = _read_file(found, test, reading, split)
    else:
        raise ValueError(
            "evaluate needs one test set. Give --corpus or --test, or else --recipe, which has a corpus of its own."
        )

    if tag is not None:
        check_tag(found, tag)
        pairs = MappedPairs(lambda pair: (tagged(pair[0], tag), pair[1]), pairs)
    kind = task_kind(task_name(found))
    check_targets(kind.name, pairs)
    if kind.scored_by == "translations" and not symbols:
        bleu_tokenizer = _usable_bleu_tokenizer(bleu_tokenizer, pairs)
    elif bleu_tokenizer is not None:
        raise ValueError("--bleu-tokenizer is for translations of sentences, which BLEU scores. Leave it out.")
    match kind.scored_by:
        case "texts":
            scores = _evaluate_texts(found, decoding, pairs, limit)
        case "translations" | "labels":
            scores = _evaluate_answers(found, kind, decoding, pairs, symbols, limit, bleu_tokenizer, trust)
        case None:
            raise ValueError(f"kformer cannot score a model of the task {kind.name}. Compare its answers yourself.")
    print(json.dumps(scores))  # in ASCII: escapes are JSON's own, whatever standard output can write


def _usable_bleu_tokenizer(name: str | None, pairs: Pairs) -> str:
    """The tokenizer of this name, or the one that suits the targets, which is printed where it is not the usual one."""
    from kformer.evaluation.bleu_tokenizers import bleu_metric, suitable_bleu_tokenizer

    if name is None:
        name = suitable_bleu_tokenizer(target for _, target in pairs)
        if name != "13a":
            typer.echo(
                f"kformer: BLEU splits texts into words by sacreBLEU's tokenizer {name}, because the script of the "
                "references has no blanks between words. --bleu-tokenizer names another one.",
                err=True,
            )
    bleu_metric(name)
    return name


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
    from kformer.evaluation.evaluate import score, score_labels, sentences

    path = model.path if isinstance(model, RunFolder) else model
    total = len(sentences(pairs, symbols))
    total = min(total, limit or total)
    answer = Model(path, decoding, threads_per_operation=threads_for(total), task=kind.name, trust=trust)
    if left_out := sum(bool(source.strip()) and not target.strip() for source, target in pairs):
        typer.echo(f"kformer: left out, because the target is blank: {count(left_out, 'pair')}.", err=True)
    with status(f"loading {path}"):
        answer.load()
    with progress_bar("translating" if kind.scored_by == "translations" else "reading", total) as advance:
        if kind.scored_by == "translations":
            return score(answer, pairs, symbols, limit, advance, bleu_tokenizer)
        return score_labels(answer, pairs, limit, advance)


def _evaluate_texts(
    model: RunFolder | Path, decoding: DecodingConfig | None, pairs: Pairs, limit: int | None
) -> dict[str, Any]:
    """How probable the sources are to a language model."""
    if not isinstance(model, RunFolder):
        raise ValueError(f"{model} is a SavedModel, which cannot tell how probable texts are. Name the run folder.")
    start_tensorflow()
    from kformer.evaluation.evaluate import score_texts
    from kformer.tasks import LanguageModel

    with status(f"loading {model.path}"):
        predictor = LanguageModel.from_run(model.path, decoding)
    return score_texts(predictor.score, [text for text, _ in pairs], limit)


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
    symbols = model.corpus()["symbols"] if isinstance(model, RunFolder) else reads_symbols(model)
    return look_through(open_file(file, reading)), bool(symbols)


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
