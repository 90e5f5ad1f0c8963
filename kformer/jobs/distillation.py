"""The corpus that a small model learns from a large one: the large model's translations of the training texts.

Source: Kim and Rush 2016, "Sequence-Level Knowledge Distillation", sections 3.2 and 3.3.
"""

import dataclasses
import itertools
import json
import pathlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

from kformer.data import AlignedPair, Corpus, JsonLinesFile, Pair, Pairs, PreparedCorpus, prepare_corpus
from kformer.files.writing import check_folder_path, replacing
from kformer.inference import Model
from kformer.inference.find import check_task, search_of
from kformer.inference.fingerprint import fingerprint
from kformer.inference.line_forms import JsonLines
from kformer.inference.lines import InputLine
from kformer.jobs.answerer import LocalModel
from kformer.jobs.asking import AskedAnswers, facts_of
from kformer.jobs.processes import ProcessWorkers
from kformer.jobs.run import run_job
from kformer.jobs.settings import JobSettings
from kformer.presets import find_preset
from kformer.runs.folder import RunFolder

SOURCES, ANSWERS = "sources.jsonl", "answers"
BEAM_SIZE = 8
_LINES_PER_PART = 2000  # fewer than in other jobs: a large teacher's beam search takes minutes for so many


def distilled_corpus(
    teacher: str | pathlib.Path,
    corpus: Corpus,
    folder: str | pathlib.Path,
    *,
    beam_size: int = BEAM_SIZE,
    targets: int = 1,
    processes: int | None = None,
    lines_per_part: int = _LINES_PER_PART,
    on_lines: Callable[[int], None] = lambda lines: None,
    tell: Callable[[str], None] = lambda note: None,
) -> Corpus:
    """Replaces the training targets of a corpus by a teacher's translations of the sources.

    A beam search finds several translations. Of them those are taken that are nearest to the corpus's own target, by
    sacreBLEU's chrF of a sentence. Where there is no target, the best ones are taken. Where the teacher has no
    translation of its own, such as of a line that is too long, the pair stays as it is.

    Sources, translations and pairs are kept in a folder. A call that was stopped goes on there.

    Args:
        teacher: A run folder, or the name of a preset.
        corpus: Its validation part stays as it is.
        folder: Made if it is missing.
        beam_size: Of the teacher's search.
        targets: How many of the translations are learned, each as a pair of its own.
        processes: That translate, each with a model of its own; by default as many as there are cores.
        lines_per_part: A kill loses at most so many translations of a process.
        on_lines: Called with the number of further sources that are translated.
        tell: Called with what a person should know.

    Returns:
        The corpus to train on.

    Raises:
        ValueError: See `check_teacher`; or the folder holds the work of another teacher, corpus or search; or the
            sources have tags, or the pairs alignments.
    """
    folder, found = pathlib.Path(folder), check_teacher(teacher, targets, beam_size)
    _check_corpus(corpus)
    check_folder_path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    _write_sources(folder / SOURCES, corpus.train)
    decoding = found.decoding_config().replace(beam_size=beam_size)
    asking, sums = AskedAnswers("translate", beam_size), fingerprint(found)
    model = Model(found.path, decoding, threads_per_operation=1, **asking.model_options)
    settings = JobSettings(
        inputs=(folder / SOURCES,),
        model={"sha256": sums, "search": search_of(found, decoding), **facts_of(asking)},
        form=JsonLines("translate", beam_size),
        lines_per_part=lines_per_part,
        on_fault="empty",
    )
    workers = ProcessWorkers(LocalModel(model, asking, sha256=sums), processes)
    report = run_job(folder / ANSWERS, settings, _lines, workers, on_lines, tell)
    if report.faults:
        tell(
            "Sources that keep their own targets, because the teacher has no translation: "
            f"{report.faults:,}. The first: {report.first_fault}."
        )
    return _taught(corpus, folder, targets)


def _check_corpus(corpus: Corpus) -> None:
    if corpus.tags:
        raise ValueError(
            f"A corpus with tags cannot be distilled. Received: {corpus.name} with {', '.join(corpus.tags)}. Distill "
            "each direction by itself, without tags."
        )
    if any(isinstance(pair, AlignedPair) for pair in itertools.islice(corpus.train, 1)):
        raise ValueError(
            f"The word alignments of {corpus.name} are of its own targets, and not of the teacher's translations. "
            "Leave them out (--alignments, --guided-alignment)."
        )


def _taught(corpus: Corpus, folder: pathlib.Path, targets: int) -> Corpus:
    """The corpus with the translations of the finished job in the folder."""
    train = folder / f"train-{targets}.jsonl"
    _write_pairs(train, _learned(sorted((folder / ANSWERS).glob("part-*.jsonl")), targets))
    if not isinstance(corpus, PreparedCorpus):
        return dataclasses.replace(corpus, train=JsonLinesFile(train), parts=())
    # What is kept of the corpus is of its own targets. These pairs are kept by themselves.
    valid = folder / "valid.jsonl"
    _write_pairs(valid, corpus.valid)
    return prepare_corpus(
        corpus.name,
        JsonLinesFile(train),
        JsonLinesFile(valid),
        valid_name=corpus.name_of("valid"),
        cache=corpus.cache,
        progress=corpus.progress,
        tell=corpus.tell,
    )


def check_teacher(teacher: str | pathlib.Path, targets: int, beam_size: int) -> RunFolder:
    """The run folder of a teacher; arguments as of `distilled_corpus`.

    Raises:
        FileNotFoundError: The folder is no run folder, or has no weights yet.
        ValueError: There is no such preset; or the model is no translator; or `targets` is not from 1 to `beam_size`.
    """
    if not 1 <= targets <= beam_size:
        raise ValueError(
            f"targets must be from 1 to the teacher's beam size. Received: targets={targets}, beam size {beam_size}. "
            "Raise the beam size, or learn fewer translations of a source."
        )
    found = find_preset(teacher)
    check_task(found, "translate")
    return found


def nearest(translations: Sequence[str], reference: str, number: int = 1) -> list[str]:
    """The different translations with the highest chrF against a reference, the nearest one first.

    Of those with the same chrF, and without a reference, the earlier ones come first.

    Examples:
        >>> nearest(["the dog ran", "a cat sat", "the cat sat", "the cat sat"], "the cat sat down", number=2)
        ['the cat sat', 'a cat sat']
    """
    import sacrebleu  # commands that do not need it start sooner

    different = [*dict.fromkeys(translations)]
    if reference.strip():
        metric = sacrebleu.CHRF()
        different.sort(key=lambda text: -metric.sentence_score(text, [reference]).score)
    return different[:number]


def _write_sources(file: pathlib.Path, pairs: Pairs) -> None:
    """Writes the pairs, or checks that they are those of the work that is there."""
    if not file.is_file():
        _write_pairs(file, pairs)
        return
    with file.open(encoding="utf-8") as lines:
        if any(one != other for one, other in itertools.zip_longest(lines, map(_json_line, pairs))):
            raise ValueError(
                f"{file.parent} holds the translations of another corpus. Give the corpus that it began with, or name "
                "another folder."
            )


def _write_pairs(file: pathlib.Path, pairs: Iterable[Pair]) -> None:
    with replacing(file) as partial, partial.open("w", encoding="utf-8") as lines:
        lines.writelines(map(_json_line, pairs))


def _json_line(pair: Pair) -> str:
    source, target = pair
    return json.dumps({"source": source, "target": target}, ensure_ascii=False) + "\n"


def _lines(file: pathlib.Path) -> Generator[InputLine, None, None]:
    with file.open(encoding="utf-8") as lines:
        for pair in map(json.loads, lines):
            yield InputLine(pair["source"].encode(), pair["target"])


def _learned(parts: Sequence[pathlib.Path], targets: int) -> Iterator[Pair]:
    """As many pairs for each source. Where there are fewer different translations, they are repeated."""
    for part in parts:
        with part.open(encoding="utf-8") as lines:
            for answered in map(json.loads, lines):
                learned = [reference := answered.get("kept", "")]
                if "fault" not in answered:
                    found = [one["translation"] for one in answered.get("n_best", [answered])]
                    learned = nearest(found, reference, targets)
                for target in itertools.islice(itertools.cycle(learned), targets):
                    yield answered["text"], target
