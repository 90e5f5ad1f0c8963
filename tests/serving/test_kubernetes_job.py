"""The manifest of a job on Kubernetes: its command translates by a server with a token and TLS."""

import pytest
import trustme
from manifests import documents
from servers import running
from typer.testing import CliRunner

from kformer.cli.main import app
from kformer.serving.model_settings import ModelSettings
from kformer.serving.settings import ServerSettings

pytestmark = pytest.mark.tensorflow_only

CLAIM, JOB = documents("kubernetes-job.yml")
POD = JOB["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]


def test_its_volumes_are_there_and_its_servers_are_those_of_the_deployment():
    volumes = {volume["name"]: volume for volume in POD["volumes"]}
    assert {mount["name"] for mount in CONTAINER["volumeMounts"]} == {*volumes}
    assert volumes["corpus"]["persistentVolumeClaim"]["claimName"] == CLAIM["metadata"]["name"]
    deployment, service, _ = documents("kubernetes-kformer.yml")
    served = deployment["spec"]["template"]["spec"]
    secrets = {volume["secret"]["secretName"] for volume in served["volumes"] if "secret" in volume}
    assert volumes["tls"]["secret"]["secretName"] in secrets
    assert CONTAINER["env"][0] == served["containers"][0]["env"][0]
    assert CONTAINER["image"] == served["containers"][0]["image"]
    (server,) = [argument for argument in CONTAINER["args"] if argument.startswith("--server=")]
    rest = {port["name"]: port["port"] for port in service["spec"]["ports"]}["rest"]
    url = f"https://{service['metadata']['name']}:{rest}/v1/models/translator"
    assert server.removeprefix("--server=").split(",") == [url] * deployment["spec"]["replicas"]


def test_its_command_translates(plain_export_folder, tmp_path, monkeypatch):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(tmp_path / "tls.pem")
    (tmp_path / "corpus.txt").write_text("one two\nsix\n" * 100)
    environment = {variable["name"]: variable.get("value", "open-sesame") for variable in CONTAINER["env"]}
    for name, value in environment.items():
        monkeypatch.setenv(name, value.replace("/tls", str(tmp_path)))
    models = [ModelSettings("translator", plain_export_folder)]
    keys = {"certificate": tmp_path / "tls.pem", "key": tmp_path / "tls.pem"}
    with running(ServerSettings(models, rest_port=0, grpc_port=0, token="open-sesame", **keys)) as server:
        places = {
            **{"//translator:8501": f"//localhost:{server.server.rest_port}", "/corpus/": f"{tmp_path}/"},
            ".txt.gz": ".txt",
        }
        arguments = CONTAINER["args"]
        for name, place in places.items():
            arguments = [argument.replace(name, place) for argument in arguments]
        result = CliRunner().invoke(app, [*CONTAINER["command"][1:], *arguments])
    assert result.exit_code == 0, (result.output, result.exception)
    assert (tmp_path / "translated" / "part-000000000.txt").read_text() == "dos uno\nseis\n" * 100
