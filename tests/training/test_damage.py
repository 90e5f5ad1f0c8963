"""Single bits are flipped, and files are cut, in all files that decide a result: of a run, a packed model, a preset and
what is kept of a corpus.

Each case is found when the folder is read, or has no effect. KFORMER_FLIPS sets how many bits are flipped.
"""

import errno
import functools
import json
import os
import pathlib
import random
import shutil
from collections import Counter
from collections.abc import Callable

import keras
import numpy as np
import pytest
import small_shards
import toy

from kformer.data import TsvFile, prepare_corpus
from kformer.data.prepared.shards import FILES
from kformer.files import checksums
from kformer.files.writing import DAMAGE, WriteError
from kformer.models import build_transformer
from kformer.presets import find_preset, pack_run
from kformer.runs.folder import RunFolder
from kformer.runs.weights import load_weights, load_weights_file
from kformer.tasks.translate import TranslateTask
from kformer.tokenizers import load_tokenizers
from kformer.training.checkpoints import load_checkpoint, previous_checkpoint
from kformer.training.compile import compile_model
from kformer.training.run_setup import encode

pytestmark = [pytest.mark.tensorflow_only, pytest.mark.slow, pytest.mark.in_ci]

FLIPS = int(os.environ.get("KFORMER_FLIPS", 600))
CUTS = FLIPS // 6
# They decide nothing: a resumed run writes the log's last rows anew, and the lock names its owner.
NOT_READ = ("log.csv", "lock")


def deciding_files(folder: pathlib.Path) -> list[str]:
    names = [file.relative_to(folder).as_posix() for file in sorted(folder.rglob("*")) if file.is_file()]
    return [name for name in names if name not in NOT_READ and not name.startswith("tensorboard/")]


class Reader:
    """Reads everything that a folder holds, as a resume, a translation and an average do."""

    def __init__(self, folder: pathlib.Path) -> None:
        run = RunFolder(folder)
        transformer = run.transformer_config()
        self.model = build_transformer(transformer, dtype="float32")
        self.trained = build_transformer(transformer, dtype="float32")
        compile_model(self.trained, transformer, run.training_config())

    def __call__(self, folder: pathlib.Path) -> list:
        run = RunFolder(folder).check()
        found: list = [run.transformer_config(), run.training_config(), run.decoding_config(), run.corpus()]
        found += [run.samples(), run.environment()]
        for tokenizer in load_tokenizers(run.tokenizer_folder):
            found.append([tokenizer.vocab_size, tokenizer.tokenize(["one two", "t r a n s"]).to_list()])
        load_weights(run, self.model)
        found += self.model.get_weights()
        for file in run.kept_weights():
            load_weights_file(file, self.model)
            found += self.model.get_weights()
        for file in (run.checkpoint_file, previous_checkpoint(run.checkpoint_file)):
            if file.is_file():
                found.append(load_checkpoint(file, self.trained))
                variables = (*self.trained.variables, *self.trained.optimizer.variables)
                found += [keras.ops.convert_to_numpy(variable) for variable in variables]
        return found


def same(ours: list, theirs: list) -> bool:
    return len(ours) == len(theirs) and all(
        np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other
        for one, other in zip(ours, theirs, strict=True)
    )


def complaint(read: Reader, folder: pathlib.Path, whole: list) -> str | None:
    """The message of the error that reading a folder raises; None if it gives what the whole one gave."""
    try:
        found = read(folder)
    except DAMAGE as error:
        return str(error)
    assert same(found, whole), "Something has other content, and nobody noticed."
    return None


@pytest.fixture(scope="module")
def folders(numbers_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("damage")
    packed = pack_run(numbers_run, folder / "packed").run.path
    return {
        "a run": shutil.copytree(numbers_run, folder / "run"),
        "a packed model": packed,
        "a preset": shutil.copytree(find_preset("cmudict").path, folder / "preset"),
    }


def harm(file: pathlib.Path, choice: random.Random, cut: bool) -> None:
    """Flips a bit of a file, or cuts it off somewhere."""
    content = bytearray(file.read_bytes())
    if cut:
        del content[choice.randrange(len(content)) :]
    else:
        bit = choice.randrange(8 * len(content))
        content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)


def test_no_damage_changes_a_result_without_a_word(folders, monkeypatch):
    monkeypatch.setattr(checksums, "_SECONDS_BETWEEN", 0.0)
    choice, outcome = random.Random(1), Counter()
    cases = [(folder, name) for folder in folders.values() for name in deciding_files(folder)]
    readers = {folder: Reader(folder) for folder in folders.values()}
    whole = {folder: read(folder) for folder, read in readers.items()}
    for turn in range(FLIPS + CUTS):
        folder, name = cases[turn % len(cases)]
        file = folder / name
        content = file.read_bytes()
        harm(file, choice, cut=turn >= FLIPS)
        message = complaint(readers[folder], folder, whole[folder])
        file.write_bytes(content)
        kind = "flips" if turn < FLIPS else "cuts"
        outcome[f"{kind} found" if message else f"{kind} without effect: {file.name}"] += 1
        assert message is None or str(folder) in message, f"The message does not name the file: {message}"
    print(json.dumps(outcome, indent=2))
    assert outcome["flips found"] > 0.97 * FLIPS
    assert outcome["cuts found"] == CUTS


class CorpusReader:
    """Reads all that is kept of a corpus, as a run does that begins."""

    def __init__(self, file: pathlib.Path) -> None:
        self.file = file

    def __call__(self, cache: pathlib.Path) -> list:
        corpus, task = prepare_corpus("numbers", TsvFile(self.file), cache=cache), TranslateTask()
        learn = functools.partial(task.train_tokenizers, corpus.train, toy.TRAINING)
        tokenizers = corpus.learned_tokenizers("translate", toy.TRAINING, learn)
        with small_shards.small_shards():
            train, valid = encode(corpus, task, toy.TRAINING, tokenizers)
        sides = [getattr(train, name) for name in ("source_ids", "source_offsets", "target_ids", "target_offsets")]
        return [corpus.facts(), corpus.valid, len(corpus.train), train.report(), valid.report(), *map(np.array, sides)]


@pytest.fixture(scope="module")
def corpus_file(tmp_path_factory):
    file = tmp_path_factory.mktemp("corpus") / "numbers.tsv"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in toy.corpus(small_shards.LONGEST).train))
    return file


def kept_files(cache: pathlib.Path) -> list[str]:
    """The files of a cache, without the locks, which are empty."""
    return [name for name in deciding_files(cache) if not name.endswith(".lock")]


def test_no_damage_to_a_kept_corpus_changes_it_without_a_word(corpus_file, tmp_path, monkeypatch):
    """What only says whether a file is known, `files.json`, is made anew, and with it what it leads to."""
    monkeypatch.setattr(checksums, "_SECONDS_BETWEEN", 0.0)
    choice, outcome, read = random.Random(2), Counter(), CorpusReader(corpus_file)
    whole = read(tmp_path / "whole")
    names = kept_files(tmp_path / "whole")
    assert {name.split("-")[0] for name in names} == {"files.json", "ids", "texts", "tokenizers"}
    for turn in range((FLIPS + CUTS) // 3):
        name, cut = names[turn % len(names)], turn >= FLIPS // 3
        cache = shutil.copytree(tmp_path / "whole", tmp_path / "damaged")
        harm(cache / name, choice, cut)
        message = complaint(read, cache, whole)
        shutil.rmtree(cache)
        assert message is None or str(cache / pathlib.Path(name).parts[0]) in message
        kind = pathlib.Path(name).name
        outcome[f"{kind}: {'cuts' if cut else 'flips'} {'found' if message else 'without effect'}"] += 1
    print(json.dumps(outcome, indent=2, sort_keys=True))
    assert all(key.startswith("files.json") == key.endswith("without effect") for key in outcome)


def test_no_damage_to_a_half_tokenized_corpus_changes_it(corpus_file, tmp_path, monkeypatch):
    """The next process goes on before the damage, and ends with the same ids."""
    monkeypatch.setattr(checksums, "_SECONDS_BETWEEN", 0.0)
    choice, read = random.Random(3), CorpusReader(corpus_file)
    whole = read(tmp_path / "whole")
    half = shutil.copytree(tmp_path / "whole", tmp_path / "half")
    [ids] = half.glob("ids-*/")
    shutil.rmtree(ids)
    with monkeypatch.context() as patch:
        patch.setattr("kformer.data.prepared.shards.os.fsync", full_after(12))  # each shard needs five
        with pytest.raises(WriteError):
            read(half)
    assert (ids / "journal").read_text().count("\n") == 2
    for turn in range(FLIPS // 15):
        cache = shutil.copytree(half, tmp_path / "damaged")
        harm(cache / ids.name / [*FILES, "journal"][turn % 5], choice, cut=False)
        assert complaint(read, cache, whole) is None
        shutil.rmtree(cache)


def full_after(number: int) -> Callable[[int], None]:
    """A disk that is full after so many calls."""
    calls = []

    def synchronize(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) > number:
            raise OSError(errno.ENOSPC, "No space left on device")

    return synchronize
