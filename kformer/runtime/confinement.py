"""Finds what a SavedModel could do beside computing: read and write files, reach other processes or the network.

A SavedModel is a program. It may hold any of TensorFlow's operations, `ReadFile` and `WriteFile` among them, and a part
of it runs when it is loaded. So each operation must be on the list `allowed_operations.txt`, wherever it stands: in the
graph, in the initializer, or in any function. The few that a SavedModel needs for its own files are allowed in their
place alone: those that restore its variables from its own `variables`, that fill a table from its own `assets`, and
those that would save it, which nobody runs.

What an operation reads is followed back from its input to the tensors that the loader fills with the paths of the
SavedModel's own files.
"""

import functools
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

from kformer.runtime.file_limits import outside_links
from kformer.runtime.light_graph import functions_of, node_name, read_meta_graphs, types_of

_LIST = pathlib.Path(__file__).with_name("allowed_operations.txt")
# Operations that get the path of a file, with the place of that input.
_FROM_ASSETS = {"InitializeTableFromTextFile": 1, "InitializeTableFromTextFileV2": 1}
_RESTORING = {"RestoreV2": 0}
_SAVING = frozenset({"SaveV2", "MergeV2Checkpoints"})
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})  # their inputs are those of the function, in order
# Operations that make tensors from bytes, which stand in the graph, in a request or in a file. In TensorFlow, 20 is the
# type of handles and 21 that of variants, which may hold handles: such bytes could name a variable that no node shows.
_FROM_BYTES = frozenset(
    {"Const", "HostConst", "ParseTensor", "DeserializeSparse", "DeserializeManySparse", "RestoreV2"}
)
_HANDLES = frozenset({20, 21})
_VARIABLE_USES = frozenset({"AssignVariableOp", "ReadVariableOp", "VarIsInitializedOp"})
_INITIALIZERS = ("saved_model_main_op", "legacy_init_op")  # collections
MOST_NAMED = 5  # operations in a message


class ForbiddenError(ValueError):
    """A SavedModel could do more than compute."""


class Forbidden(NamedTuple):
    """An operation that is not allowed where it stands."""

    operation: str
    path: tuple[str, ...]  # the function, if it is in one, and the node's name


def check_confined(saved_model: str | pathlib.Path) -> None:
    """Refuses a SavedModel that could do more than compute.

    Raises:
        ForbiddenError: It has an operation that is not allowed, or uses a file outside its folder.
        ValueError: `saved_model.pb` is missing, too large, no regular file, or damaged.
        OSError: It cannot be read.
    """
    meta_graphs = read_meta_graphs(saved_model)
    names = sorted({found.operation for meta_graph in meta_graphs for found in _Graph(meta_graph).forbidden()})
    if names:
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        raise ForbiddenError(
            f"{saved_model} holds operations that can reach files, processes or the network, or that kformer does not "
            f"know: {', '.join(names[:MOST_NAMED])}{more}. `kformer lint` shows where they are. --trust loads it "
            "nevertheless, if you trust whoever made it."
        )
    check_links(saved_model)
    _refuse_files(saved_model, list(_foreign_assets(meta_graphs)))


def check_links(saved_model: str | pathlib.Path) -> None:
    """Refuses a SavedModel with links that lead out of its folder, before any of its files is opened.

    Raises:
        ForbiddenError: It has such a link.
        OSError: A folder cannot be read.
    """
    _refuse_files(saved_model, [str(file) for file in outside_links(saved_model)])


def _refuse_files(saved_model: str | pathlib.Path, files: list[str]) -> None:
    if files:
        raise ForbiddenError(
            f"{saved_model} uses files outside its folder: {', '.join(files[:MOST_NAMED])}. Copy them into it, or give "
            "--trust, if you trust whoever made it."
        )


def forbidden(saved_model: str | pathlib.Path) -> list[Forbidden]:
    """The operations of a SavedModel that are not allowed where they stand; nothing is run.

    Raises:
        ValueError, OSError: As `check_confined`.
    """
    return [found for meta_graph in read_meta_graphs(saved_model) for found in _Graph(meta_graph).forbidden()]


@functools.cache
def allowed_operations() -> frozenset[str]:
    """The operations that only compute, or keep values in memory. See `export/allowed_operations.py`."""
    return frozenset(_LIST.read_text(encoding="utf-8").split())


def _foreign_assets(meta_graphs: Iterable[Any]) -> Iterator[str]:
    """Names of assets that lead out of the folder `assets`."""
    for meta_graph in meta_graphs:
        for asset in meta_graph.asset_file_def:
            name = pathlib.PurePosixPath(asset.filename)
            if name.is_absolute() or ".." in name.parts:
                yield asset.filename


_Input: TypeAlias = tuple[str, Any, int]  # the function or "", a node in it, and the place of an input


class _Graph:
    """One graph with its functions."""

    def __init__(self, meta_graph: Any) -> None:
        self._meta_graph = meta_graph
        self._nodes = {node.name: node for node in meta_graph.graph_def.node}
        library = meta_graph.graph_def.library
        self._functions = {function.signature.name: function for function in library.function}
        self._odd: dict[Forbidden, None] = {}  # as an ordered set: what is never allowed, wherever it stands
        if len(self._functions) < len(library.function):
            self._odd[Forbidden("two functions of one name", ("library",))] = None
        self._doubtful: list[tuple[str, Any]] = []  # nodes that depend on their place: the function or "", and the node
        self._calls: dict[str, list[tuple[str, Any]]] = {}  # by function: the nodes that call it
        self._called: dict[str | tuple[str, str], set[str]] = {}  # the same by function, or by node of the outer graph
        self._handles: dict[bytes, int] = {}  # how often a variable of this name stands in the graph
        self._placeholders = False  # whether a call fills attributes in its function: functions, or names of variables
        for scope, node in self._every_node():
            self._look_at(scope, node)
        # Functions that are called, and no node names them: TensorFlow computes a gradient with another function, and
        # exchanges a function for one that says it does the same.
        self._hidden = [entry.gradient_func for entry in library.gradient]
        self._hidden += [name for name, function in self._functions.items() if "api_implements" in function.attr]

    def forbidden(self) -> list[Forbidden]:
        """The operations that are not allowed where they stand."""
        found = dict(self._odd)
        if not self._doubtful:
            return list(found)
        if self._placeholders:
            found[Forbidden("an attribute that a call fills", ("library",))] = None
        saver = self._meta_graph.saver_def
        files = {saver.filename_tensor_name} - {""}
        assets = {asset.tensor_info.name for asset in self._meta_graph.asset_file_def} - {""}
        parts = {
            "requests": self._reached(self._request_entries()),
            "start": self._reached(self._start_entries()),
            "restore": self._reached([saver.restore_op_name]),
            "save": self._reached([saver.save_tensor_name]),
            "hidden": self._reached([], self._hidden),
        }
        for scope, node in self._doubtful:
            place = scope or ("", node.name)
            for part in [part for part, reached in parts.items() if place in reached] or ["nowhere"]:
                if not self._is_allowed(part, scope, node, assets, files):
                    found[Forbidden(node.op, tuple(filter(None, (scope, node.name))))] = None
        return list(found)

    def _every_node(self) -> Iterator[tuple[str, Any]]:
        for node in self._meta_graph.graph_def.node:
            yield "", node
        for function in self._meta_graph.graph_def.library.function:
            for node in function.node_def:
                yield function.signature.name, node

    def _look_at(self, scope: str, node: Any) -> None:
        if node.op not in self._functions and node.op not in allowed_operations():
            self._doubtful.append((scope, node))
        filled = any(value.placeholder for value in node.attr.values())
        if node.op in _FROM_BYTES and (filled or _HANDLES & set(types_of(node))):
            self._odd[Forbidden(f"{node.op} of a handle", tuple(filter(None, (scope, node.name))))] = None
        if node.op == "VarHandleOp":
            # Its container does not matter, because TensorFlow has two names for the usual one. No name is one, too.
            key = node.attr["shared_name"].s
            self._handles[key] = self._handles.get(key, 0) + 1
        self._placeholders |= filled
        for name in functions_of(node):
            if name in self._functions:
                self._calls.setdefault(name, []).append((scope, node))
                self._called.setdefault(scope or ("", node.name), set()).add(name)

    def _request_entries(self) -> list[str]:
        """Tensors that clients can ask for."""
        signatures = self._meta_graph.signature_def
        return [info.name for name in signatures if not name.startswith("__") for info in _outputs(signatures[name])]

    def _start_entries(self) -> list[str]:
        """Operations that run when the model is loaded, beside those that restore its variables."""
        signatures, collections = self._meta_graph.signature_def, self._meta_graph.collection_def
        named = [info.name for name in signatures if name.startswith("__") for info in _outputs(signatures[name])]
        for key in _INITIALIZERS:
            named += collections[key].node_list.value if key in collections else ()
        return named

    def _reached(self, tensors: Iterable[str], functions: Iterable[str] = ()) -> set[str | tuple[str, str]]:
        """What some tensors, operations and functions need: functions, and ("", name) of nodes of the outer graph."""
        found: set[str | tuple[str, str]] = set()
        waiting: list[str | tuple[str, str]] = [*functions, *(("", node_name(tensor)) for tensor in tensors)]
        while waiting:
            place = waiting.pop()
            if place not in found:
                found.add(place)
                waiting += self._called.get(place, ())
                if isinstance(place, tuple) and place[1] in self._nodes:
                    waiting += [("", node_name(tensor)) for tensor in self._nodes[place[1]].input]
        return found

    def _is_allowed(self, part: str, scope: str, node: Any, assets: set[str], files: set[str]) -> bool:
        if part == "hidden":
            return False
        if node.op in _SAVING:
            return part == "save"
        if node.op in _RESTORING:
            return part == "restore" and self._comes_from(scope, node, _RESTORING[node.op], files)
        if node.op in _FROM_ASSETS:
            return part != "requests" and self._comes_from(scope, node, _FROM_ASSETS[node.op], assets)
        return False

    def _comes_from(self, scope: str, node: Any, index: int, tensors: set[str]) -> bool:
        """Whether an input of a node can only be one of some tensors of the outer graph."""
        waiting: list[_Input] = [(scope, node, index)]
        met: set[tuple[str, str, int]] = set()
        while waiting:
            scope, node, index = waiting.pop()
            if (scope, node.name, index) not in met:
                met.add((scope, node.name, index))
                sources = self._sources(scope, node, index, tensors)
                if sources is None:
                    return False
                waiting += sources
        return True

    def _sources(self, scope: str, node: Any, index: int, tensors: set[str]) -> list[_Input] | None:
        """The inputs that an input has its value from: none if it is one of the tensors; None if nobody knows."""
        inputs = [tensor for tensor in node.input if not tensor.startswith("^")]
        name = inputs[index] if index < len(inputs) else ""
        if scope and not all(self._is_single(scope, tensor) for tensor in inputs):
            return None
        if not scope and {name, f"{name}:0"} & tensors:
            return []
        if scope and name in self._arguments(scope):
            return self._given(scope, name)
        source = self._node(scope, node_name(name))
        if source is None:
            return None
        if source.op == "Identity" and source.op not in self._functions:
            return [(scope, source, 0)]
        if source.op == "ReadVariableOp" and source.op not in self._functions and not scope:
            return self._assigned(source)
        return None

    def _node(self, scope: str, name: str) -> Any:
        if not scope:
            return self._nodes.get(name)
        return next((node for node in self._functions[scope].node_def if node.name == name), None)

    def _arguments(self, function: str) -> list[str]:
        return [argument.name for argument in self._functions[function].signature.input_arg]

    def _is_single(self, function: str, name: str) -> bool:
        """Whether an input of a node in a function is one tensor: other names may be lists, and move those after them.

        Only a third part, as in `node:output:0`, picks one tensor of an output. `_given` looks at the arguments.
        """
        if name in self._arguments(function):
            return True
        node = self._node(function, node_name(name))
        # Functions can name their outputs as they like: also `output:0`.
        return name.count(":") == 2 and node is not None and node.op not in self._functions

    def _given(self, function: str, argument: str) -> list[_Input] | None:
        """What the calls of a function give for an argument; none where nobody calls it."""
        arguments = self._functions[function].signature.input_arg
        calls = self._calls.get(function, [])
        if any(one.number_attr or one.type_list_attr for one in arguments):
            return None  # an argument that is a list has several places
        if any(node.op not in (*_CALLS, function) for _, node in calls):
            return None
        return [(scope, node, self._arguments(function).index(argument)) for scope, node in calls]

    def _assigned(self, reading: Any) -> list[_Input] | None:
        """What is assigned to a variable of the outer graph: TensorFlow keeps the paths of assets in variables."""
        handle = self._nodes.get(node_name(reading.input[0]) if reading.input else "")
        if handle is None or handle.op != "VarHandleOp" or self._handles[handle.attr["shared_name"].s] > 1:
            return None
        graph = self._meta_graph.graph_def.node
        uses = [node for node in graph if any(node_name(tensor) == handle.name for tensor in node.input)]
        if any(node.op not in _VARIABLE_USES for node in uses):
            return None
        return [("", node, 1) for node in uses if node.op == "AssignVariableOp"] or None


def _outputs(signature: Any) -> list[Any]:
    return list(signature.outputs.values())
