"""Single bits are flipped, and files are cut, in all files of a run, a packed model and a preset that decide a result.

Each case is found when the folder is read, or has no effect. KFORMER_FLIPS sets how many bits are flipped.
"""

import json
import os
import pathlib
import random
import shutil
from collections import Counter

import keras
import numpy as np
import pytest

from kformer.files import checksums
from kformer.files.writing import DAMAGE
from kformer.models import build_transformer
from kformer.presets import find_preset, pack_run
from kformer.runs.folder import RunFolder
from kformer.runs.weights import load_weights, load_weights_file
from kformer.tokenizers import load_tokenizers
from kformer.training.checkpoints import load_checkpoint, previous_checkpoint
from kformer.training.compile import compile_model

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
        damaged = bytearray(content)
        if turn < FLIPS:
            bit = choice.randrange(8 * len(content))
            damaged[bit // 8] ^= 1 << bit % 8
        else:
            del damaged[choice.randrange(len(content)) :]
        file.write_bytes(damaged)
        message = complaint(readers[folder], folder, whole[folder])
        file.write_bytes(content)
        kind = "flips" if turn < FLIPS else "cuts"
        outcome[f"{kind} found" if message else f"{kind} without effect: {file.name}"] += 1
        assert message is None or str(folder) in message, f"The message does not name the file: {message}"
    print(json.dumps(outcome, indent=2))
    assert outcome["flips found"] > 0.97 * FLIPS
    assert outcome["cuts found"] == CUTS
