"""Bad input against `kformer serve`: the server must not crash, hang, leak, or change the answer of another client.

    pip install -e '.[benchmarks,serving]' hypothesis atheris
    python -m benchmarks.serving.fuzz                       # 100,000 requests, and a million inputs to the decoders
    python -m benchmarks.serving.fuzz --requests 2000 --inputs 10000
    python -m benchmarks.serving.fuzz --minutes 60          # so many requests again and again, until the time is over

Hypothesis makes the requests: texts of all kinds (not UTF-8, lone surrogates, control characters, right to left,
combining and very long ones), values of wrong types and shapes, bodies that are cut or changed, deep JSON, huge
numbers, serialized messages of gRPC with wrong shapes or of random bytes. Four clients send them over connections that
stay open. Others are closed after one use: over REST bodies that come slowly, in chunks, with trailers, some without an
end, from clients that close their half of the connection; over gRPC calls that are half sent, cancelled, or whose
answers are not taken. Meanwhile new versions of the model replace the old ones. Every 50th request is a control
question, whose answer is known. Atheris (libFuzzer) tries the decoders of both protocols on bytes, guided by the
branches that it reaches. The exit status is 1 if something happened that must not happen.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import http.client
import json
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import grpc
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from tensorflow.core.framework import types_pb2
from tensorflow_serving.apis import predict_pb2

from benchmarks.common import http2
from benchmarks.common.server import Served, wait_until
from benchmarks.serving.fault_cases.fault import GROWTH

CLIENTS = 4
CONTROL_EVERY = 50
SECONDS_OF_A_VERSION = 30.0
QUESTIONS = {"h e l l o": "HH EH L OW", "w o r l d": "W ER L D"}
EXPECTED = {200, 400, 404, 405, 408, 413, 429, 501, 504}
PREDICT = "/tensorflow.serving.PredictionService/Predict"
LONG = st.sampled_from(["a" * 1_000_000, " " * 1_000_000, "a " * 30_000, "\n" * 5000, "é" * 40_000, "猫。" * 3000])
TEXT = st.one_of(
    st.text(max_size=60),
    st.text(st.characters(categories=["Cs", "Cc", "Mn", "Cf", "So"]), max_size=60),
    st.text(st.sampled_from("אבגשלום ابتث 猫犬👩‍👧\u202e\u0301\0"), max_size=60),
)
LEAF = st.one_of(
    TEXT,
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.just({"b64": "!"}),
    st.just({"b64": "/w=="}),
)
VALUE = st.recursive(LEAF, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=3))
BODY = st.one_of(
    st.fixed_dictionaries({"instances": st.lists(TEXT, max_size=8)}),
    st.fixed_dictionaries({"instances": st.lists(LEAF, max_size=8)}),
    st.fixed_dictionaries({"inputs": VALUE}),
    st.fixed_dictionaries({"instances": VALUE, "signature_name": st.sampled_from(["", "n_best", "score", "x"])}),
    st.dictionaries(st.sampled_from(["instances", "inputs", "signature_name", "x"]), VALUE, max_size=3),
)


@st.composite
def bodies(draw: Any) -> bytes:
    """A predict request's body, mostly JSON."""
    kind = draw(st.integers(0, 99))
    if kind == 0:
        return json.dumps({"instances": [draw(LONG)]}).encode()
    if kind == 1:
        return draw(
            st.sampled_from([b"[" * 100_000, b'{"instances":' + b"[" * 5000, b'{"instances": [' + b"9" * 9999 + b"]}"])
        )
    if kind < 20:
        return draw(st.binary(max_size=200))
    body = json.dumps(draw(BODY), ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    if kind < 50:  # a byte is changed, or the end is missing
        place = draw(st.integers(0, len(body)))
        return draw(st.sampled_from([body[:place], body[:place] + b"\xff" + body[place + 1 :]]))
    return body


@st.composite
def messages(draw: Any) -> bytes:
    """A serialized `PredictRequest`, or bytes that are not one."""
    if draw(st.integers(0, 4)) == 0:
        return draw(st.binary(max_size=200))
    request = predict_pb2.PredictRequest()
    request.model_spec.name = draw(st.sampled_from(["cmudict", "cmudict", "x"]))
    request.model_spec.signature_name = draw(st.sampled_from(["", "n_best", "score", "x"]))
    if draw(st.integers(0, 3)) == 0:  # a valid request with random texts
        texts = draw(st.lists(st.binary(max_size=40), max_size=4))
        for name in ("text", "translation")[: 2 if request.model_spec.signature_name == "score" else 1]:
            tensor = request.inputs[name]
            tensor.dtype = types_pb2.DT_STRING
            tensor.tensor_shape.dim.add(size=len(texts))
            tensor.string_val.extend(texts)
        return request.SerializeToString()
    for name in draw(st.sets(st.sampled_from(["text", "translation", "x"]), max_size=2)):
        tensor = request.inputs[name]
        tensor.dtype = draw(st.sampled_from([types_pb2.DT_STRING] * 3 + [*types_pb2.DataType.values()]))
        for size in draw(st.lists(st.one_of(st.integers(0, 3), st.integers(-(2**62), 2**62)), max_size=3)):
            tensor.tensor_shape.dim.add(size=size)
        tensor.string_val.extend(draw(st.lists(st.binary(max_size=20), max_size=3)))
        tensor.tensor_content = draw(st.binary(max_size=20))
    return request.SerializeToString()


@st.composite
def connections(draw: Any) -> bytes:
    """All that a client of gRPC sends over a connection, before it goes away."""
    sent = http2.PREFACE + draw(st.sampled_from([http2.SETTINGS, http2.NO_WINDOW]))
    for call in range(draw(st.integers(1, 80))):
        number = 2 * call + 1
        sent += draw(
            st.sampled_from(
                [
                    http2.call(number),
                    http2.call(number) + http2.reset(number),
                    http2.call(number, "/grpc.health.v1.Health/Watch"),
                    http2.status_call("cmudict", number),
                    http2.status_call("cmudict", number)[:-3],
                    http2.reset(number),
                ]
            )
        )
    return sent[: draw(st.integers(1, len(sent)))] if draw(st.booleans()) else sent


class Talk(NamedTuple):
    """What a client of REST sends over a connection of its own.

    Attributes:
        pieces: The bytes, with a short pause after each.
        half_closed: Whether it then closes its half of the connection.
        is_whole: Whether it is a question whose answer must come.
    """

    pieces: list[bytes]
    half_closed: bool
    is_whole: bool


@st.composite
def talks(draw: Any) -> Talk:
    """A request in chunks, perhaps slow, cut, with trailers, or half closed."""
    body = json.dumps({"instances": [*QUESTIONS]}).encode()
    size = draw(st.integers(1, len(body)))
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:size], body[size:]) if part) + b"0\r\n"
    few = draw(st.booleans())
    trailers = b"X-Trailer: value\r\n" * draw(st.integers(0, 3) if few else st.integers(100, 5000))
    ends = draw(st.booleans())
    head = b"POST /v1/models/cmudict:predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    sent = head + chunks + trailers + (b"\r\n" if ends else b"")
    if draw(st.integers(0, 3)) == 0:
        return Talk([sent[: draw(st.integers(1, len(sent) - 1))]], draw(st.booleans()), is_whole=False)
    pieces = draw(st.integers(1, 20))
    step = -(-len(sent) // pieces)
    return Talk([sent[i : i + step] for i in range(0, len(sent), step)], draw(st.booleans()), few and ends)


class Client:
    """Sends what is generated, and asks control questions in between."""

    def __init__(self, server: Served) -> None:
        self._server = server
        self._connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=120)
        self._channel = grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}")
        self._predict = self._channel.unary_unary(PREDICT)
        self.codes: collections.Counter[str] = collections.Counter()
        self.wrong: list[str] = []
        self.longest = 0.0  # seconds that a control question took
        self._sent = 0

    def rest(self, body: bytes) -> None:
        """Sends one body."""
        status, answer = self._post(body)
        self.codes[f"REST {status}"] += 1
        if status not in EXPECTED:
            self.wrong.append(f"{status} {answer[:200]!r} for {body[:200]!r}")
        self._control()

    def grpc(self, message: bytes) -> None:
        """Sends one message."""
        try:
            self._predict(message, timeout=120)
            code = "OK"
        except grpc.RpcError as error:
            code = error.code().name
            if code in ("UNAVAILABLE", "CANCELLED") or (code == "INTERNAL" and "failed. Its log" in error.details()):
                self.wrong.append(f"{code} {error.details()[:200]!r} for {message[:200]!r}")
        self.codes[f"gRPC {code}"] += 1
        self._control()

    def frames(self, sent: bytes) -> None:
        """Sends the bytes of one connection."""
        with self._server.connect(to_grpc=True) as connection, contextlib.suppress(ConnectionError):
            connection.sendall(sent)
            connection.settimeout(0.05)
            with contextlib.suppress(TimeoutError):
                connection.recv(65536)
        self.codes["gRPC connections"] += 1
        self._control()

    def talk(self, talk: Talk) -> None:
        """Sends the bytes of one connection over REST."""
        answer = b""
        with self._server.connect() as connection, contextlib.suppress(OSError):  # the server may close it
            for piece in talk.pieces:
                connection.sendall(piece)
                time.sleep(0.001)
            if talk.half_closed:
                connection.shutdown(socket.SHUT_WR)
            connection.settimeout(60 if talk.is_whole else 0.05)
            while b"HTTP/1.1 200" not in answer and (received := connection.recv(65536)):
                answer += received  # a client that has closed its half is asked whether it is there: 100 Continue
        self.codes["REST connections"] += 1
        if talk.is_whole and b"HTTP/1.1 200" not in answer:
            self.wrong.append(f"{answer[:200]!r} for {str(talk)[:500]}")
        self._control()

    def _control(self) -> None:
        self._sent += 1
        if self._sent % CONTROL_EVERY:
            return
        began = time.monotonic()
        question = json.dumps({"instances": [*QUESTIONS]}).encode()
        status, answer = self._post(question)
        if not answer:  # the server closes connections that have been idle; clients then ask again
            status, answer = self._post(question)
        self.longest = max(self.longest, time.monotonic() - began)
        self.codes["control"] += 1
        found = [row["translation"] for row in json.loads(answer)["predictions"]] if status == 200 else None
        if found != [*QUESTIONS.values()]:
            self.wrong.append(f"a neighbour's answer was {status} {answer[:200]!r}")

    def _post(self, body: bytes) -> tuple[int, bytes]:
        try:
            self._connection.request("POST", "/v1/models/cmudict:predict", body)
            answer = self._connection.getresponse()
            return answer.status, answer.read()
        except (BrokenPipeError, ConnectionResetError):  # a body that is too large is answered before it has arrived
            self._connection.close()
            return 413, b""


def run_client(server: Served, number: int, requests: int, share: float) -> Client:
    """A client's requests: a share over REST, the others over gRPC, and a tenth as many connections with one use."""
    client = Client(server)
    for send, strategy, examples in (
        (client.talk, talks(), round(requests * share / 10)),
        (client.rest, bodies(), round(requests * share)),
        (client.grpc, messages(), round(requests * (1 - share))),
        (client.frames, connections(), round(requests * (1 - share) / 10)),
    ):
        _send_all(send, strategy, examples, number)
    return client


def _send_all(send: Callable[[Any], None], strategy: Any, examples: int, number: int) -> None:
    @seed(number)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
    )
    @given(strategy)
    def all_of_them(data: Any) -> None:
        send(data)

    all_of_them()


def fuzz_decoders(saved_model: pathlib.Path, inputs: int) -> None:
    """Tries the decoders on bytes; in a separate process, because libFuzzer ends it."""
    import atheris

    with atheris.instrument_imports(include=["kformer.serving"]):
        from kformer.serving import json_tensors, protos, signatures
        from kformer.serving.errors import ServingError
    from google.protobuf.message import DecodeError

    from kformer.export.operations import read

    definitions = read(saved_model).meta_graphs[0].signature_def
    known = [signatures.Signature(name, definitions[name]) for name in ("serving_default", "score")]

    def decode(data: bytes) -> None:
        for signature in known:
            try:
                inputs = json_tensors.read_body(data[1:]).inputs(signature)
                signatures.check_sizes(signature.complete(inputs), 32, 1000)
            except ServingError:
                pass
            try:
                request = predict_pb2.PredictRequest.FromString(data)
                arrays = {name: protos.array_of(name, value) for name, value in request.inputs.items()}
                signatures.check_sizes(signature.complete(arrays), 32, 1000)
            except (ServingError, DecodeError):
                pass

    atheris.Setup([sys.argv[0], f"-atheris_runs={inputs}", f"-runs={inputs}", "-seed=1", "-verbosity=0"], decode)
    atheris.Fuzz()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--inputs", type=int, default=1_000_000, help="to the decoders")
    parser.add_argument("--minutes", type=float, default=0.0, help="how long to send so many requests again and again")
    parser.add_argument("--model", type=pathlib.Path, help="an export of cmudict with the signatures n_best and score")
    parser.add_argument("--decoders", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.decoders:
        fuzz_decoders(arguments.decoders, arguments.inputs)
        return
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder, "cmudict")
        if arguments.model:
            shutil.copytree(arguments.model, model)
        else:
            exported(model)
        command = [sys.executable, "-m", __spec__.name, "--decoders", str(model / "1")]
        command += ["--inputs", str(arguments.inputs)]
        decoders = subprocess.run(command, capture_output=True, text=True, check=False)
        print(f"decoders: {arguments.inputs:,} inputs, exit status {decoders.returncode}", flush=True)
        if decoders.returncode:
            print(decoders.stdout[-2000:], decoders.stderr[-2000:])
        server = Served(model, "cmudict", ["--log-level", "error"], pathlib.Path(folder, "log")).start()
        try:
            with replaced_versions(model) as versions:
                wrong = run(server, arguments.requests, 60 * arguments.minutes)
            print(f"versions: {len(versions)}")
        finally:
            server.close()
            print(pathlib.Path(folder, "log").read_text()[-2000:])
    sys.exit(1 if wrong or decoders.returncode else 0)


def run(server: Served, requests: int, seconds: float) -> bool:
    """Sends all requests, and prints the results; True if something happened that must not happen.

    Args:
        server: The server.
        requests: How many are sent, by all clients together.
        seconds: If they take less time, as many others follow.
    """
    run_client(server, 0, 500, 0.5)  # the memory that a server takes in any case
    before, end, clients = server.usage(), time.monotonic() + seconds, []
    while not clients or time.monotonic() < end:
        numbers = range(len(clients) + 1, len(clients) + CLIENTS + 1)
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            clients += pool.map(lambda number: run_client(server, number, requests // CLIENTS, 0.7), numbers)
    # A version may be loaded just now, beside the one that it replaces.
    wait_until(lambda: server.usage().megabytes < before.megabytes + GROWTH, SECONDS_OF_A_VERSION)
    after = server.usage()
    codes = sum((client.codes for client in clients), collections.Counter[str]())
    wrong = [message for client in clients for message in client.wrong]
    print("answers:", ", ".join(f"{code}: {number:,}" for code, number in sorted(codes.items())))
    print(f"requests: {codes.total():,}; the longest wait for a known answer: {max(c.longest for c in clients):.1f} s")
    print(
        f"memory: {before.megabytes:.0f} MB before, {after.megabytes:.0f} MB after; open files: {before.descriptors}, "
        f"{after.descriptors}; the process {'lives' if server.process.poll() is None else 'has ended'}"
    )
    print(f"wrong: {len(wrong)}", *wrong[:5], sep="\n  ")
    return bool(wrong) or server.process.poll() is not None


@contextlib.contextmanager
def replaced_versions(model: pathlib.Path) -> Iterator[list[int]]:
    """Meanwhile the model gets a new version again and again, and the one before the last is removed."""
    versions, over = [1], threading.Event()

    def replace() -> None:
        while not over.wait(SECONDS_OF_A_VERSION):
            newest = versions[-1]
            shutil.copytree(model / str(newest), model / "copy")
            (model / "copy").rename(model / str(newest + 1))
            if newest > 1:
                shutil.rmtree(model / str(newest - 1))
            versions.append(newest + 1)

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        yield versions
    finally:
        over.set()
        thread.join()


def exported(folder: pathlib.Path) -> pathlib.Path:
    command = [sys.executable, "-m", "kformer", "export", "--preset", "cmudict", str(folder)]
    subprocess.run([*command, "--signature", "n_best", "--signature", "score"], check=True, stdout=subprocess.DEVNULL)
    return folder


if __name__ == "__main__":
    main()
