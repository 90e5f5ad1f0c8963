"""Finds what would prevent a version of TensorFlow Serving from serving a SavedModel, also one of another program."""

import os
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

import tensorflow as tf

from kformer.export.operations import Place, places, read
from kformer.export.server_versions import lacking, oldest_server, processor, server_versions
from kformer.runtime.confinement import MOST_NAMED, forbidden
from kformer.runtime.file_limits import outside_links
from kformer.runtime.paths import unreadable_part

# They call back into the process that saved the model.
PYTHON_OPERATIONS = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})
_COMPILED = "_XlaMustCompile"  # attribute of a call to a function with `jit_compile=True`


class Finding(NamedTuple):
    """One thing to know before a model is served."""

    fatal: bool  # True: the model does not load, or a request fails; False: it depends on how the server is set up
    problem: str
    remedy: str
    paths: list[tuple[str, ...]]  # where in the graph, see `Place`; empty for a signature


def lint(saved_model: str | pathlib.Path, server_version: str | None = None) -> list[Finding]:
    """Looks at every operation and signature of a SavedModel; nothing is run.

    Args:
        saved_model: The folder of one version, with its `saved_model.pb`.
        server_version: The version of TensorFlow Serving: one of `server_versions()`, by default the newest.

    Returns:
        What is wrong, the fatal findings first.

    Raises:
        ValueError: The folder is no SavedModel, or a damaged one.
    """
    server = server_version or server_versions()[-1]
    found: dict[str, list[Place]] = {}
    for place in places(saved_model):
        found.setdefault(place.operation, []).append(place)
    findings = [
        *_operations(found, server),
        *_confinement(saved_model, set(lacking(found, server))),
        *_set_up(found),
        *_signatures(saved_model),
        *_content(saved_model, found),
        *_path(saved_model),
    ]
    return sorted(findings, key=lambda finding: not finding.fatal)


def is_refused(operation: str) -> bool:
    """True for an operation that no stock TensorFlow Serving runs: a call to Python, or one of the XLA bridge."""
    return operation in PYTHON_OPERATIONS or operation.startswith("Xla")


def _operations(found: dict[str, list[Place]], server: str) -> Iterator[Finding]:
    missing = set(lacking(found, server))
    for operation in sorted(found):
        paths = [place.path for place in found[operation]]
        if operation in PYTHON_OPERATIONS:
            yield Finding(
                True,
                f"{operation} calls Python code of the process that saved the model",
                "Write that function in TensorFlow operations (no tf.py_function, no tf.numpy_function).",
                paths,
            )
        elif is_refused(operation):
            yield Finding(
                True,
                f"{operation} belongs to XLA's bridge, not to core TensorFlow",
                "Replace it: keras.ops.slice_update, for example, by a selection with keras.ops.where.",
                paths,
            )
        elif operation in missing:
            yield Finding(True, f"TensorFlow Serving {server} lacks {operation}", _remedy(operation), paths)


def _confinement(saved_model: str | pathlib.Path, missing: set[str]) -> Iterator[Finding]:
    """Yields what kformer does not load without --trust, and TensorFlow Serving runs."""
    places: dict[str, list[tuple[str, ...]]] = {}
    for operation, path in forbidden(saved_model):
        if not is_refused(operation) and operation not in missing:
            places.setdefault(operation, []).append(path)
    for operation, paths in sorted(places.items()):
        yield Finding(
            False,
            f"{operation} can reach files, processes or the network, or is not known to kformer",
            "kformer loads the model with --trust alone. TensorFlow Serving runs it: serve it there only if you trust "
            "whoever made it.",
            paths,
        )
    files = [str(file) for file in outside_links(saved_model)]
    if files:
        yield Finding(
            False,
            f"Links lead out of the folder: {', '.join(files[:MOST_NAMED])}",
            "Copy the files into it. kformer loads the model with --trust alone.",
            [],
        )


def _remedy(operation: str) -> str:
    oldest = oldest_server([operation])
    if oldest is None:
        return (
            "No stock server has it: it comes from a library that TensorFlow Serving does not link. Build a server "
            "with that library, or save the model without it."
        )
    if processor([operation]) != "any":
        return f"Use a server from {oldest} on, or an export in float32 or bfloat16."
    return f"Use a server from {oldest} on, or save the model with an older TensorFlow."


def _set_up(found: dict[str, list[Place]]) -> Iterator[Finding]:
    """Yields what needs a certain processor, or a certain option when the server starts."""
    every_place = [place for there in found.values() for place in there]
    compiled = [place.path for place in every_place if _COMPILED in place.attributes and place.attributes[_COMPILED].b]
    if compiled:
        yield Finding(
            False,
            "A function is compiled by XLA when it runs (jit_compile=True)",
            "Start the server with --xla_cpu_compilation_enabled, or every request fails.",
            compiled,
        )
    bound = sorted(operation for operation in found if processor([operation]) != "any")
    if bound:
        yield Finding(
            False,
            f"{', '.join(bound)} exist only where TensorFlow is built with oneDNN",
            "Serve it on x86-64, and leave TF_ENABLE_ONEDNN_OPTS on.",
            [place.path for operation in bound for place in found[operation]],
        )


def _path(saved_model: str | pathlib.Path) -> Iterator[Finding]:
    """Yields a path from which TensorFlow cannot load the model."""
    part = unreadable_part(saved_model)
    if part is not None:
        yield Finding(
            False,
            f"The path {saved_model} holds {part}: no server can load the model from there",
            "Rename the folder, or mount it under another name.",
            [],
        )


def _content(saved_model: str | pathlib.Path, found: dict[str, list[Place]]) -> Iterator[Finding]:
    """Yields what a folder lacks or has damaged: the graph that servers load, or the variables."""
    tags = [tag for meta_graph in read(saved_model).meta_graphs for tag in meta_graph.meta_info_def.tags]
    if "serve" not in tags:
        yield Finding(
            True,
            f"No graph has the tag serve, which servers load. There are: {', '.join(tags) or 'no graphs'}",
            "Save the model with tf.saved_model.save, or copy saved_model.pb again.",
            [],
        )
    if "VarHandleOp" not in found:
        return
    try:
        reader = tf.train.load_checkpoint(os.fspath(pathlib.Path(saved_model, "variables", "variables")))
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)  # compares its checksum
    except (ValueError, IndexError, RuntimeError, tf.errors.OpError) as error:
        reason = getattr(error, "message", str(error)).splitlines()[0]
        yield Finding(True, f"The variables cannot be read: {reason}", "Copy the folder variables/ again.", [])


def _signatures(saved_model: str | pathlib.Path) -> Iterator[Finding]:
    """Yields problems of signatures: none at all, names that REST encodes, or shapes that a server cannot batch."""
    for meta_graph in read(saved_model).meta_graphs:
        signatures = {name: value for name, value in meta_graph.signature_def.items() if not name.startswith("__")}
        if not signatures:
            yield Finding(
                True,
                "There is no signature",
                "Save it with tf.saved_model.save(..., signatures=...), or export it.",
                [],
            )
        for name, signature in sorted(signatures.items()):
            for output in sorted(signature.outputs):
                if output.endswith("_bytes"):
                    yield Finding(
                        False,
                        f"The output {output} of {name} ends in _bytes, so REST encodes it in base64",
                        "Give it another name, if it holds text.",
                        [],
                    )
            tensors = {**signature.inputs, **signature.outputs}
            scalars = sorted(
                key
                for key, tensor in tensors.items()
                if not tensor.tensor_shape.unknown_rank and not tensor.tensor_shape.dim
            )
            if scalars:
                yield Finding(
                    False,
                    f"{name} has scalars ({', '.join(scalars)}), so a server cannot batch its requests",
                    "Give them a first dimension that counts the examples, or leave this signature unbatched.",
                    [],
                )
