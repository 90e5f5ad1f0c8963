"""The warm-up requests of an export: TensorFlow Serving runs them when it loads a version, before any client's request.

Without them the first clients wait while TensorFlow prepares the graph for every size of a batch.
"""

import pathlib
import time
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from kformer.runtime.signature_names import DEFAULT_SIGNATURE

# The server looks for this file, and refuses the whole version if a request of it fails.
WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"


def try_requests(
    answers: dict[str, Any], texts: Sequence[str], batch_sizes: Sequence[int]
) -> tuple[list[bytes], float]:
    """Runs a request of every batch size, for every signature without scalars.

    A server that batches refuses scalars, and it does not serve a version whose warm-up has a request that fails.

    Args:
        answers: The export's signatures, loaded again, by their names. Their inputs are `text`, or `text` and
            `translation`.
        texts: What to answer; repeated where they are too few.
        batch_sizes: Of the requests, rising.

    Returns:
        The requests for `write_warmup`; and the seconds that the largest batch of the default signature takes when it
        runs a second time.
    """
    default = answers[DEFAULT_SIGNATURE]
    requests = []
    for size in batch_sizes:
        text = tf.constant([texts[index % len(texts)] for index in range(size)])
        values = dict(default(text=text))  # a translator's `score` takes the translations, too
        values["text"] = text  # a language model's answer has this name, too
        for name, answer in answers.items():
            specs = answer.structured_input_signature[1]
            if any(spec.shape.rank == 0 for spec in specs.values()):
                continue
            inputs = {key: values[key] for key in specs}
            answer(**inputs)
            requests.append(_request(name, inputs))
    began = time.perf_counter()
    default(text=text)
    return requests, time.perf_counter() - began


def write_warmup(saved_model: pathlib.Path, requests: Sequence[bytes]) -> None:
    """Writes the requests where a server looks for them."""
    path = saved_model / WARMUP_FILE
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as file:
        for request in requests:
            file.write(request)


def _request(signature_name: str, inputs: dict[str, tf.Tensor]) -> bytes:
    from tensorflow_serving.apis import prediction_log_pb2  # not at the top: only this function needs it

    log = prediction_log_pb2.PredictionLog()
    log.predict_log.request.model_spec.signature_name = signature_name
    for name, values in inputs.items():
        log.predict_log.request.inputs[name].CopyFrom(tf.make_tensor_proto(values))
    return log.SerializeToString()
