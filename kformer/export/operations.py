"""The operations of a SavedModel's graph, and where they stand in it."""

import collections
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tensorflow.core.protobuf import saved_model_pb2

from kformer.runtime.light_graph import functions_of, node_name, parse

# The path of nodes that no signature reaches: a server runs them when it loads the model.
AT_START = "at start"


class Place(NamedTuple):
    """One node of a graph or of a function in it."""

    operation: str
    path: tuple[str, ...]  # a signature's name or AT_START, the functions on the way, and the node's name
    attributes: Any  # of the NodeDef, by name


def read(saved_model: str | pathlib.Path) -> saved_model_pb2.SavedModel:
    """The protocol buffer of a SavedModel.

    Raises:
        ValueError: The file is missing, too large, no regular file, or damaged.
        OSError: It cannot be read.
    """
    return parse(saved_model, saved_model_pb2.SavedModel())


def operations(saved_model: str | pathlib.Path) -> set[str]:
    """Names of all operations in a SavedModel's graph and in its functions."""
    names: set[str] = set()
    for meta_graph in read(saved_model).meta_graphs:
        library = meta_graph.graph_def.library.function
        names.update(node.op for node in meta_graph.graph_def.node)
        for function in library:
            names.update(node.op for node in function.node_def)
        names -= {function.signature.name for function in library}  # some nodes call a function by its name
    return names


def places(saved_model: str | pathlib.Path) -> Iterator[Place]:
    """Every node once, with the shortest path to it, from a signature if one reaches it.

    Raises:
        ValueError: The SavedModel is missing or damaged.
    """
    for meta_graph in read(saved_model).meta_graphs:
        nodes = {node.name: node for node in meta_graph.graph_def.node}
        functions = {function.signature.name: function.node_def for function in meta_graph.graph_def.library.function}
        entries = {
            name: _needed(nodes, [tensor.name for tensor in signature.outputs.values()])
            for name, signature in meta_graph.signature_def.items()
            if not name.startswith("__")  # TensorFlow's own: what runs when a model is loaded
        }
        reached = {node.name for entry in entries.values() for node in entry}
        entries[AT_START] = [node for node in nodes.values() if node.name not in reached]
        yield from _walk(entries, functions)


def _needed(nodes: dict[str, Any], tensors: Iterable[str]) -> list[Any]:
    """The nodes of the outer graph that some tensors are computed from."""
    waiting = [node_name(tensor) for tensor in tensors]
    found: dict[str, Any] = {}
    while waiting:
        name = waiting.pop()
        if name in nodes and name not in found:
            found[name] = nodes[name]
            waiting += [node_name(tensor) for tensor in nodes[name].input]
    return list(found.values())


def _walk(entries: dict[str, list[Any]], functions: dict[str, Any]) -> Iterator[Place]:
    """The nodes of the entries and of the functions that they call, the nearest ones first."""
    waiting: collections.deque[tuple[tuple[str, ...], Any]] = collections.deque(
        ((name,), nodes) for name, nodes in entries.items()
    )
    met: set[str] = set()
    while waiting:
        path, nodes = waiting.popleft()
        for node in nodes:
            if node.op not in functions:
                yield Place(node.op, (*path, node.name), node.attr)
            for name in functions_of(node):
                if name in functions and name not in met:
                    met.add(name)
                    waiting.append(((*path, name), functions[name]))
