"""The configuration files of TensorFlow Serving."""

import os

import pytest

from kformer.export.server_files import write_server_files
from kformer.serving.config_files import ConfigError, read_batching, read_metrics_path, read_models
from kformer.serving.model_settings import Batching

pytestmark = pytest.mark.tensorflow_only


def written(folder, text):
    file = folder / "some.config"
    file.write_text(text, encoding="utf-8-sig")  # with a byte order mark, as Notepad writes it
    return file


def test_the_files_that_an_export_writes_are_read(tmp_path):
    write_server_files(tmp_path, "xla", batch_seconds=0.1)
    batching = read_batching(tmp_path / "batching.config")
    assert (batching.max_batch_size, batching.batch_timeout_micros, batching.max_enqueued_batches) == (32, 0, 100)
    assert batching.allowed_batch_sizes == (1, 8, 32)
    assert read_metrics_path(tmp_path / "monitoring.config") == "/monitoring/prometheus/metrics"
    (model,) = read_models(tmp_path / "models.config")
    assert model.name == tmp_path.name
    assert str(model.base_path) == f"/models/{tmp_path.name}"


def test_every_batching_parameter_arrives(tmp_path):
    text = (
        "max_batch_size { value: 7 } batch_timeout_micros { value: 11 } max_enqueued_batches { value: 13 } "
        'num_batch_threads { value: 3 } thread_pool_name { value: "x" } allowed_batch_sizes: 2 allowed_batch_sizes: 7'
    )
    assert read_batching(written(tmp_path, text)) == Batching(7, 11, 13, 3, (2, 7))


def test_parameters_that_are_left_out_have_tensorflow_servings_values_or_those_of_the_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 2, 5})  # the cores that this process may use
    assert read_batching(written(tmp_path, "")) == Batching(32, 0, 100, 3, (), 10.0)
    assert read_batching(written(tmp_path, "batch_timeout_micros { value: 0 }")).batch_timeout_micros == 0


def test_the_policies_and_labels_of_models_arrive(tmp_path):
    text = """model_config_list {
      config { name: "a" base_path: "/a" }
      config { name: "b" base_path: "/b" model_platform: "tensorflow"
               model_version_policy { latest { num_versions: 2 } } }
      config { name: "c" base_path: "/c" model_version_policy { all {} } }
      config { name: "d" base_path: "/d" model_version_policy { specific { versions: 3 versions: 5 } }
               version_labels { key: "stable" value: 3 } }
      config { name: "e" base_path: "/e" model_version_policy { latest {} } }
    }"""
    models = read_models(written(tmp_path, text))
    assert [(model.name, str(model.base_path), model.latest, model.specific) for model in models] == [
        ("a", "/a", 1, ()),
        ("b", "/b", 2, ()),
        ("c", "/c", None, ()),
        ("d", "/d", 1, (3, 5)),
        ("e", "/e", 1, ()),
    ]
    assert models[3].labels == {"stable": 3}


def test_metrics_can_be_switched_off(tmp_path):
    assert read_metrics_path(written(tmp_path, "prometheus_config { enable: false }")) is None
    assert read_metrics_path(written(tmp_path, 'prometheus_config { enable: true path: "/m" }')) == "/m"
    assert (
        read_metrics_path(written(tmp_path, "prometheus_config { enable: true }")) == "/monitoring/prometheus/metrics"
    )


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (read_batching, "max_batch_sizes { value: 3 }", 'no field named "max_batch_sizes"'),
        (read_batching, "max_batch_size { value: 0 }", "max_batch_size must be at least 1. Received: 0"),
        (read_batching, "batch_timeout_micros { value: -1 }", "batch_timeout_micros must be at least 0"),
        (read_batching, "max_enqueued_batches { value: 0 }", "max_enqueued_batches must be at least 1. Received: 0"),
        (read_batching, "num_batch_threads { value: 0 }", "num_batch_threads must be at least 1. Received: 0"),
        *(
            (read_batching, " ".join(f"allowed_batch_sizes: {size}" for size in sizes), "must rise, and end with max_b")
            for sizes in ((8, 4), (8, 4, 32), (8, 16), (8, 8, 32), (0, 32))
        ),
        (read_batching, "pad_variable_length_inputs: true", "is not supported"),
        *(
            (read_metrics_path, f'prometheus_config {{ enable: true path: "{wrong}" }}', "must begin with /")
            for wrong in ("m", "/", "/{x:foo}", "/v1/models/m")
        ),
        (read_models, 'model_config_list { config { name: "a/b" base_path: "/a" } }', "neither / nor :"),
        (read_models, "", "There is no model_config_list"),
        (read_models, 'model_config_list { config { name: "a" } }', "A model needs name and base_path"),
        (read_models, 'model_config_list { config { base_path: "/a" } }', "A model needs name and base_path"),
        (
            read_models,
            'model_config_list { config { name: "a" base_path: "/a" model_platform: "other" } }',
            "model_platform must be tensorflow. Received: 'other'",
        ),
        (
            read_models,
            'model_config_list { config { name: "a" base_path: "/a" model_version_policy { specific {} } } }',
            "The policy `specific` of a names no version",
        ),
        (
            read_metrics_path,
            'prometheus_config { enable: true path: "/readyz" }',
            "/healthz, .*, /readyz are taken. Rec",
        ),
        (
            read_models,
            'model_config_list { config { name: "a" base_path: "/a" } config { name: "a" base_path: "/b" } }',
            "must have a name of its own",
        ),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(tmp_path, read, text, message):
    file = written(tmp_path, text)
    with pytest.raises(ConfigError, match=message) as refused:
        read(file)
    assert str(file) in str(refused.value)


def test_a_file_that_is_not_utf_8_is_named(tmp_path):
    (tmp_path / "models.config").write_bytes("model_config_list {}".encode("utf-16"))
    with pytest.raises(ConfigError, match="models.config cannot be read as a ModelServerConfig: .*utf-8"):
        read_models(tmp_path / "models.config")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="nothing.config cannot be read as a BatchingParameters: No such file"):
        read_batching(tmp_path / "nothing.config")
