"""Ids on the disk: the same as in memory, after any interruption, and never damaged without a word."""

import errno
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest

from kformer.data import encode_pairs
from kformer.data.prepared.shards import FILES, ShardedIds
from kformer.files.checksums import DamagedFileError
from kformer.files.writing import WriteError
from kformer.tokenizers import SymbolTokenizer

pytestmark = pytest.mark.tensorflow_only

TOKENIZER = SymbolTokenizer([*"abcde"])
DRAWN = random.Random(5)
# Prime numbers of pairs and of shards; some pairs are blank, some too long.
PAIRS = [tuple(" ".join(DRAWN.choices("abcde", k=DRAWN.randint(0, 9))) for _ in range(2)) for _ in range(20_011)]
SHARD = 3989


def encode(store=None, pairs=PAIRS):
    return encode_pairs(pairs, TOKENIZER, TOKENIZER, max_length=9, store=store)


def on_disk(folder, **options):
    return ShardedIds(folder, shard_pairs=SHARD, **options)


def same(found, expected):
    for name in ("source_ids", "source_offsets", "target_ids", "target_offsets"):
        left, right = getattr(found, name), getattr(expected, name)
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)
    assert found.report() == expected.report()


def unreadable():
    raise AssertionError("The texts were read again.")
    yield


@pytest.fixture(scope="module")
def expected():
    return encode()


@pytest.fixture
def folder(tmp_path):
    """A finished store, of five shards with 4,000 pairs each (two calls of the tokenizer) and one of the rest."""
    encode(on_disk(tmp_path / "ids"))
    return tmp_path / "ids"


def test_ids_are_those_in_memory_and_lie_on_the_disk(folder, expected):
    found = encode(on_disk(folder), unreadable())
    same(found, expected)
    assert isinstance(found.source_ids, np.memmap)
    assert {path.name for path in folder.iterdir()} == {*FILES, "shards.json", "SHA256SUMS"}
    assert len(json.loads((folder / "shards.json").read_text())["shards"]) == 6
    sizes = {name: (folder / name).stat().st_size for name in FILES}
    assert sizes["source.ids"] == 2 * len(expected.source_ids)
    assert sizes["target.offsets"] == 8 * (expected.kept + 1)


def test_progress_is_told_of_all_pairs(tmp_path):
    read = []
    encode(on_disk(tmp_path / "ids", on_read=read.append))
    assert sum(read) == len(PAIRS)


class Killed(Exception):
    pass


def cut_off(pairs, number):
    """The pairs up to a number, and then the end of the process."""
    for place, pair in enumerate(pairs):
        if place == number:
            raise Killed
        yield pair


@pytest.mark.parametrize("number", [0, 1, 3990, 9000, 16_001, 20_010])
def test_it_goes_on_after_the_last_whole_shard(tmp_path, expected, number):
    with pytest.raises(Killed):
        encode(on_disk(tmp_path / "ids"), cut_off(PAIRS, number))
    again = []
    same(encode(on_disk(tmp_path / "ids", on_read=again.append)), expected)
    assert sum(again) == len(PAIRS)
    kept = again[0]
    assert kept % 4000 == 0
    assert kept <= number < kept + 16_000  # the pairs of a shard, and those that the threads had in hand


@pytest.mark.parametrize("last", ["os.replace", "pathlib.Path.unlink"])
def test_a_process_that_is_killed_at_its_end_leaves_what_the_next_one_finishes(tmp_path, expected, monkeypatch, last):
    """The description and its checksum get their names, and the journal is removed."""
    module, _, name = last.rpartition(".")
    owner = {"os": os, "pathlib.Path": pathlib.Path}[module]
    ids, real = tmp_path / "ids", getattr(owner, name)
    for number in itertools.count():
        calls = itertools.count()

        def killed(path, *arguments, calls=calls, number=number, **options):
            if "ids" in str(path) and (ids / "journal").is_file() and all_there(ids) and next(calls) == number:
                raise Killed
            return real(path, *arguments, **options)

        monkeypatch.setattr(owner, name, killed)
        try:
            encode(on_disk(ids))
        except Killed:
            monkeypatch.undo()
            same(encode(on_disk(ids)), expected)
            assert {path.name for path in ids.iterdir()} == {*FILES, "shards.json", "SHA256SUMS"}
            shutil.rmtree(ids)
        else:
            assert number > 0
            return


def all_there(ids):
    """Whether the journal names all shards."""
    return (ids / "journal").read_bytes().count(b"\n") == 6


_ENCODES = """
import pathlib, sys
from test_shards import encode, on_disk
encode(on_disk(pathlib.Path(sys.argv[1])))
"""


@pytest.mark.slow
def test_twenty_kills_lose_no_pair_and_double_none(tmp_path, expected):
    command = [sys.executable, "-c", _ENCODES, str(tmp_path / "ids")]
    kept, journal = [], tmp_path / "ids" / "journal"
    for number in range(20):
        process = subprocess.Popen(command, cwd=pathlib.Path(__file__).parent, stderr=subprocess.DEVNULL)
        shards = number % 6
        while process.poll() is None and not (journal.is_file() and journal.read_bytes().count(b"\n") >= shards):
            time.sleep(0.002)
        time.sleep(random.uniform(0, 0.05))
        process.kill()
        process.wait()
        kept.append(journal.read_bytes().count(b"\n") if journal.is_file() else -1)
        if number % 6 == 5:
            same(encode(on_disk(tmp_path / "ids")), expected)
            shutil.rmtree(tmp_path / "ids")
    assert len(set(kept)) > 3  # they were killed at different places


def _half_line(folder):
    text = (folder / "journal").read_text()
    (folder / "journal").write_text(text[:-20])


def _half_shard(folder):
    for name in FILES:
        with open(folder / name, "ab") as file:
            file.write(b"\7" * 1001)


def _lost_bytes(folder):
    with open(folder / "target.ids", "r+b") as file:
        file.truncate((folder / "target.ids").stat().st_size - 1)


def _lost_file(folder):
    (folder / "source.offsets").unlink()


def _changed_byte(folder):
    with open(folder / "source.ids", "r+b") as file:
        file.seek(3)
        file.write(b"\xee")


def _changed_count(folder):
    text = (folder / "journal").read_text()
    assert '"read": 4000' in text
    (folder / "journal").write_text(text.replace('"read": 4000', '"read": 4001', 1))


def _no_list(folder):
    (folder / "journal").unlink()


@pytest.mark.parametrize(
    "harm", [_half_line, _half_shard, _lost_bytes, _lost_file, _changed_byte, _changed_count, _no_list]
)
def test_what_a_killed_process_leaves_is_used_only_if_it_is_whole(tmp_path, expected, harm):
    with pytest.raises(Killed):
        encode(on_disk(tmp_path / "ids"), cut_off(PAIRS, 19_000))
    harm(tmp_path / "ids")
    same(encode(on_disk(tmp_path / "ids")), expected)
    same(encode(on_disk(tmp_path / "ids"), unreadable()), expected)


@pytest.mark.parametrize("name", [*FILES, "shards.json", "SHA256SUMS"])
def test_no_flipped_bit_is_silent(folder, name, monkeypatch):
    monkeypatch.setattr("kformer.files.checksums.time.sleep", lambda seconds: None)  # nobody is about to mend the file
    content = (folder / name).read_bytes()
    for place in random.Random(name).sample(range(8 * len(content)), 40):
        changed = bytearray(content)
        changed[place // 8] ^= 1 << place % 8
        (folder / name).write_bytes(changed)
        with pytest.raises(DamagedFileError, match=re.escape(str(folder))):
            encode(on_disk(folder))
    (folder / name).write_bytes(content)
    encode(on_disk(folder), unreadable())


def test_a_damaged_shard_is_named_with_its_file_and_the_remedy(folder):
    ends = [shard["ends"]["target.ids"] for shard in json.loads((folder / "shards.json").read_text())["shards"]]
    with open(folder / "target.ids", "r+b") as file:
        file.seek(ends[2])
        file.write(b"\xff")
    with pytest.raises(DamagedFileError) as error:
        encode(on_disk(folder))
    assert f"{folder / 'target.ids'}, shard 4 of 6 (up to byte {ends[3]:,})" in str(error.value)
    assert f"Remove the folder {folder}" in str(error.value)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_or_short_file_is_told(folder, name):
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:-1])
    sizes = f"has {len(content) - 1:,} bytes, where {len(content):,} bytes were written"
    with pytest.raises(DamagedFileError, match=f"{name} {sizes}"):
        encode(on_disk(folder))
    (folder / name).unlink()
    with pytest.raises(DamagedFileError, match=f"{name} is missing"):
        encode(on_disk(folder))


def test_a_full_disk_is_told_and_what_was_written_is_kept(tmp_path, expected, monkeypatch):
    calls = []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) > 12:  # in the third shard: four files and the journal for each
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("kformer.data.prepared.shards.os.fsync", full)
        with pytest.raises(WriteError, match="No space left on device. What is there is kept, .* Make room"):
            encode(on_disk(tmp_path / "ids"))
    again = []
    same(encode(on_disk(tmp_path / "ids", on_read=again.append)), expected)
    assert again[0] == 8000


def test_no_pair_left_is_told_and_its_store_opens_again(tmp_path):
    for _ in range(2):
        with pytest.raises(ValueError, match="No pair of 7 is left"):
            encode(on_disk(tmp_path / "ids"), [("a", " ")] * 7)


@pytest.mark.parametrize("blank", [range(1_000, 6_000), range(18_000, 20_000)], ids=["long", "of one call"])
def test_a_long_run_of_blank_pairs_changes_no_id(tmp_path, blank):
    pairs = [("", "") if number in blank else pair for number, pair in enumerate(PAIRS)]
    found = encode(on_disk(tmp_path / "ids"), pairs)
    same(found, encode(pairs=pairs))
    assert found.source_ids.dtype == np.uint16
