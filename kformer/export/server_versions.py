"""Finds the versions of TensorFlow Serving that can run an export, by the operations that each version has.

export/list_operations.py of the repository makes the lists from TensorFlow's own wheels. Attributes of operations need
no lists: a server ignores those that it does not know. Nothing here needs TensorFlow.
"""

import functools
import json
import pathlib
from collections.abc import Iterable
from typing import Any

_LISTS = pathlib.Path(__file__).with_name("server_operations.json")
# An operation that a precision needs and that some servers lack.
OPERATION_OF_PRECISION = {"int8": "_QuantizedMatMul"}
# Beginnings of the names of operations that exist only where TensorFlow is built with oneDNN: on x86-64.
_ONEDNN = ("_Quantized", "_Mkl")


@functools.cache
def _lists() -> dict[str, Any]:
    return json.loads(_LISTS.read_text(encoding="utf-8"))


def server_versions() -> list[str]:
    """The versions whose operations are known, such as "2.17", oldest first."""
    return list(_lists()["versions"])


def known_server(version: str) -> str:
    """The version as it stands in the lists: "2.17" for "2.17.1".

    Raises:
        ValueError: The operations of that server are not known.
    """
    minor = ".".join(version.split(".")[:2])
    if minor not in server_versions():
        raise ValueError(
            f"The operations of TensorFlow Serving {version} are not known. Name one of {', '.join(server_versions())}."
        )
    return minor


def check_server(version: str, precision: str) -> str:
    """Refuses a server that is not known or cannot run this precision, before any other work is done.

    Returns:
        What `known_server` gives.

    Raises:
        ValueError: The server is not known, or lacks an operation.
    """
    minor = known_server(version)
    if precision in OPERATION_OF_PRECISION:
        check_operations_of_server([OPERATION_OF_PRECISION[precision]], minor)
    return minor


def check_operations_of_server(used: Iterable[str], version: str) -> None:
    """Refuses an export that a server could not load.

    Args:
        used: Names of the operations of the export.
        version: One of `server_versions()`.

    Raises:
        ValueError: The server lacks an operation.
    """
    used = list(used)
    missing = lacking(used, version)
    if not missing:
        return
    oldest = oldest_server(used)
    if any(name in OPERATION_OF_PRECISION.values() for name in missing):
        remedy = f"Choose the precision float32 or bfloat16, or a server from {oldest} on."
    else:
        remedy = f"Use a server from {oldest} on." if oldest else "No known server has them."
    raise ValueError(f"TensorFlow Serving {version} lacks operations of this export: {', '.join(missing)}. {remedy}")


def lacking(used: Iterable[str], version: str) -> list[str]:
    """The operations that a server lacks, in order of their names."""
    everywhere, some = _everywhere(), _lists()["some"]
    return sorted(name for name in used if name not in everywhere and version not in some.get(name, ()))


def oldest_server(used: Iterable[str]) -> str | None:
    """The oldest server such that it and all newer ones have every operation; None if the newest lacks one."""
    used = list(used)
    oldest = None
    for version in reversed(server_versions()):
        if lacking(used, version):
            break
        oldest = version
    return oldest


def processor(used: Iterable[str]) -> str:
    """What processor the operations need: "x86-64", or "any"."""
    return "x86-64" if any(name.startswith(_ONEDNN) for name in used) else "any"


@functools.cache
def _everywhere() -> frozenset[str]:
    return frozenset(_lists()["everywhere"])
