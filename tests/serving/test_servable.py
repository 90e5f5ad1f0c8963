"""A version gives its memory back when it is let go, whatever it has answered."""

import gc
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import typed_model
from tensorflow_serving.apis import prediction_log_pb2

from kformer.export.warmup import WARMUP_FILE
from kformer.runtime.c_api import SavedModel, SavedModelError
from kformer.serving import servable
from kformer.serving.model_settings import Batching


@pytest.fixture
def loaded(monkeypatch):
    """The models that a server loads from now on. Python looks for no circles, as it seldom does in a large process."""
    models = []

    class Noted(SavedModel):
        def __init__(self, directory, threads_per_operation=None, trust=False):
            super().__init__(directory, threads_per_operation, trust)
            models.append(self)

    monkeypatch.setattr(servable, "SavedModel", Noted)
    gc.disable()
    yield models
    gc.enable()


def load(folder: pathlib.Path) -> servable.Servable:
    return servable.Servable("typed", 1, folder, Batching(num_batch_threads=1), lambda *batch: None)


def assert_freed(model: SavedModel) -> None:
    with pytest.raises(SavedModelError, match="The model was closed. Load it again.") as refused:
        model.run("sum", {"x": np.float32([1.0])})
    assert refused.value.code == 9  # FAILED_PRECONDITION


def test_a_version_that_has_answered_an_error_is_freed(tmp_path, loaded):
    typed_model.save(tmp_path / "1")
    version = load(tmp_path / "1")
    inputs = {"x": np.float32([-1.0])}
    answer = version.submit(version.signature("positive"), inputs, client="a", seconds=10.0)
    with pytest.raises(SavedModelError, match=r"All must be above 0\."):
        answer.result()
    version.close()
    (model,) = loaded
    assert_freed(model)
    version.close()  # once more does no harm


def write_warm_up(version, signature, value):
    """A warm-up file with one request, which names the signature, or none if it is ""."""
    log = prediction_log_pb2.PredictionLog()
    request = log.predict_log.request
    request.model_spec.signature_name = signature
    request.inputs["x"].CopyFrom(tf.make_tensor_proto([value]))
    (version / WARMUP_FILE).parent.mkdir()
    with tf.io.TFRecordWriter(str(version / WARMUP_FILE)) as writer:
        writer.write(log.SerializeToString())


def test_a_version_whose_warm_up_fails_is_freed(tmp_path, loaded):
    typed_model.save(tmp_path / "1")
    write_warm_up(tmp_path / "1", "positive", -1.0)
    with pytest.raises(SavedModelError, match=r"cannot be served: .*All must be above 0\."):
        load(tmp_path / "1")
    (model,) = loaded
    assert_freed(model)


def test_a_warm_up_request_without_a_signature_is_of_the_default_one(tmp_path):
    typed_model.save(tmp_path / "1")
    write_warm_up(tmp_path / "1", "", "one")
    load(tmp_path / "1").close()


def test_a_warm_up_file_that_is_cut_is_damaged(tmp_path):
    typed_model.save(tmp_path / "1")
    write_warm_up(tmp_path / "1", "", "one")
    file = tmp_path / "1" / WARMUP_FILE
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match="is damaged: its last record is not whole. Export the model again"):
        load(tmp_path / "1")


def test_a_server_leaves_the_threads_of_an_operation_to_its_models(tmp_path):
    """Python's TensorFlow refuses the setting once it has computed something, and would then have decided for all."""
    typed_model.save(tmp_path / "1")
    write_warm_up(tmp_path / "1", "", "one")
    program = """
import pathlib, sys
from kformer.serving.model_settings import Batching
from kformer.serving.servable import Servable
Servable("typed", 1, pathlib.Path(sys.argv[1]), Batching(num_batch_threads=1), lambda *batch: None).close()
import tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(3)
"""
    subprocess.run([sys.executable, "-c", program, tmp_path / "1"], check=True)
