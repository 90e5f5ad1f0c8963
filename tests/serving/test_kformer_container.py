"""`kformer serve` in a container: the image's files and its health check, and the manifest for Kubernetes."""

import contextlib
import http.client
import pathlib
import re
import shutil
import ssl
import subprocess
import sys
import zipfile

import grpc
import pytest
import trustme
import typed_model
import typer
from grpc_health.v1 import health_pb2, health_pb2_grpc
from manifests import FOLDER, ROOT, documents
from servers import running

from kformer.cli.main import app
from kformer.serving.model_settings import ModelSettings
from kformer.serving.settings import ServerSettings

pytestmark = pytest.mark.tensorflow_only

DEPLOYMENT, SERVICE, BUDGET = documents("kubernetes-kformer.yml")
POD = DEPLOYMENT["spec"]["template"]
(CONTAINER,) = POD["spec"]["containers"]
PROBES = {name: CONTAINER[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")}
DOCKERFILE = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
COPIED = [name for names in re.findall(r"^COPY (.+) \S+$", DOCKERFILE, re.MULTILINE) for name in names.split()]


def test_the_objects_find_each_other():
    labels = POD["metadata"]["labels"]
    assert DEPLOYMENT["spec"]["selector"]["matchLabels"] == SERVICE["spec"]["selector"] == labels
    assert BUDGET["spec"]["selector"]["matchLabels"] == labels
    claim, _ = documents("kubernetes-volume.yml")
    volumes = {volume["name"]: volume for volume in POD["spec"]["volumes"]}
    assert volumes["models"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert {mount["name"] for mount in CONTAINER["volumeMounts"]} == {*volumes}
    assert {port["name"]: port["containerPort"] for port in CONTAINER["ports"]} == {"grpc": 8500, "rest": 8501}
    assert all(port["targetPort"] == port["name"] for port in SERVICE["spec"]["ports"])


def test_the_server_takes_the_arguments_of_the_manifest():
    options = {name for option in typer.main.get_command(app).commands["serve"].params for name in option.opts}
    directory, *given = CONTAINER["args"]
    mounts = [mount["mountPath"] for mount in CONTAINER["volumeMounts"]]
    assert directory == "/models/translator"
    for argument in given:
        name, _, path = argument.partition("=")
        assert name in options
        assert str(pathlib.PurePosixPath(path).parent) in mounts
    assert [variable["name"] for variable in CONTAINER["env"]] == ["KFORMER_TOKEN"]


def test_a_server_has_the_time_to_answer_what_has_arrived():
    seconds = ServerSettings([]).drain_seconds
    sleep = int(CONTAINER["lifecycle"]["preStop"]["exec"]["command"][1])
    assert POD["spec"]["terminationGracePeriodSeconds"] > sleep + seconds
    docs = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    (stop,) = re.findall(r"--stop-timeout (\d+)", docs)
    assert int(stop) > seconds


@contextlib.contextmanager
def encrypted(folder, models, until_ready=True):
    """A server with a token and TLS."""
    issued = trustme.CA().issue_cert("translator.example")
    issued.private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    pem = folder / "server.pem"
    settings = ServerSettings(models, rest_port=0, grpc_port=0, token="open sesame", certificate=pem, key=pem)
    with running(settings, until_ready=until_ready) as server:
        yield server.server


def probed(server, path, scheme):
    """What a probe of Kubernetes is told: it sends no token and does not look at the certificate."""
    if scheme == "HTTPS":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection("127.0.0.1", server.rest_port, timeout=30, context=context)
    else:
        connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", path)
        return connection.getresponse().status


def healthy(server):
    """The exit status of the image's health check."""
    command = [sys.executable, FOLDER / "healthcheck.py", str(server.rest_port)]
    return subprocess.run(command, timeout=60, check=False).returncode


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A small model, with which a server is soon ready."""
    base = tmp_path_factory.mktemp("translator")
    typed_model.save(base / "1")
    return [ModelSettings("translator", base)]


def test_probes_and_health_checks_pass_with_a_token_and_tls(models, tmp_path):
    with encrypted(tmp_path, models) as server:
        for probe in PROBES.values():
            assert probed(server, probe["path"], probe["scheme"]) == 200
        assert probed(server, "/v1/models/translator/metadata", "HTTPS") == 401  # where TensorFlow Serving is probed
        assert healthy(server) == 0
        credentials = grpc.ssl_channel_credentials(ssl.get_server_certificate(("127.0.0.1", server.rest_port)).encode())
        name = [("grpc.ssl_target_name_override", "translator.example")]
        with grpc.secure_channel(f"127.0.0.1:{server.grpc_port}", credentials, name) as channel:
            found = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=30)
        assert found.status == health_pb2.HealthCheckResponse.SERVING


def test_a_server_whose_model_is_not_loaded_lives_and_is_not_ready(tmp_path):
    with encrypted(tmp_path, [ModelSettings("translator", tmp_path / "missing")], until_ready=False) as server:
        told = {name: probed(server, probe["path"], probe["scheme"]) for name, probe in PROBES.items()}
        assert told == {"startup": 503, "readiness": 503, "liveness": 200}
        assert healthy(server) == 1


def test_the_health_check_without_tls_and_without_a_server(models):
    with running(ServerSettings(models, rest_port=0, grpc_port=0)) as server:
        assert healthy(server.server) == 0
    assert healthy(server.server) == 1


def test_the_health_check_of_the_image_ends_in_time():
    (seconds,) = re.findall(r"^SECONDS = (\d+)", (FOLDER / "healthcheck.py").read_text(), re.MULTILINE)
    (timeout,) = re.findall(r"^HEALTHCHECK .*--timeout=(\d+)s", DOCKERFILE, re.MULTILINE)
    assert int(seconds) < int(timeout)
    (script,) = re.findall(r'^HEALTHCHECK .*CMD \["python", "(\S+)"\]$', DOCKERFILE, re.MULTILINE)
    assert f"COPY export/healthcheck.py {script}\n" in DOCKERFILE


def test_the_build_sends_what_the_image_takes_and_nothing_else():
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    assert {line[1:] for line in lines if line.startswith("!")} == {*COPIED}


def test_the_image_installs_from_what_is_copied_alone(tmp_path):
    """This builds a wheel, which takes some seconds, in a folder that holds what the Dockerfile copies."""
    (constraints,) = re.findall(r"--constraint (\S+)", DOCKERFILE)
    for names, place in re.findall(r"^COPY (.+) (\S+)$", DOCKERFILE, re.MULTILINE):
        for name in names.split():
            target = tmp_path / place[1:] / (name if place.endswith("/") else "")
            target.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, target)
    assert "tensorflow==" in (tmp_path / constraints[1:]).read_text()
    built = tmp_path / "wheels"
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", built]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, tmp_path / "source"], check=True, timeout=300)
    (wheel,) = built.iterdir()
    names = zipfile.ZipFile(wheel).namelist()
    assert {"kformer/serving/page/index.html", "kformer/serving/server.py", "kformer/cli/serve.py"} <= {*names}
