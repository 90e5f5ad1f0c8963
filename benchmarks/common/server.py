"""`kformer serve` as a process, seen from outside: its answers, its metrics, its memory and its open files."""

import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from typing import Any, NamedTuple

SECONDS_TO_START = 300.0


class Usage(NamedTuple):
    """The memory and open files of a process."""

    megabytes: float  # resident
    descriptors: int  # open files and connections


class Served:
    """The command with these options. It runs until `close`.

    Args:
        folder: The base folder of an export.
        name: The model's name.
        options: Of the command.
        output: Where standard output and standard error go.
    """

    def __init__(self, folder: pathlib.Path, name: str, options: list[str], output: pathlib.Path) -> None:
        self.folder = folder
        self.name = name
        self.output = output
        self.rest_port, self.grpc_port = free_ports()
        ports = ["--rest-port", str(self.rest_port), "--grpc-port", str(self.grpc_port)]
        self.command = [sys.executable, "-m", "kformer", "serve", str(folder), "--name", name, *ports, *options]
        self.process: subprocess.Popen[bytes]
        self.in_use: Usage  # after ordinary requests; who compares something with it sets it

    def start(self) -> "Served":
        """Starts the process, also once more after its end, and returns when it answers."""
        with open(self.output, "ab") as output:
            self.process = subprocess.Popen(self.command, stdout=output, stderr=output)
        began = wait_until(lambda: self.process.poll() is not None or self.is_ready(), SECONDS_TO_START)
        if self.process.poll() is not None:
            raise RuntimeError(f"{' '.join(self.command)} ended with status {self.process.poll()}: see {self.output}.")
        if not began:
            raise RuntimeError(f"{' '.join(self.command)} is not ready after {SECONDS_TO_START:g} s.")
        return self

    def end(self, number: int = signal.SIGTERM, seconds: float = 120.0) -> int:
        """Sends a signal and returns the exit status."""
        self.process.send_signal(number)
        return self.process.wait(seconds)

    def close(self) -> None:
        """Ends the process, in whatever state it is."""
        self.process.kill()
        self.process.wait()

    def is_ready(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.get("/readyz")[0] == 200
        return False

    def get(self, path: str) -> tuple[int, bytes]:
        """HTTP's status and the body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.rest_port, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def versions(self) -> dict[int, tuple[str, str]]:
        """State and error of each version."""
        entries = json.loads(self.get(f"/v1/models/{self.name}")[1])["model_version_status"]
        return {int(entry["version"]): (entry["state"], entry["status"]["error_message"]) for entry in entries}

    def computed(self) -> float:
        """How many texts have been computed since the start."""
        lines = self.get("/monitoring/prometheus/metrics")[1].decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("kformer_batch_texts_sum"))

    def usage(self) -> Usage:
        """Memory and open files of the process now."""
        entries = pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        (kilobytes,) = (int(entry.split()[1]) for entry in entries if entry.startswith("VmRSS"))
        return Usage(kilobytes / 1024, len(os.listdir(f"/proc/{self.process.pid}/fd")))

    def connect(self, to_grpc: bool = False) -> socket.socket:
        """A connection, for bytes that no client library would send."""
        port = self.grpc_port if to_grpc else self.rest_port
        return socket.create_connection(("127.0.0.1", port), timeout=60)

    def request(self, texts: list[str], signature: str = "serving_default") -> bytes:
        """The bytes of a predict request."""
        body = json.dumps({"signature_name": signature, "instances": texts}).encode()
        head = f"POST /v1/models/{self.name}:predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body


def free_ports() -> tuple[int, int]:
    """Two ports that nobody uses."""
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


def wait_until(condition: Any, seconds: float) -> bool:
    """Whether a condition came true within so many seconds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
