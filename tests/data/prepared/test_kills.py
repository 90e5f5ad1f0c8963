"""A preparation that is killed at any moment ends with the files of one that was not: real processes, real signals.

The environment variable KFORMER_STOPS sets how often it is killed.
"""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest
import small_shards
import toy
from processes import SMALL_SHARDS

pytestmark = [pytest.mark.tensorflow_only, pytest.mark.slow, pytest.mark.in_ci]

STOPS = int(os.environ.get("KFORMER_STOPS", 3))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "numbers.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in toy.corpus(small_shards.LONGEST).train))
    return path


def start(file: pathlib.Path, cache: pathlib.Path) -> subprocess.Popen:
    command = [sys.executable, *SMALL_SHARDS, "prepare", "--train", file, "--cache", cache]
    command += ["--size", "tiny", "--vocab-size", "320", "--max-length", "32"]
    return subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def progress(cache: pathlib.Path) -> int:
    """A number that grows with each step of the work: the folders and files, and the shards that the journal names."""
    found = [pathlib.Path(folder, name) for folder, _, files in os.walk(cache) for name in ("", *files)]
    journals = [path.read_bytes() for path in cache.glob("ids-*/journal")]
    return len(found) + sum(journal.count(b"\n") for journal in journals)


def contents(cache: pathlib.Path) -> dict[str, bytes]:
    """All that is kept, by its path."""
    files = [path for path in sorted(cache.rglob("*")) if path.is_file() and path.suffix != ".lock"]
    return {path.relative_to(cache).as_posix(): path.read_bytes() for path in files}


def test_a_preparation_that_is_killed_ends_with_the_same_bytes(file, tmp_path):
    """Each process is killed some steps after the one before. If one comes to its end, the next one begins anew."""
    whole, cache, moments = tmp_path / "whole", tmp_path / "killed", random.Random(3)
    finish(start(file, whole))
    expected = contents(whole)
    assert {name.split("-")[0] for name in expected} == {"files.json", "texts", "tokenizers", "ids"}
    [description] = whole.glob("ids-*/shards.json")
    assert len(json.loads(description.read_text())["shards"]) == 5
    kills, reached, compared = 0, [], 0
    while kills < STOPS:
        process, goal = start(file, cache), progress(cache) + moments.randint(1, 8)
        while process.poll() is None and progress(cache) < goal:
            time.sleep(0.001)
        time.sleep(moments.uniform(0, 0.02))
        process.kill()
        output = process.communicate()[0].decode()
        assert process.returncode in (0, -signal.SIGKILL), output
        if process.returncode:
            kills += 1
            reached.append(progress(cache))
        else:
            assert contents(cache) == expected
            compared += 1
            shutil.rmtree(cache)
    finish(start(file, cache))
    assert contents(cache) == expected
    assert len(set(reached)) > STOPS // 3  # they were killed at different places
    print(f"killed after so many of {progress(whole)} steps: {reached}; compared {compared + 1} times")


def finish(process: subprocess.Popen) -> None:
    output = process.communicate()[0].decode()
    assert process.returncode == 0, output
