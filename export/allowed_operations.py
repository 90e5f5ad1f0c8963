"""Lists the operations that a SavedModel may hold without --trust.

    python export/allowed_operations.py         # rewrites kformer/runtime/allowed_operations.txt; ten seconds

TensorFlow's registry says of each operation whether it is stateful: whether it has an effect or a memory, or depends
on something beside its inputs. Those that are not stateful are allowed, but for the ones below, which were found by
reading the names and attributes of all of them. Of the stateful ones, those are allowed that keep values in the memory
of the process: variables, tables, random generators and the like. What is on neither list is refused: so is an
operation that a later TensorFlow adds, until somebody has looked at it.
"""

import argparse
import pathlib
import re

TARGET = pathlib.Path(__file__).parents[1] / "kformer" / "runtime" / "allowed_operations.txt"

# Not stateful, and refused: regular expressions of whole names, by kind.
REFUSED = {
    "files": r"ReadFile|MatchingFiles|ImmutableConst|GenerateVocabRemapping|InitializeTableFromTextFile|DecodeProtoV2|"
    r"EncodeProto",
    "readers of files": r"Reader.+",
    # Any of them may read files, through a function or a part of its own.
    "data sets": r".*Dataset.*|Snapshot(NestedDataset|Dataset)?Reader|.*DatasetVariant",
    "the debugger, which writes files and calls servers": r"Debug.+|Copy|CopyHost|CustomAggregator",
    "Python, and other programs within a program": r"PyFuncStateless|MlirPassthroughOp|RewriteDataset",
    "processes": r"Abort",
    "XLA's bridge, which calls functions by their address": r"_?Xla.+",
    "other devices and machines": r"_?TPU.+|Tpu.+|GetTpuTaskId|DTensor.+|CopyToMesh.*|Relayout.*|Infeed.+|"
    r"Prelinearize.*|_CopyFrom.+|.*SparseCore.*|ConvertToListOf.*|GetStatsFromListOf.*",
}

# Stateful, and allowed.
ALLOWED = {
    "variables": r"VarHandleOp|Variable(V2|Shape)?|VarIsInitializedOp|ReadVariableOp|Assign(Add|Sub)?VariableOp|"
    r"TemporaryVariable|DisableCopyOnRead|DestroyResourceOp|Resource(Gather|GatherNd|CountUpTo|StridedSliceAssign)|"
    r"Resource(Scatter|Apply|SparseApply).+|_ReadVariablesOp",
    "tables": r"(Mutable|MutableDense|Anonymous|AnonymousMutable|AnonymousMutableDense)?HashTable(OfTensors)?(V2)?|"
    r"InitializeTableV2|LookupTable(Export|Find|Import|Insert|Remove|Size)V2",
    "functions and their conditions": r"StatefulPartitionedCall|_?If|Case|_?While|Assert|CheckNumerics(V2)?|"
    r"GuaranteeConst|_Arg|_Retval|DeviceIndex",
    "random numbers": r"Random(Crop|Gamma|Poisson|PoissonV2|Shuffle|StandardNormal|Uniform|UniformInt)|TruncatedNormal|"
    r"ParameterizedTruncatedNormal|Multinomial|Stateful(RandomBinomial|StandardNormal|StandardNormalV2|TruncatedNormal|"
    r"Uniform|UniformFullInt|UniformInt)|StatelessRandomGetAlg|Rng(ReadAndSkip|Skip)|NonDeterministicInts|"
    # Not FixedUnigramCandidateSampler, which reads a file.
    r"SampleDistortedBoundingBox(V2)?|(All|LearnedUnigram|LogUniform|ThreadUnsafeUnigram|Uniform)CandidateSampler",
    "arrays and stacks of one call": r"TensorArray.*|Stack.*|Empty|DeepCopy|_ParallelConcatStart|"
    r"(AddSparseTo|AddManySparseTo|TakeManySparseFrom)TensorsMap",
    "recurrent networks": r"CudnnRNN.*",
    "decision trees": r"(Is)?BoostedTrees.+",
    "tokenizers": r"Sentencepiece.+|WordpieceTokenizeWithOffsets",
    "time": r"Timestamp",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    operations = registered()
    allowed = allowed_of(operations)
    TARGET.write_text("\n".join(allowed) + "\n", encoding="utf-8")
    print(f"{TARGET}: {len(allowed):,} of {len(operations):,} operations")
    for kind, stateful in (("not stateful", False), ("stateful", True)):
        names = [name for name in operations if operations[name] == stateful]
        print(f"{kind}: {sum(name in {*allowed} for name in names):,} of {len(names):,}")


def registered() -> dict[str, bool]:
    """The operations of the installed TensorFlow and tensorflow-text: whether each is stateful."""
    import tensorflow_text  # noqa: F401 (registers its operations)
    from tensorflow.core.framework import op_def_pb2
    from tensorflow.python.client import pywrap_tf_session as c_api

    listed = op_def_pb2.OpList.FromString(c_api.TF_GetBuffer(c_api.TF_GetAllOpList()))
    return {operation.name: operation.is_stateful for operation in listed.op}


def allowed_of(operations: dict[str, bool]) -> list[str]:
    """The allowed ones of some operations, in order."""
    refused, allowed = "|".join(REFUSED.values()), "|".join(ALLOWED.values())
    return sorted(
        name
        for name, stateful in operations.items()
        if (re.fullmatch(allowed, name) if stateful else not re.fullmatch(refused, name))
    )


if __name__ == "__main__":
    main()
