"""What an export brings for TensorFlow Serving: warm-up requests, and the configuration of a server."""

import collections
import pathlib

import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_serving.apis import prediction_log_pb2
from tensorflow_serving.config import model_server_config_pb2

from kformer.export.server_files import BATCH_SIZES, write_server_files
from kformer.export.warmup import WARMUP_FILE, try_requests
from kformer.serving.config_files import DEFAULT_METRICS_PATH, read_batching, read_metrics_path, read_models

pytestmark = pytest.mark.tensorflow_only


@pytest.fixture(scope="module")
def exported(numbers_export):
    return numbers_export / "1"


def logs(version: pathlib.Path) -> list[prediction_log_pb2.PredictionLog]:
    records = tf.data.TFRecordDataset(str(version / WARMUP_FILE)).as_numpy_iterator()
    return [prediction_log_pb2.PredictionLog.FromString(record) for record in records]


@pytest.mark.slow
@pytest.mark.in_ci
def test_a_server_can_run_every_warm_up_request(exported, numbers_translator):
    loaded = tf.saved_model.load(str(exported))
    sizes = collections.defaultdict(list)
    for log in logs(exported):
        assert log.WhichOneof("log_type") == "predict_log"  # a server runs no other kind of the ones that are batched
        request = log.predict_log.request
        inputs = {name: tf.constant(tf.make_ndarray(value)) for name, value in request.inputs.items()}
        found = loaded.signatures[request.model_spec.signature_name](**inputs)
        assert {len(values) for values in found.values()} == {len(inputs["text"])}
        assert {*inputs["text"].numpy()} <= {sample.encode() for sample in numbers_translator.samples}
        sizes[request.model_spec.signature_name].append(len(inputs["text"]))
    # Scalars, which a server that batches refuses, are in one signature: no request of it may be there.
    shared = {*loaded.signatures} - {"translate_with_options"}
    assert sizes == {name: [*BATCH_SIZES["portable"]] for name in shared}


def test_a_request_that_fails_ends_the_export():
    def answer(text):
        if len(text) == 4:
            raise ValueError("no")
        return {"translation": text}

    answer.structured_input_signature = ((), {"text": tf.TensorSpec([None], tf.string)})

    with pytest.raises(ValueError, match="no"):
        try_requests({"serving_default": answer}, ["one"], [1, 2, 4])


def test_the_configuration_fits_the_model(exported):
    base = exported.parent
    models = text_format.Parse((base / "models.config").read_text(), model_server_config_pb2.ModelServerConfig())
    (model,) = models.model_config_list.config
    assert (model.name, model.base_path, model.model_platform) == ("numbers", "/models/numbers", "tensorflow")
    assert read_batching(base / "batching.config").max_batch_size == BATCH_SIZES["portable"][-1]
    assert read_metrics_path(base / "monitoring.config") == DEFAULT_METRICS_PATH


@pytest.mark.parametrize(("seconds", "queue"), [(0.5, 20), (100.0, 1), (1e-6, 1000)])
def test_a_request_does_not_wait_in_the_queue_for_longer_than_a_client(tmp_path, seconds, queue):
    write_server_files(tmp_path, "portable", seconds)
    assert read_batching(tmp_path / "batching.config").max_enqueued_batches == queue  # for ten seconds of work


def test_xla_gets_few_sizes_of_batches(tmp_path):
    write_server_files(tmp_path, "xla", 0.5)
    assert read_batching(tmp_path / "batching.config").allowed_batch_sizes == BATCH_SIZES["xla"]


def test_what_a_person_has_edited_stays(tmp_path):
    (tmp_path / "batching.config").write_text("max_batch_size { value: 8 }")
    write_server_files(tmp_path, "portable", 0.5)
    assert (tmp_path / "batching.config").read_text() == "max_batch_size { value: 8 }"
    assert (tmp_path / "models.config").is_file()


def test_the_model_has_the_name_of_its_folder_as_far_as_that_can_stand_in_a_url(tmp_path):
    base = tmp_path / "my_model 1.5: en-es"
    base.mkdir()
    write_server_files(base, "portable", 0.5)
    (model,) = read_models(base / "models.config")
    assert (model.name, str(model.base_path)) == ("my_model-1.5--en-es", "/models/my_model-1.5--en-es")
