"""What an export brings for TensorFlow Serving: warm-up requests, and the configuration of a server."""

import pathlib
import re

import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_serving.apis import prediction_log_pb2
from tensorflow_serving.config import model_server_config_pb2

from kformer.export.saved_model import export_saved_model
from kformer.export.server_files import BATCH_SIZES, write_server_files
from kformer.export.warmup import WARMUP_FILE, try_requests

pytestmark = pytest.mark.tensorflow_only

# Of BatchingParameters in session_bundle_config.proto of TensorFlow Serving 2.20.
BATCHING_FIELDS = {"max_batch_size", "batch_timeout_micros", "max_enqueued_batches", "allowed_batch_sizes"}


@pytest.fixture(scope="module")
def exported(numbers_translator, tmp_path_factory):
    return export_saved_model(numbers_translator, tmp_path_factory.mktemp("export") / "numbers")


def logs(version: pathlib.Path) -> list[prediction_log_pb2.PredictionLog]:
    records = tf.data.TFRecordDataset(str(version / WARMUP_FILE)).as_numpy_iterator()
    return [prediction_log_pb2.PredictionLog.FromString(record) for record in records]


def test_a_server_can_run_every_warm_up_request(exported, numbers_translator):
    signatures = tf.saved_model.load(str(exported)).signatures
    sizes = []
    for log in logs(exported):
        assert log.WhichOneof("log_type") == "predict_log"  # a server runs no other kind of the ones that are batched
        request = log.predict_log.request
        text = tf.constant(tf.make_ndarray(request.inputs["text"]))
        found = signatures[request.model_spec.signature_name](text=text)
        assert found["translation"].shape == text.shape
        assert {*text.numpy()} <= {sample.encode() for sample in numbers_translator.samples}
        sizes.append(len(text))
    assert sizes == [*BATCH_SIZES["portable"]]


def test_a_request_that_fails_ends_the_export():
    def answer(text):
        if len(text) == 4:
            raise ValueError("no")
        return {"translation": text}

    answer.structured_input_signature = ((), {"text": None})

    with pytest.raises(ValueError, match="no"):
        try_requests({"serving_default": answer}, ["one"], [1, 2, 4])


def entries(path: pathlib.Path) -> list[tuple[str, int]]:
    """The fields and numbers of a text protocol buffer whose fields are numbers, or messages with one number."""
    text = re.sub(r"#.*", "", path.read_text())
    return [(name, int(number)) for name, number in re.findall(r"(\w+)(?:: | \{ value: )(\d+)", text)]


def test_the_configuration_fits_the_model(exported):
    base = exported.parent
    models = text_format.Parse((base / "models.config").read_text(), model_server_config_pb2.ModelServerConfig())
    (model,) = models.model_config_list.config
    assert (model.name, model.base_path, model.model_platform) == ("numbers", "/models/numbers", "tensorflow")
    batching = entries(base / "batching.config")
    assert {name for name, _ in batching} <= BATCHING_FIELDS
    assert dict(batching)["max_batch_size"] == BATCH_SIZES["portable"][-1]
    assert re.fullmatch(
        r'#.*\nprometheus_config \{\n  enable: true\n  path: "/.*"\n\}\n', (base / "monitoring.config").read_text()
    )


@pytest.mark.parametrize(("seconds", "queue"), [(0.5, 20), (100.0, 1), (1e-6, 1000)])
def test_a_request_does_not_wait_in_the_queue_for_longer_than_a_client(tmp_path, seconds, queue):
    write_server_files(tmp_path, "portable", seconds)
    assert dict(entries(tmp_path / "batching.config"))["max_enqueued_batches"] == queue  # for ten seconds of work


def test_xla_gets_few_sizes_of_batches(tmp_path):
    write_server_files(tmp_path, "xla", 0.5)
    allowed = [number for name, number in entries(tmp_path / "batching.config") if name == "allowed_batch_sizes"]
    assert allowed == [*BATCH_SIZES["xla"]]


def test_what_a_person_has_edited_stays(tmp_path):
    (tmp_path / "batching.config").write_text("max_batch_size { value: 8 }")
    write_server_files(tmp_path, "portable", 0.5)
    assert (tmp_path / "batching.config").read_text() == "max_batch_size { value: 8 }"
    assert (tmp_path / "models.config").is_file()
