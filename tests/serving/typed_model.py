"""A SavedModel with a signature for each type of tensors, whose outputs are its inputs, and some that do a little more.

It is written as one graph: a `tf.function` for each signature would take seconds.
"""

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

WHOLE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
TYPES = ("float16", "float32", "float64", *WHOLE, "bool", "string", "bfloat16", "complex64")


def _signatures():
    """{name: (inputs, outputs)}, in the graph that is being made."""

    def x(dtype, shape=None):
        return tf.compat.v1.placeholder(dtype, shape)

    def echo(**inputs):
        return inputs, {name: tf.identity(value) for name, value in inputs.items()}

    texts, numbers, rounded, total, factor = (x("string"), *(x("float32", [None]) for _ in range(3)), x("float32", []))
    two, uneven = x("float32", [None]), x("float32", [None])
    positive = x("float32", [None])
    with tf.control_dependencies([tf.compat.v1.assert_positive(positive, message="All must be above 0.")]):
        same = tf.identity(positive)
    return {
        "serving_default": echo(x=x("string", [None])),
        **{dtype: echo(x=x(dtype)) for dtype in TYPES},
        "shaped": echo(x=x("float32", [None, 3])),
        "mixed": echo(count=x("int32"), text=x("string"), size=x("float32")),
        "two": ({"x": two}, {"half": two / 2, "negative": -two}),
        "bytes": ({"x": texts}, {"x_bytes": tf.identity(texts)}),
        "sum": ({"x": total}, {"sum": tf.reduce_sum(total)}),
        "uneven": ({"x": uneven}, {"all": tf.identity(uneven), "rest": uneven[1:]}),
        "rounded": ({"x": rounded}, {"x": tf.cast(rounded, "bfloat16")}),
        "multiplied": ({"x": numbers, "factor": factor}, {"x": numbers * factor}),
        "positive": ({"x": positive}, {"x": same}),
    }


def save(folder):
    """Writes the SavedModel. The input `factor` of `multiplied` is 2 by default."""
    message = saved_model_pb2.SavedModel(saved_model_schema_version=1)
    meta_graph = message.meta_graphs.add()
    meta_graph.meta_info_def.tags.append("serve")
    with tf.Graph().as_default() as graph:
        for name, (inputs, outputs) in _signatures().items():
            signature = meta_graph.signature_def[name]
            signature.method_name = "tensorflow/serving/predict"
            for tensors, infos in ((inputs, signature.inputs), (outputs, signature.outputs)):
                for key, tensor in tensors.items():
                    infos[key].name, infos[key].dtype = tensor.name, tensor.dtype.as_datatype_enum
                    infos[key].tensor_shape.CopyFrom(tensor.shape.as_proto())
        tf.no_op("init")
    meta_graph.signature_def["__saved_model_init_op"].outputs["__saved_model_init_op"].name = "init"
    meta_graph.signature_def["multiplied"].defaults["factor"].CopyFrom(tf.make_tensor_proto(2.0))
    meta_graph.graph_def.CopyFrom(graph.as_graph_def())
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(message.SerializeToString())
