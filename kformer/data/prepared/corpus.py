"""A corpus of files that is read and tokenized once."""

import contextlib
import dataclasses
import functools
import hashlib
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from kformer.data.cleaning import Cleaning, CleaningReport
from kformer.data.corpus import Corpus, CorpusPart
from kformer.data.corpus_facts import CorpusFacts
from kformer.data.file_names import short_names
from kformer.data.joined import JoinedFiles
from kformer.data.prepared.file_hashes import fingerprints
from kformer.data.prepared.known_texts import Watched, known_texts, number_of_readings, read_texts
from kformer.data.sources.lines import FilePairs
from kformer.files.cache import cache_folder, made_by_one
from kformer.files.checksums import check_folder, checksum, note_checksums
from kformer.files.writing import check_folder_path, new_folder, write_json
from kformer.version import __version__

if TYPE_CHECKING:
    from kformer.config import TrainingConfig
    from kformer.data.encoded_ids import IdStore
    from kformer.tokenizers import Tokenizer

_LABELS, _TOKENIZERS = "labels.json", "tokenizers"
_FORM = 5  # of what the folders hold
_TOKENIZER_FIELDS = ("tokenizer", "vocab_size", "shared_vocabulary", "user_symbols", "max_length", "tags_before")
_TOKENIZER_FILES = ("source_tokenizer", "target_tokenizer")

# From a description and a number of items, or None if it is not known, to a function that takes what is done.
Progress = Callable[[str, int | None], contextlib.AbstractContextManager[Callable[[int], object]]]


def no_progress(description: str, total: int | None) -> contextlib.AbstractContextManager[Callable[[int], object]]:
    """Shows nothing."""
    return contextlib.nullcontext(lambda done: None)


@dataclasses.dataclass(frozen=True)
class PreparedCorpus(Corpus):
    """A corpus of which the facts, the tokenizers and the ids are kept in a cache. See `prepare_corpus`.

    Attributes:
        cache: The folder of all that is kept.
        key: A hash of the files, and of how they are read.
        known: The facts.
        left_out: What the cleaning has left out.
        progress: Shows how far the work is.
        tell: Takes notes for the user.

    Examples:
        >>> corpus = prepare_corpus("pairs.tsv", TsvFile("pairs.tsv"), cache="cache")
        >>> corpus.facts().train, corpus.left_out.left_out
        (1, 0)
    """

    cache: pathlib.Path = pathlib.Path()
    key: str = ""
    known: CorpusFacts | None = None
    left_out: CleaningReport = dataclasses.field(default_factory=CleaningReport)
    progress: Progress = no_progress
    tell: Callable[[str], object] = print

    def facts(self) -> CorpusFacts:
        """Numbers of the training and the validation part, found when they were first read."""
        return self.known or super().facts()

    def found_labels(self, task: str, find: Callable[[], tuple[set[str], set[str]]]) -> tuple[set[str], set[str]]:
        """As of `Corpus`. They are found once."""
        folder = self.cache / f"labels-{_hash(self.key, task)}"
        with made_by_one(folder, self.tell):
            if not folder.is_dir():
                found = [sorted(labels) for labels in find()]
                with new_folder(folder) as fresh:
                    write_json(fresh / _LABELS, found)
                    note_checksums(fresh, [fresh / _LABELS])
        check_folder(folder, remedy=f"Remove the folder {folder}: it is made again from the texts.")
        train, valid = json.loads((folder / _LABELS).read_text(encoding="utf-8"))
        return set(train), set(valid)

    def learned_tokenizers(
        self, task: str, training: "TrainingConfig", learn: Callable[[], "tuple[Tokenizer, Tokenizer]"]
    ) -> "tuple[Tokenizer, Tokenizer]":
        """As of `Corpus`. Those of the same settings are learned once."""
        from kformer.tokenizers import load_tokenizers, save_tokenizers

        given = (getattr(training, name) for name in _TOKENIZER_FILES)
        files = [None if file is None else checksum(pathlib.Path(file)) for file in given]
        settings = [getattr(training, name) for name in _TOKENIZER_FIELDS]
        folder = self.cache / f"tokenizers-{_hash(self.key, task, settings, files)}"
        with made_by_one(folder, self.tell):
            if not folder.is_dir():
                with self.progress(f"Learning the vocabulary of {self.name}", None), new_folder(folder) as fresh:
                    save_tokenizers(fresh / _TOKENIZERS, *learn())
                    note_checksums(fresh, [file for file in fresh.rglob("*") if file.is_file()])
        check_folder(folder, remedy=f"Remove the folder {folder}: it is made again from the texts.")
        return load_tokenizers(folder / _TOKENIZERS)

    @contextlib.contextmanager
    def kept_ids(
        self, task: str, training: "TrainingConfig", tokenizers: "tuple[Tokenizer, Tokenizer]"
    ) -> "Iterator[IdStore]":
        """As of `Corpus`. Those of the same tokenizers are made once, by one process."""
        from kformer.data.prepared.shards import DESCRIPTION, ShardedIds
        from kformer.tokenizers.storage import fingerprint_of

        source, target = tokenizers
        made_by = [fingerprint_of(source), None if source is target else fingerprint_of(target)]
        aligned = training.guided_alignment > 0
        made_for = (task, training.max_length, training.tags_before, made_by, aligned)
        folder = self.cache / f"ids-{_hash(self.key, *made_for)}"
        with (
            made_by_one(folder, self.tell, whole=folder / DESCRIPTION),
            self.progress(f"Tokenizing {self.name}", self.facts().train) as advance,
        ):
            yield ShardedIds(folder, advance, sizes=[part.train for part in self.parts], aligned=aligned)


def prepare_corpus(
    name: str,
    train: FilePairs,
    valid: FilePairs | None = None,
    *,
    valid_name: str | None = None,
    cleaning: Cleaning | None = None,
    cache: str | pathlib.Path | None = None,
    progress: Progress = no_progress,
    tell: Callable[[str], object] = print,
) -> PreparedCorpus:
    """A corpus of files, which may be larger than the memory, and is read and tokenized only once.

    It is read when no corpus of the same files has been prepared. Then training tokenizes it once, and keeps the ids on
    the disk: some 2 bytes for each token and 16 for each pair. Later runs, resumed runs and other processes open them
    in place. The same process may be killed at any time, and another one goes on where it stopped.

    Args:
        name: The name of the corpus in messages and in the run folder.
        train: The pairs to learn from, such as those of `JoinedFiles`.
        valid: The pairs to validate on, which are held in memory. Joined files belong to those of `train` in their
            order, of which the last ones may have none. None: they are held out of `train`, see `hold_out`.
        valid_name: What messages call `valid`.
        cleaning: Which pairs of `train` are left out; None: no pairs. `PreparedCorpus.left_out` counts them.
        cache: The folder for what is kept, which machines may share; by default `corpora` in `$KFORMER_CACHE`, or else
            where the system keeps such folders, such as `~/.cache/kformer`. It may be deleted when no run needs it.
        progress: Shows how far the work is.
        tell: Takes notes for the user.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A file cannot be read, or changes meanwhile.
        DamagedFileError: What was kept has been damaged.
        OSError: Nothing can be written to the cache.

    Examples:
        >>> corpus = prepare_corpus("pairs.tsv", TsvFile("pairs.tsv"), cache="cache")
        >>> len(corpus.train), corpus.valid
        (1, [('one two', 'uno dos')])
    """
    folder = cache_folder("corpora") if cache is None else pathlib.Path(cache)
    if not any(folder.glob("texts-*")):  # what is there may be all that is needed
        check_folder_path(folder)
    parts = [train] if valid is None else [train, valid]
    files = tuple(file for part in parts for file in part.files)
    sums = fingerprints(files, folder)
    cleaning = cleaning or Cleaning()
    key = _hash(__version__, _FORM, [part.reading for part in parts], sums, cleaning.fingerprint)
    check_same = functools.partial(_check_same, files, sums, folder)
    texts = folder / f"texts-{key}"
    with made_by_one(texts, tell):
        if not texts.is_dir():
            pairs, times = train.estimate(), number_of_readings(train, valid, cleaning)
            with progress(f"Reading {name}", None if pairs is None else times * pairs) as advance:
                read_texts(texts, name, train, Watched(train, check_same, on_read=advance), valid, cleaning)
    found = known_texts(texts, train, valid, check_same)
    return PreparedCorpus(
        name,
        found.train,
        found.valid,
        test=[],
        valid_name=valid_name,
        parts=_parts(train, found.parts),
        cache=folder,
        key=key,
        known=found.facts,
        left_out=found.left_out,
        progress=progress,
        tell=tell,
    )


def _parts(train: FilePairs, numbers: list[tuple[int, int]]) -> tuple[CorpusPart, ...]:
    """The files that were joined; none if there is one."""
    if not isinstance(train, JoinedFiles):
        return ()
    found = zip(short_names([part.files for part in train.parts]), train.tags, numbers, strict=True)
    return tuple(CorpusPart(name, tag, learned, validated) for name, tag, (learned, validated) in found)


def _check_same(files: tuple[pathlib.Path, ...], sums: list[str], cache: pathlib.Path) -> None:
    for file, then, now in zip(files, sums, fingerprints(files, cache), strict=True):
        if then != now:
            raise ValueError(f"{file} has changed while it was read. Begin again, with a file that stays as it is.")


def _hash(*facts: Any) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]
