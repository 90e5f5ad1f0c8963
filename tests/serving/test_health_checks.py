"""Health checks and routes of deployments against `kformer serve`, which has TensorFlow Serving's paths."""

import os
import pathlib
import re
import stat
import subprocess

import pytest
import yaml

pytestmark = pytest.mark.tensorflow_only

FOLDER = pathlib.Path(__file__).parents[2] / "export"


def health(port: int, model: str) -> int:
    """The exit status of the compose file's health check, for another port and model."""
    compose = yaml.safe_load((FOLDER / "docker-compose.yml").read_text(encoding="utf-8"))
    kind, *command = compose["services"]["translator"]["healthcheck"]["test"]
    assert kind == "CMD"
    command[-1] = command[-1].replace("/8501", f"/{port}").replace("/translator/", f"/{model}/")
    return subprocess.run(command, stderr=subprocess.DEVNULL, timeout=60, check=False).returncode


def probes() -> dict[str, str]:
    """The paths that Kubernetes asks for."""
    deployment, *_ = yaml.safe_load_all((FOLDER / "kubernetes.yml").read_text(encoding="utf-8"))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return {probe: container[f"{probe}Probe"]["httpGet"]["path"] for probe in ("startup", "readiness", "liveness")}


def test_the_health_check_of_the_compose_file_tells_whether_the_model_answers(served):
    assert health(served.server.rest_port, "numbers") == 0
    assert health(served.server.rest_port, "another") != 0  # the server answers 404


def test_the_health_check_of_the_compose_file_fails_without_a_server():
    assert health(1, "numbers") != 0  # nothing listens there


def test_the_probes_of_kubernetes_tell_whether_the_model_answers(served):
    found = probes()
    assert found["startup"] == found["readiness"] == "/v1/models/translator/metadata"
    assert found["liveness"] == "/v1/models/translator"
    for path in found.values():
        assert served.ask("GET", path.replace("translator", "numbers")).status == 200
        assert served.ask("GET", path).status == 404  # this server has no model of that name


def test_a_server_under_another_user_can_read_an_export(numbers_export):
    """The containers run as user 1000, which need not be who made the export."""
    umask = os.umask(0o022)
    os.umask(umask)
    for path in (numbers_export, *numbers_export.rglob("*")):
        wanted = stat.S_IROTH | (stat.S_IXOTH if path.is_dir() else 0)
        assert path.stat().st_mode & wanted == wanted & ~umask, path


def test_the_routes_of_the_recipe_for_vertex_ai_answer(served):
    recipe = (FOLDER.parent / "docs" / "serving.md").read_text(encoding="utf-8")
    (health,) = re.findall(r"--container-health-route (\S+)", recipe)
    (predict,) = re.findall(r"--container-predict-route (\S+)", recipe)
    assert served.ask("GET", health).status == 200
    body = {"instances": ["one"], "parameters": {"a": 1}}
    answer = served.ask("POST", predict.replace("translator", "numbers"), body)
    assert len(answer.body["predictions"]) == 1
