"""Keeps a run folder's model as a SavedModel, so that only the first translation waits for Keras and TensorFlow.

The SavedModels lie in a cache folder: `$KFORMER_CACHE`, or else where the system keeps such folders, such as
`~/.cache/kformer`. The name of each is a fingerprint of everything that its results depend on, so that a changed model,
search or program makes a new one. The folder may be deleted at any time.
"""

import contextlib
import hashlib
import importlib.metadata
import json
import os
import pathlib
import shutil
import sys
import time
from collections.abc import Iterator, Sequence

from kformer.config import DecodingConfig
from kformer.files.cache import cache_folder
from kformer.files.checksums import DamagedFileError, check_folder
from kformer.files.writing import staging_folder, temporary_folder
from kformer.inference.fingerprint import file_sums
from kformer.runs.folder import RunFolder

MOST_KEPT = 8  # SavedModels; those that were used last
_DAY = 24 * 3600  # seconds


@contextlib.contextmanager
def saved_model_of(
    run: RunFolder, decoding: DecodingConfig, n_best: int, signatures: Sequence[str] = ()
) -> Iterator[pathlib.Path]:
    """A SavedModel of the run's best weights, in float32, whose outputs have the shape (B, n_best).

    Beside `serving_default` it has the `signatures`.

    It is made when it is first asked for, which takes some ten seconds, and kept. A cache folder that can only be read
    serves as well, if the SavedModel is there. If there is no cache folder, or it cannot be written to, the SavedModel
    is deleted when the block ends.

    Raises:
        DamagedFileError: A file of the run folder is damaged.
        FileNotFoundError: Neither the cache folder nor any folder for temporary files can be written to.
    """
    name = _fingerprint(run, decoding, n_best, signatures)
    try:
        folder = cache_folder("translators")
        found = folder / name
        if not _is_whole(found):
            _make(run, decoding, n_best, signatures, found)
    except OSError as error:
        print(
            f"kformer: the SavedModel cannot be stored in the cache: {error}. The next call makes it again, unless "
            "KFORMER_CACHE names a folder that can be written to.",
            file=sys.stderr,
        )
        with temporary_folder() as temporary:
            found = temporary / name
            _make(run, decoding, n_best, signatures, found)
            yield found
        return
    with contextlib.suppress(OSError):  # the folder may be another user's, or on a disk that can only be read
        os.utime(found)
        _delete_old(folder)
    yield found


def _fingerprint(run: RunFolder, decoding: DecodingConfig, n_best: int, signatures: Sequence[str]) -> str:
    """A hash of everything that the results depend on: the model's files, the search, the program and its libraries."""
    libraries = {name: importlib.metadata.version(name) for name in ("tensorflow", "tensorflow-text", "keras")}
    facts = [file_sums(run), decoding.to_dict(), n_best, [*signatures], libraries, _program()]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def _program() -> list[tuple[str, int, int]]:
    """kformer's own files, with their sizes and times: they may change while the version number stays the same."""
    folder = pathlib.Path(__file__).parent.parent
    states = [(file, file.stat()) for file in sorted(folder.rglob("*.py"))]
    return [(str(file.relative_to(folder)), state.st_size, state.st_mtime_ns) for file, state in states]


def _is_whole(saved_model: pathlib.Path) -> bool:
    if not saved_model.is_dir():
        return False
    try:
        check_folder(saved_model)
    except DamagedFileError:
        shutil.rmtree(saved_model)
        return False
    return True


def _make(
    run: RunFolder, decoding: DecodingConfig, n_best: int, signatures: Sequence[str], target: pathlib.Path
) -> None:
    from kformer.export.kinds import check_signatures
    from kformer.export.saved_model import save_for_this_machine  # It imports Python's TensorFlow.
    from kformer.tasks import task_of_run

    predictor = task_of_run(run).load(run.path, decoding)
    check_signatures(signatures, "portable", predictor.signatures)
    with staging_folder(target.parent, target.name) as fresh:
        save_for_this_machine(predictor, fresh, n_best, signatures)
        try:
            fresh.rename(target)
        except OSError:
            if not target.is_dir():  # Another process may have made it meanwhile.
                raise


def _delete_old(folder: pathlib.Path) -> None:
    """Deletes SavedModels that were not used for a day, except the `MOST_KEPT` used last."""
    kept = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    kept.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in kept[MOST_KEPT:]:
        if path.stat().st_mtime < time.time() - _DAY:
            shutil.rmtree(path, ignore_errors=True)
