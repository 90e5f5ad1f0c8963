"""The warm-up requests of an export: TensorFlow Serving runs them when it loads a version, before it answers with it.

Without them the first clients wait while TensorFlow prepares the graph for every size of a batch.
"""

import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from kformer.export.server_files import BATCH_SIZES

# The server looks for this file, and refuses the whole version if a request of it fails.
WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"


def write_warmup(
    saved_model: pathlib.Path, signature_name: str, answer: Callable[..., Any], texts: Sequence[str]
) -> float:
    """Runs a request of every batch size, and writes it down.

    Args:
        saved_model: The folder of the version.
        signature_name: The name of a signature that takes `text` (B,) string.
        answer: The signature.
        texts: What to translate; repeated where they are too few.

    Returns:
        Seconds that the largest batch took, which had been run once before.
    """
    from tensorflow_serving.apis import prediction_log_pb2  # not above: it is needed here alone

    path = saved_model / WARMUP_FILE
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as file:
        for size in BATCH_SIZES:
            text = tf.constant([texts[index % len(texts)] for index in range(size)])
            answer(text=text)
            log = prediction_log_pb2.PredictionLog()
            log.predict_log.request.model_spec.signature_name = signature_name
            log.predict_log.request.inputs["text"].CopyFrom(tf.make_tensor_proto(text))
            file.write(log.SerializeToString())
    began = time.perf_counter()
    answer(text=text)
    return time.perf_counter() - began
