"""The operations of a SavedModel's graph, and where they stand in it."""

import collections
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tensorflow.core.protobuf import saved_model_pb2

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
        ValueError: The file is missing or damaged.
    """
    path = pathlib.Path(saved_model, "saved_model.pb")
    proto = saved_model_pb2.SavedModel()
    try:
        proto.ParseFromString(path.read_bytes())
    except FileNotFoundError:
        raise ValueError(f"{saved_model} is no SavedModel: there is no {path.name}. Name its folder.") from None
    except Exception as error:  # its class depends on how protobuf was built
        raise ValueError(f"{path} is damaged: {error}. Export the model again.") from error
    return proto


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
    waiting = [_node_name(tensor) for tensor in tensors]
    found: dict[str, Any] = {}
    while waiting:
        name = waiting.pop()
        if name in nodes and name not in found:
            found[name] = nodes[name]
            waiting += [_node_name(tensor) for tensor in nodes[name].input]
    return list(found.values())


def _node_name(tensor: str) -> str:
    return tensor.removeprefix("^").split(":")[0]


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
            for name in _called(node):
                if name in functions and name not in met:
                    met.add(name)
                    waiting.append(((*path, name), functions[name]))


def _called(node: Any) -> Iterator[str]:
    """Names of the functions that a node calls."""
    yield node.op
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func.name
        for function in value.list.func:
            yield function.name
