"""Faults of the folder of versions: broken ones appear, one is copied slowly, the newest is removed."""

import pathlib
import shutil
import time
from collections.abc import Callable, Mapping

from benchmarks.common.server import Served, wait_until
from benchmarks.serving.fault_cases.fault import Fault, observed

SECONDS_TO_LOAD = 90.0
PIECES = 8  # in which a large file is copied
PAUSE = 0.4  # seconds between two pieces


def truncated(version: pathlib.Path) -> None:
    file = version / "saved_model.pb"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def without_variables(version: pathlib.Path) -> None:
    shutil.rmtree(version / "variables")


def damaged(version: pathlib.Path) -> None:
    file = next((version / "variables").glob("*.data-*"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def emptied(version: pathlib.Path) -> None:
    shutil.rmtree(version)
    version.mkdir()


KINDS: dict[str, Callable[[pathlib.Path], None]] = {
    "half a saved_model.pb": truncated,
    "no variables": without_variables,
    "a bit of the variables wrong": damaged,
    "an empty folder": emptied,
}


def broken(server: Served, answers: Mapping[str, str], kind: str, mended: bool) -> Fault:
    """A broken version appears. It is mended, or removed."""
    number, source = _next(server)
    what = f"2 broken version: {kind}, then {'mended' if mended else 'removed'}"
    with observed(what, server, answers) as fault:
        staged = server.folder.parent / "staged"
        shutil.copytree(source, staged)
        KINDS[kind](staged)
        staged.rename(server.folder / str(number))
        shown = wait_until(lambda: bool(server.versions().get(number, ("", ""))[1]), SECONDS_TO_LOAD)
        fault.expect(shown, "the status does not show it")
        state, error = server.versions()[number]
        fault.note(f"status: {state}, {error.replace(str(server.folder), '...')[:90]}")
        moment = time.monotonic()
        if mended:
            shutil.copytree(source, server.folder / str(number), dirs_exist_ok=True)
            _expect_available(fault, number)
        else:
            shutil.rmtree(server.folder / str(number))
            fault.expect(wait_until(lambda: number not in server.versions(), 10), "the status still shows it")
        fault.recovery = time.monotonic() - moment
        _expect_one(fault)
    return fault


def copied_slowly(server: Served, answers: Mapping[str, str]) -> Fault:
    """A version is copied file by file, the checksums last, while the server looks at it."""
    number, source = _next(server)
    with observed("2 a version that is copied slowly", server, answers) as fault:
        files = [path for path in source.rglob("*") if path.is_file()]
        for file in sorted(files, key=lambda path: ("assets.extra" in path.parts, path.stat().st_size)):
            _copy_slowly(file, server.folder / str(number) / file.relative_to(source))
        moment = time.monotonic()
        _expect_available(fault, number)
        fault.recovery = time.monotonic() - moment
        _expect_one(fault)
    return fault


def newest_removed(server: Served, answers: Mapping[str, str]) -> Fault:
    """A good version appears, is served, and is removed."""
    number, source = _next(server)
    with observed("3 a new version, then it is removed", server, answers) as fault:
        staged = server.folder.parent / "staged"
        shutil.copytree(source, staged)
        staged.rename(server.folder / str(number))
        _expect_available(fault, number)
        moment = time.monotonic()
        shutil.rmtree(server.folder / str(number))
        _expect_available(fault, number - 1)
        fault.recovery = time.monotonic() - moment
        _expect_one(fault)
    return fault


def _next(server: Served) -> tuple[int, pathlib.Path]:
    """The number of the next version, and a good version to copy."""
    newest = max(int(path.name) for path in server.folder.iterdir() if path.name.isdecimal())
    return newest + 1, server.folder / str(newest)


def _copy_slowly(source: pathlib.Path, target: pathlib.Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    content = source.read_bytes()
    step = -(-len(content) // PIECES) if len(content) > 1_000_000 else len(content)
    with open(target, "wb", buffering=0) as file:
        for start in range(0, len(content), step):
            file.write(content[start : start + step])
            time.sleep(PAUSE)


def _expect_available(fault: Fault, number: int) -> None:
    def is_available() -> bool:
        return fault.server.versions().get(number, ("", ""))[0] == "AVAILABLE"

    fault.expect(wait_until(is_available, SECONDS_TO_LOAD), f"version {number} is not loaded")


def _expect_one(fault: Fault) -> None:
    """Expects that one version answers, and that the one before it is unloaded."""

    def is_one() -> bool:
        states = [state for state, _ in fault.server.versions().values()]
        return states.count("AVAILABLE") == 1 and {*states} <= {"AVAILABLE", "END"}

    fault.expect(wait_until(is_one, 30), f"states: {fault.server.versions()}")
