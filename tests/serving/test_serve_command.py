"""`kformer serve` as a process of its own."""

import concurrent.futures
import gc
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request

import grpc
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc
from typer.testing import CliRunner

from kformer.cli.main import app
from kformer.serving.settings import ServerSettings

pytestmark = pytest.mark.tensorflow_only


@pytest.fixture(autouse=True)
def _unfrozen():
    """The command, which is a process of its own elsewhere, changes what Python looks through."""
    yield
    gc.unfreeze()


class Process:
    """The command, until the end of the `with` block."""

    def __init__(self, *arguments, environment=None):
        command = [
            sys.executable,
            "-m",
            "kformer",
            "serve",
            *map(str, arguments),
            "--rest-port",
            "0",
            "--grpc-port",
            "0",
        ]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(command, env={**os.environ, **(environment or {})}, text=True, **pipes)
        self.line = self.process.stdout.readline()
        self.rest, self.grpc = re.findall(r"://(127\.0\.0\.1:\d+)", self.line)[-2:]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.communicate()

    def wait_until_ready(self):
        for line in self.process.stderr:
            if json.loads(line).get("state") == "AVAILABLE":
                return

    def end(self, number=signal.SIGTERM):
        """Exit status after a signal, and the events of the log."""
        self.process.send_signal(number)
        _, log = self.process.communicate(timeout=30)
        return self.process.returncode, [json.loads(line) for line in log.splitlines()]


def translate(url, *texts, **options):
    """The first translation."""
    request = urllib.request.Request(
        f"{url}/v1/models/numbers:predict", json.dumps({"instances": texts}).encode(), options.pop("headers", {})
    )
    try:
        with urllib.request.urlopen(request, timeout=30, **options) as answer:
            return json.load(answer)["predictions"][0]["translation"]
    except urllib.error.HTTPError as error:
        error.close()
        raise


def translate_when_ready(url, process):
    while process.poll() is None:
        try:
            return translate(url, "one two")
        except urllib.error.URLError:  # nobody listens yet, or the model is being loaded
            time.sleep(0.1)


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.fixture
def heeds_sighup():
    """Processes that start now heed SIGHUP, also where the tests run under `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGTERM, id="SIGTERM"),
        pytest.param(signal.SIGINT, id="Ctrl-C", marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, id="a closed terminal", marks=pytest.mark.slow),
    ],
)
def test_it_serves_until_a_signal_and_ends_with_status_0(plain_export_folder, heeds_sighup, number):
    """Every line of its log is JSON, also those of libraries."""
    with Process(plain_export_folder) as server:
        assert f"REST http://{server.rest}/v1/models/numbers, gRPC grpc://{server.grpc}" in server.line
        server.wait_until_ready()
        assert translate(f"http://{server.rest}", "one two") == "dos uno"
        host, port = server.rest.split(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(b"nonsense\r\n\r\n")
            assert connection.recv(12) == b"HTTP/1.1 400"
        status, log = server.end(number)
    assert status == 0
    events = [line["event"] for line in log]
    assert events[0] == "Invalid HTTP request received."
    assert "draining" in events
    assert log[-1]["event"] == "stopped"


def test_a_full_disk_under_its_output_stops_nothing(plain_export_folder):
    rest, other = free_port(), free_port()
    ports = ("--rest-port", rest, "--grpc-port", other, "--log-level", "debug")
    command = [sys.executable, "-m", "kformer", "serve", *map(str, (plain_export_folder, *ports))]
    with open("/dev/full", "w") as full, subprocess.Popen(command, stdout=full, stderr=full) as process:
        try:
            answer = translate_when_ready(f"http://127.0.0.1:{rest}", process)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
    assert answer == "dos uno"


@pytest.mark.slow
def test_sigterm_does_not_wait_for_what_nobody_waits_for(plain_export_folder):
    long = "\n".join(["one two"] * 8000)  # 64 kB; 32 of them take minutes
    options = ("--timeout", "2", "--max-request-bytes", "4194304", "--max-text-bytes", "65536")
    with Process(plain_export_folder, *options) as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
        server.wait_until_ready()
        asked = pool.submit(translate, f"http://{server.rest}", *[long] * 32)
        time.sleep(1)
        began = time.monotonic()
        status, log = server.end()
        assert time.monotonic() - began < 8
        with pytest.raises(urllib.error.HTTPError, match="504"):
            asked.result()
    assert status == 0
    assert log[-1]["busy"]


def test_with_a_certificate_and_a_token_both_protocols_are_encrypted(plain_export_folder, tmp_path):
    import trustme

    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "certificate.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    tls = ("--tls-certificate", tmp_path / "certificate.pem", "--tls-key", tmp_path / "key.pem")
    with Process(plain_export_folder, *tls, environment={"KFORMER_TOKEN": "sesame"}) as server:
        assert "https://" in server.line
        assert "grpcs://" in server.line
        server.wait_until_ready()
        context = ssl.create_default_context()
        authority.configure_trust(context)
        headers = {"Authorization": "Bearer sesame"}
        assert translate(f"https://{server.rest}", "one two", context=context, headers=headers) == "dos uno"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            translate(f"https://{server.rest}", "one two", context=context)
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "numbers"
        request.inputs["text"].CopyFrom(tf.make_tensor_proto(["one two"]))
        credentials = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
        with grpc.secure_channel(server.grpc, credentials) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            response = stub.Predict(request, timeout=30, metadata=[("authorization", "Bearer sesame")])
        assert tf.make_ndarray(response.outputs["translation"]).tolist() == [b"dos uno"]


def refused(*arguments):
    result = CliRunner().invoke(app, ["serve", *map(str, arguments)])
    assert result.exit_code != 0
    return str(result.exception)


def test_a_key_of_another_certificate_is_told(numbers_export, tmp_path):
    import trustme

    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").cert_chain_pems[0].write_to_path(tmp_path / "certificate.pem")
    authority.issue_cert("127.0.0.1").private_key_pem.write_to_path(tmp_path / "key.pem")
    told = refused(numbers_export, "--tls-certificate", tmp_path / "certificate.pem", "--tls-key", tmp_path / "key.pem")
    assert "are not a certificate and its private key" in told


@pytest.mark.parametrize(("token", "told"), [(" ", "is empty"), ("", "is empty"), ("a\nb", "must hold one token")])
def test_a_token_that_nobody_can_send_is_refused(numbers_export, monkeypatch, token, told):
    monkeypatch.setenv("KFORMER_TOKEN", token)
    assert told in refused(numbers_export)


def test_what_cannot_be_served_is_refused_before_anything_starts(numbers_export, tmp_path):
    assert "Name what to serve" in refused()
    assert "is no folder" in refused(tmp_path / "nothing")
    assert "Leave out --name" in refused("--model-config-file", tmp_path / "models.config", "--name", "m")
    assert f"is a version. Name the folder above it, {numbers_export}" in refused(numbers_export / "1")
    assert "holds no version of an export. Make one: kformer export" in refused(tmp_path)
    assert "--log-level must be one of debug" in refused(numbers_export, "--log-level", "loud")
    assert "needs both --tls-certificate and --tls-key" in refused(numbers_export, "--tls-key", "key.pem")
    assert "names such as translate.example.org" in refused(numbers_export, "--allowed-hosts", "a.example:80")
    assert "origins such as https://example.org" in refused(numbers_export, "--enable-cors", "https://a.example/page")
    (tmp_path / "token").write_bytes("secret".encode("utf-16"))
    told = refused(numbers_export, "--token-file", tmp_path / "token")
    assert "one token: printable ASCII characters without blanks, in one line. Received: '\\ufffd' within it" in told
    assert "secret" not in told
    (tmp_path / "token").write_text("\n")
    assert "token is empty" in refused(numbers_export, "--token-file", tmp_path / "token")


def test_changing_the_models_needs_a_token_of_its_own(numbers_export, tmp_path, monkeypatch):
    monkeypatch.delenv("KFORMER_RELOAD_TOKEN", raising=False)
    (tmp_path / "token").write_text("sesame")
    assert "--allow-reload needs a token of its own" in refused(numbers_export, "--allow-reload")
    same = ("--token-file", tmp_path / "token", "--reload-token-file", tmp_path / "token")
    assert "must be another one" in refused(numbers_export, "--allow-reload", *same)
    assert "are for --allow-reload" in refused(numbers_export, "--reload-base", tmp_path)
    assert "Name that file" in refused(numbers_export, "--model-config-poll-seconds", "1")


def test_a_port_that_is_taken_is_told(numbers_export, served):
    port = str(served.server.rest_port)
    assert f"cannot listen on 127.0.0.1, port {port}" in refused(
        numbers_export, "--rest-port", port, "--grpc-port", "0"
    )
    port = str(served.server.grpc_port)
    assert f"cannot listen on 127.0.0.1, port {port}: Address already in use. Choose another port" in refused(
        numbers_export, "--grpc-port", port, "--rest-port", "0"
    )
    assert "REST and gRPC need a port each. Received for both: 8500." in refused(numbers_export, "--rest-port", "8500")
    assert "Name an address of this machine by --host" in refused(numbers_export, "--host", "192.0.2.1")


def test_a_wrong_configuration_file_is_told(numbers_export, tmp_path):
    (tmp_path / "batching.config").write_text("max_batch { value: 3 }")
    assert 'no field named "max_batch"' in refused(
        numbers_export, "--batching-parameters-file", tmp_path / "batching.config"
    )


def test_a_configuration_that_is_no_file_is_not_passed_over(numbers_export, tmp_path):
    base = tmp_path / "numbers"
    base.mkdir()
    (base / "1").symlink_to(numbers_export / "1")
    (base / "batching.config").symlink_to("nowhere")
    assert "batching.config is no file. Remove it, or name another one by its option." in refused(base)


@pytest.fixture
def made(monkeypatch):
    """The settings of the servers that the command would have started."""
    settings = []

    class Stub:
        def __init__(self, given):
            settings.append(given)

        def run(self, on_start):
            pass

    monkeypatch.setattr("kformer.serving.server.Server", Stub)
    return settings


def test_options_arrive_at_the_server(numbers_export, tmp_path, monkeypatch, made):
    """Every option, through to the settings."""
    (tmp_path / "monitoring").write_text('prometheus_config { enable: true path: "/m" }')
    (tmp_path / "batching").write_text("max_batch_size { value: 7 }")
    options = {
        "--name": "other",
        "--batching-parameters-file": tmp_path / "batching",
        "--monitoring-config-file": tmp_path / "monitoring",
        "--host": "0.0.0.0",
        "--rest-port": 1,
        "--grpc-port": 2,
        "--max-request-bytes": 3,
        "--max-text-bytes": 4,
        "--max-texts": 5,
        "--timeout": 6.5,
        "--load-timeout": 7.5,
        "--max-connections": 8,
        "--max-queue-seconds": 9,
        "--allowed-hosts": "a.example, b.example",
        "--enable-cors": "https://a.example,http://localhost:3000",
    }
    written = [str(part) for option in options.items() for part in option]
    assert CliRunner().invoke(app, ["serve", str(numbers_export), *written]).exit_code == 0
    (settings,) = made
    assert (settings.models[0].name, settings.models[0].base_path) == ("other", numbers_export)
    assert (settings.host, settings.rest_port, settings.grpc_port) == ("0.0.0.0", 1, 2)
    limits = settings.limits
    assert (limits.request_bytes, limits.text_bytes, limits.texts, limits.seconds) == (3, 4, 5, 6.5)
    assert (settings.connections, settings.batching.max_queue_seconds) == (8, 9)
    assert settings.load_seconds == 7.5
    assert settings.allowed_hosts == ("a.example", "b.example")
    assert settings.origins == ("https://a.example", "http://localhost:3000")
    assert (settings.batching.max_batch_size, settings.metrics_path) == (7, "/m")
    config = f'model_config_list {{ config {{ name: "a" base_path: "{numbers_export}" }} }}'
    (tmp_path / "models").write_text(config)
    arguments = ["serve", "--model-config-file", str(tmp_path / "models"), "--log-level", "error"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert made[1].models[0].name == "a"
    assert made[1].reload is None
    assert (made[1].trust, made[1].model_config_poll_seconds) == (False, 0)
    monkeypatch.setenv("KFORMER_RELOAD_TOKEN", "sesame")
    more = ["--allow-reload", "--trust", "--model-config-poll-seconds", "7"]
    assert CliRunner().invoke(app, [*arguments, *more]).exit_code == 0
    assert (made[2].reload.token, list(made[2].reload.bases)) == ("sesame", [numbers_export])
    assert (made[2].trust, made[2].model_config_file.path) == (True, tmp_path / "models")
    assert made[2].model_config_poll_seconds == 7
    assert made[1].load_seconds == 600
    assert made[1].limits.texts == made[1].batching.max_batch_size
    anybody = ["--allowed-hosts", "*", "--enable-cors", "*"]
    assert CliRunner().invoke(app, [*arguments, *anybody]).exit_code == 0
    assert (made[3].allowed_hosts, made[3].origins) == (("*",), ("*",))


def test_without_options_the_server_has_the_limits_of_the_guide(numbers_export, monkeypatch, made):
    monkeypatch.delenv("KFORMER_TOKEN", raising=False)
    assert CliRunner().invoke(app, ["serve", str(numbers_export)]).exit_code == 0
    (settings,) = made
    limits = settings.limits
    assert (limits.request_bytes, limits.text_bytes, limits.texts, limits.seconds) == (65536, 16384, 32, 30)
    assert (settings.host, settings.rest_port, settings.grpc_port) == ("127.0.0.1", 8501, 8500)
    assert (settings.connections, settings.poll_seconds, settings.load_seconds) == (1000, 1, 600)
    assert settings.batching.max_queue_seconds == 10
    assert (settings.token, settings.reload, settings.trust, settings.certificate) == (None, None, False, None)
    # Whoever makes the settings in Python gets the same.
    assert settings == ServerSettings(settings.models, batching=settings.batching)


def test_addresses_are_told_as_a_browser_takes_them(numbers_plain_export, monkeypatch):
    class Stub:
        rest_port, grpc_port = 7, 9

        def __init__(self, settings):
            self.settings = settings

        def run(self, on_start):
            on_start(self)

    monkeypatch.setattr("kformer.serving.server.Server", Stub)
    told = CliRunner().invoke(app, ["serve", str(numbers_plain_export), "--host", "::1", "--name", "a b"]).output
    assert told == (
        "Serving 1 model (a b): page http://[::1]:7/, REST http://[::1]:7/v1/models/a%20b, gRPC grpc://[::1]:9\n"
    )


def test_what_the_imports_made_is_not_looked_through_again_while_it_answers(numbers_export, monkeypatch):
    frozen = []

    class Stub:
        def __init__(self, settings):
            pass

        def run(self, on_start):
            frozen.append(gc.get_freeze_count())

    monkeypatch.setattr("kformer.serving.server.Server", Stub)
    assert CliRunner().invoke(app, ["serve", str(numbers_export)]).exit_code == 0
    assert frozen[0] > 10_000
