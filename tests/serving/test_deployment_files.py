"""The files of export/ for operators: they fit their schemas, each other, and what an export brings.

No TensorFlow Serving can be installed here, so its own sources say which flags it has, and what its answers mean.
"""

import configparser
import copy
import json
import pathlib
import re
import subprocess
import sys

import kubernetes_validate
import pytest
import typer
from manifests import FOLDER, ROOT, documents

from kformer.cli.main import app
from kformer.export.server_files import BATCH_SIZES, write_server_files
from kformer.export.server_versions import server_versions
from kformer.serving.config_files import DEFAULT_METRICS_PATH, read_batching, read_metrics_path, read_models

pytestmark = pytest.mark.tensorflow_only  # that is: once

MANIFESTS = ("kubernetes.yml", "kubernetes-volume.yml")  # of TensorFlow Serving
IMAGE = "tensorflow/serving:2.20.0"
METADATA = "/v1/models/translator/metadata"
REQUEST_SECONDS = 30  # TensorFlow Serving's limit of a REST request, and `kformer serve`'s of any

FLAGS_FILE = pathlib.Path(__file__).parent / "tensorflow_serving_flags.txt"
SERVER_FLAGS = {line for line in FLAGS_FILE.read_text().splitlines() if not line.startswith("#")}
# What V1beta1ModelSpec and V1beta1PredictorSpec of the Python package kserve 0.21 have beyond the fields of a container
# and of a pod; of the predictor without the frameworks. The package is not installed: it needs another protobuf.
KSERVE_MODEL = {"modelFormat", "protocolVersion", "runtime", "runtimeVersion", "storage", "storageUri", "confidential"}
KSERVE_PREDICTOR = {
    *("minReplicas", "maxReplicas", "annotations", "labels", "model", "timeout", "containerConcurrency"),
    *("scaleMetric", "scaleMetricType", "scaleTarget", "canaryTrafficPercent", "deploymentStrategy", "autoScaling"),
    *("batcher", "logger", "storageUris", "workerSpec"),
}


def of_kind(kind: str) -> dict:
    (found,) = [document for name in MANIFESTS for document in documents(name) if document["kind"] == kind]
    return found


COMPOSE = documents("docker-compose.yml")[0]["services"]["translator"]
PREDICTOR = documents("kserve.yml")[0]["spec"]["predictor"]
POD = of_kind("Deployment")["spec"]["template"]
CONTAINER = POD["spec"]["containers"][0]
ARGUMENTS = {
    "compose": COMPOSE["command"],
    "kubernetes": CONTAINER["args"],
    "kserve": PREDICTOR["model"]["args"],
}


def flags(arguments: list[str]) -> dict[str, str]:
    return dict(argument.removeprefix("--").split("=", 1) for argument in arguments)


def check_compose(path: pathlib.Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", path]
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)


def test_the_compose_file_fits_the_compose_specification(tmp_path):
    done = check_compose(FOLDER / "docker-compose.yml")
    assert done.returncode == 0, done.stdout
    wrong = (FOLDER / "docker-compose.yml").read_text().replace("cap_drop:", "cap_dropped:")
    (tmp_path / "wrong.yml").write_text(wrong)
    assert "'cap_dropped' was unexpected" in check_compose(tmp_path / "wrong.yml").stdout


@pytest.mark.parametrize("version", ["1.25", kubernetes_validate.latest_version()])
@pytest.mark.parametrize("name", [*MANIFESTS, "kubernetes-kformer.yml", "kubernetes-job.yml"])
def test_the_manifests_fit_the_oldest_and_the_newest_kubernetes(name, version):
    for document in documents(name):
        kubernetes_validate.validate(document, version, strict=True)
        wrong = copy.deepcopy(document)
        wrong["spec"]["replica"] = 2
        with pytest.raises(kubernetes_validate.ValidationError, match="'replica' was unexpected"):
            kubernetes_validate.validate(wrong, version, strict=True)


def test_the_inference_service_is_a_pod_with_fields_of_kserve():
    (service,) = documents("kserve.yml")
    assert (service["apiVersion"], service["kind"]) == ("serving.kserve.io/v1beta1", "InferenceService")
    assert service.keys() == {"apiVersion", "kind", "metadata", "spec"}
    assert service["spec"].keys() == {"predictor"}
    container = {key: value for key, value in PREDICTOR["model"].items() if key not in KSERVE_MODEL}
    spec = {key: value for key, value in PREDICTOR.items() if key not in KSERVE_PREDICTOR}
    spec["containers"] = [{"name": "server", **container}]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"annotations": PREDICTOR["annotations"], **service["metadata"]},
        "spec": spec,
    }
    kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)
    pod["spec"]["minReplica"] = 2
    with pytest.raises(kubernetes_validate.ValidationError, match="'minReplica' was unexpected"):
        kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)


def test_all_files_name_one_version_of_the_server_which_is_known():
    texts = [path.read_text(encoding="utf-8") for path in (*FOLDER.glob("*.yml"), ROOT / "docs" / "serving.md")]
    images = {image for text in texts for image in re.findall(r"image: (\S+)", text)}
    assert images == {IMAGE, "kformer"}  # that of the Dockerfile, in kubernetes-kformer.yml
    version = IMAGE.rpartition(":")[2]
    assert PREDICTOR["model"]["runtimeVersion"] == version
    assert version.rpartition(".")[0] in server_versions()


def test_every_flag_is_one_of_the_server():
    """The server only prints a line about a flag that it does not know, and starts without it."""
    for arguments in ARGUMENTS.values():
        assert flags(arguments).keys() <= SERVER_FLAGS
    paths = [*FOLDER.iterdir(), ROOT / "docs" / "serving.md", ROOT / "kformer" / "export" / "server_files.py"]
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths if path.is_file())
    told = set(re.findall(r"--([a-z]+(?:_[a-z]+)+)", text))  # kformer's own options have hyphens
    assert told >= {"model_config_file", "xla_cpu_compilation_enabled"}
    assert told <= SERVER_FLAGS


def test_the_servers_are_started_alike():
    compose, kubernetes, kserve = (flags(ARGUMENTS[name]) for name in ("compose", "kubernetes", "kserve"))
    assert kubernetes.pop("grpc_channel_arguments") == "grpc.max_connection_age_ms=20000"
    assert kubernetes == compose
    del compose["model_config_file"]  # the runtime of KServe names model and folder itself
    assert kserve == {name: value.replace("/models/translator", "/mnt/models") for name, value in compose.items()}


def test_the_files_that_flags_name_are_those_of_an_export(tmp_path):
    """The volumes show the folder of the export at /models/translator."""
    assert COMPOSE["volumes"] == ["../exported/translator:/models/translator:ro"]
    assert CONTAINER["volumeMounts"][0] == {"name": "models", "mountPath": "/models", "readOnly": True}
    base = tmp_path / "models" / "translator"
    base.mkdir(parents=True)
    write_server_files(base, "portable", 0.5)
    for arguments in (COMPOSE["command"], CONTAINER["args"]):
        files = {name: tmp_path / value[1:] for name, value in flags(arguments).items() if name.endswith("_file")}
        (model,) = read_models(files["model_config_file"])
        assert (model.name, str(model.base_path)) == ("translator", "/models/translator")
        assert read_batching(files["batching_parameters_file"]).max_batch_size == BATCH_SIZES["portable"][-1]
        assert read_metrics_path(files["monitoring_config_file"]) == DEFAULT_METRICS_PATH
    for annotations in (POD["metadata"]["annotations"], PREDICTOR["annotations"]):
        assert annotations["prometheus.io/path"] == DEFAULT_METRICS_PATH


@pytest.mark.parametrize("variant", BATCH_SIZES)
def test_the_threads_for_requests_can_fill_two_batches(variant):
    """As session_bundle_config.proto of TensorFlow Serving advises: twice the largest batch."""
    for arguments in ARGUMENTS.values():
        for name in ("rest_api_num_threads", "grpc_max_threads"):
            assert int(flags(arguments)[name]) == 2 * BATCH_SIZES[variant][-1]


def test_ports_are_alike_everywhere():
    ports = {"grpc": 8500, "rest": 8501}
    assert COMPOSE["ports"] == [f"127.0.0.1:{port}:{port}" for port in ports.values()]
    assert {port["name"]: port["containerPort"] for port in CONTAINER["ports"]} == ports
    assert {port["name"]: port["port"] for port in of_kind("Service")["spec"]["ports"]} == ports
    assert all(port["targetPort"] == port["name"] for port in of_kind("Service")["spec"]["ports"])
    assert POD["metadata"]["annotations"]["prometheus.io/port"] == str(ports["rest"])
    assert f"/127.0.0.1/{ports['rest']} " in COMPOSE["healthcheck"]["test"][-1]
    assert "EXPOSE 8500 8501\n" in (FOLDER / "Dockerfile").read_text()
    assert "http://localhost:8501/v1/models/translator" in (FOLDER / "client_rest.py").read_text()


def test_the_objects_find_each_other():
    labels = POD["metadata"]["labels"]
    assert of_kind("Deployment")["spec"]["selector"]["matchLabels"] == labels
    assert of_kind("Service")["spec"]["selector"] == labels
    assert of_kind("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels
    claim = of_kind("PersistentVolumeClaim")["metadata"]["name"]
    for pod in (POD["spec"], of_kind("Pod")["spec"]):
        assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim
    assert PREDICTOR["model"]["storageUri"] == f"pvc://{claim}/translator"


def test_requests_that_have_begun_are_answered_before_a_server_is_killed():
    assert int(COMPOSE["stop_grace_period"].removesuffix("s")) > REQUEST_SECONDS
    age = int(flags(CONTAINER["args"])["grpc_channel_arguments"].partition("=")[2]) / 1000
    sleep = int(CONTAINER["lifecycle"]["preStop"]["exec"]["command"][1])
    # gRPC adds up to a tenth to the age of a connection, so that not all clients return at once.
    assert sleep >= 1.1 * age + REQUEST_SECONDS
    assert POD["spec"]["terminationGracePeriodSeconds"] > sleep
    update, disruptions = of_kind("Deployment")["spec"], of_kind("PodDisruptionBudget")["spec"]
    assert update["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert update["replicas"] > disruptions["minAvailable"] >= 1


def test_no_server_has_rights_that_it_does_not_need():
    assert (COMPOSE["user"], COMPOSE["read_only"], COMPOSE["cap_drop"]) == ("1000:1000", True, ["ALL"])
    for pod in (POD["spec"], of_kind("Pod")["spec"]):
        assert pod["securityContext"]["runAsNonRoot"]
        assert not pod["automountServiceAccountToken"]
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "memory" in container["resources"]["limits"]
    assert "USER 1000:1000\n" in (FOLDER / "Dockerfile").read_text()


def test_the_image_of_kformer_serve_is_built_from_what_there_is():
    text = (FOLDER / "Dockerfile").read_text()
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    minor = re.search(r"^FROM python:3\.(\d+)-slim$", text, re.MULTILINE)[1]
    assert f"Programming Language :: Python :: 3.{minor}" in setup["metadata"]["classifiers"].split("\n")
    assert "serving" in setup["options.extras_require"]
    assert '"/source[serving]"' in text
    for source in re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE):
        assert all((ROOT / name).exists() for name in source.split())
    command = json.loads(re.search(r"^ENTRYPOINT (.+)$", text, re.MULTILINE)[1])
    assert command[:2] == ["kformer", "serve"]
    options = {name for option in typer.main.get_command(app).commands["serve"].params for name in option.opts}
    assert {word for word in command if word.startswith("--")} <= options
