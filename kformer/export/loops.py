"""Makes the loops of an int8 export run as functions, whose operations a simple executor starts one after the other.

TensorFlow's usual loops hand every value from one operation to the next at run time. In a step that computes one row,
this costs more time than the operations do. The simple executor knows the order of the operations beforehand and
computes constants once. An attribute of the loop's functions chooses it; TensorFlow has no Python function that sets
this attribute.
"""

import pathlib

from tensorflow.core.framework import function_pb2, node_def_pb2

from kformer.export.operations import read

LOOPS = ("While", "StatelessWhile")
# The simple executor cannot run these operations. An assertion contains a condition, too.
BRANCHES = (*LOOPS, "If", "StatelessIf", "Case", "StatelessCase")
# TensorFlow replaces these operations by oneDNN's in a graph, but not in the functions that such loops repeat.
OF_ONEDNN = {"BatchMatMulV2": "_MklBatchMatMulV2", "Softmax": "_MklSoftmax"}


def run_loops_as_functions(saved_model: pathlib.Path) -> None:
    """Rewrites the loops of a SavedModel's graph."""
    model = read(saved_model)
    for meta_graph in model.meta_graphs:
        functions = {function.signature.name: function for function in meta_graph.graph_def.library.function}
        for loop in (node for function in functions.values() for node in _loops(function)):
            loop.attr["_lower_using_switch_merge"].b = False
            body = functions[loop.attr["body"].func.name]
            if not any(node.op in BRANCHES for node in body.node_def):
                _run_simply(loop, body)
    (saved_model / "saved_model.pb").write_bytes(model.SerializeToString(deterministic=True))


def _loops(function: function_pb2.FunctionDef) -> list[node_def_pb2.NodeDef]:
    return [node for node in function.node_def if node.op in LOOPS]


def _run_simply(loop: node_def_pb2.NodeDef, body: function_pb2.FunctionDef) -> None:
    for part in ("cond", "body"):
        loop.attr[part].func.attr["_executor"].s = b"SINGLE_THREADED_EXECUTOR"
    for node in body.node_def:
        if node.op in OF_ONEDNN:
            node.op = OF_ONEDNN[node.op]
            node.attr["_kernel"].s = b"MklNameChangeOp"
