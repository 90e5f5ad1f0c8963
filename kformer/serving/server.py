"""`kformer serve`: one process that answers REST and gRPC as TensorFlow Serving does, and shows a page."""

import asyncio
import contextlib
import functools
import logging
import math
import pathlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import uvicorn
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

from kformer.serving.access import TokenForGrpc, TokenForRest
from kformer.serving.connections import Connection, RequestsInTime
from kformer.serving.grpc_service import Model, Prediction
from kformer.serving.metrics import Metrics
from kformer.serving.models import ModelManager, State
from kformer.serving.predict import Predictor
from kformer.serving.rest import Rest
from kformer.serving.servable import Servable
from kformer.serving.settings import ServerSettings

log = logging.getLogger(__name__)
_BACKLOG = 2048  # connections that wait to be accepted
_SECONDS_TO_CLOSE = 2.0


class Server:
    """Serves models until it is told to stop.

    Args:
        settings: How it is set up.

    Attributes:
        rest_port: The port of REST, once it runs.
        grpc_port: The port of gRPC, once it runs.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.rest_port = settings.rest_port
        self.grpc_port = settings.grpc_port
        self._metrics = Metrics()
        self._manager = ModelManager(settings.models, self._load, self._note)
        self._metrics.watch_queue(self._manager.waiting)
        self._draining = False
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, on_start: Callable[["Server"], None] = lambda server: None) -> bool:
        """Serves until SIGTERM or SIGINT, or `stop`. Requests that have arrived by then are answered.

        Args:
            on_start: Called when both ports are open.

        Returns:
            Whether threads still load a model or compute a batch. If so, end the process by `os._exit`: the usual end
            of Python would destroy TensorFlow's objects while these threads use them, which crashes.

        Raises:
            OSError: A port is taken, or a file of TLS cannot be read.
        """
        return asyncio.run(self._serve(on_start))

    def stop(self) -> None:
        """Makes `run` end. Any thread may call it."""
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)

    def is_ready(self) -> bool:
        """Whether every model has a version that answers, and the server is not stopping."""
        return self._manager.is_ready() and not self._draining

    async def _serve(self, on_start: Callable[["Server"], None]) -> bool:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        predictor = Predictor(self._manager, self.settings.limits, self._metrics)
        with self._listening() as rest_socket:
            rpc = self._grpc_server(predictor)
            self.grpc_port = self._add_grpc_port(rpc)
            rest = _Uvicorn(self._rest_config(predictor))
            await rpc.start()
            self.rest_port = rest_socket.getsockname()[1]
            answering = asyncio.create_task(rest.serve([rest_socket]))
            self._manager.start(self.settings.poll_seconds)
            with self._on_signals():
                on_start(self)
                await asyncio.wait([answering, asyncio.create_task(self._stop.wait())], return_when="FIRST_COMPLETED")
            log.info("draining")
            self._draining = True
            rest.should_exit = True
            await asyncio.gather(answering, rpc.stop(self.settings.drain_seconds))
        is_busy = not self._unload_models()
        log.info("stopped", extra={"fields": {"busy": is_busy}})
        return is_busy

    def _unload_models(self) -> bool:
        """Unloads the models. False if that takes too long: a batch whose clients have gone can take minutes."""
        closing = threading.Thread(target=self._manager.close, name="closing", daemon=True)
        closing.start()
        closing.join(_SECONDS_TO_CLOSE)
        return not closing.is_alive()

    @contextlib.contextmanager
    def _listening(self) -> Iterator[socket.socket]:
        """The socket of REST, opened before anything is loaded, so that a port that is taken is an error at once."""
        family = socket.AF_INET6 if ":" in self.settings.host else socket.AF_INET
        with socket.socket(family) as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Connections inherit this: if a client reads nothing for this time, its connection ends. gRPC has its own.
            patience = max(1000, round(self.settings.limits.seconds * 1000))  # milliseconds
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, patience)
            try:
                listening.bind((self.settings.host, self.settings.rest_port))
            except OSError as error:
                raise _port_error(self.settings.host, self.settings.rest_port, str(error.strerror)) from error
            listening.listen(_BACKLOG)
            yield listening

    def _rest_config(self, predictor: Predictor) -> uvicorn.Config:
        settings = self.settings
        app: Any = Rest(predictor, self._metrics, settings.metrics_path, self.is_ready).app()
        if settings.token is not None:
            app = TokenForRest(app, settings.token)
        return uvicorn.Config(
            app,
            http=Connection,
            timeout_keep_alive=max(1, round(settings.limits.seconds)),
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            backlog=_BACKLOG,
            timeout_graceful_shutdown=math.ceil(settings.drain_seconds),
            ssl_certfile=settings.certificate,
            ssl_keyfile=settings.key,
        )

    def _grpc_server(self, predictor: Predictor) -> Any:
        options = [
            ("grpc.max_receive_message_length", self.settings.limits.request_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),  # otherwise a second server would share the port unnoticed
            ("grpc.server_handshake_timeout_ms", max(1000, round(self.settings.limits.seconds * 1000))),
        ]
        # The first interceptor is the outermost: requests without the token must arrive in time, too.
        interceptors: list[Any] = [RequestsInTime(self.settings.limits.seconds)]
        if self.settings.token is not None:
            interceptors.append(TokenForGrpc(self.settings.token))
        server = grpc.aio.server(options=options, interceptors=interceptors)
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Prediction(predictor), server)
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(Model(self._manager), server)
        return server

    def _add_grpc_port(self, server: Any) -> int:
        host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
        address = f"{host}:{self.settings.grpc_port}"
        try:
            if self.settings.certificate is None or self.settings.key is None:
                return server.add_insecure_port(address)
            pair = (self.settings.key.read_bytes(), self.settings.certificate.read_bytes())
            return server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
        except RuntimeError as error:
            raise _port_error(self.settings.host, self.settings.grpc_port, str(error)[:100]) from error

    @contextlib.contextmanager
    def _on_signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT stop the server; a second one ends it at once. Only the main thread can handle signals."""
        assert self._loop is not None
        assert self._stop is not None
        chosen = (signal.SIGTERM, signal.SIGINT)
        with contextlib.suppress(ValueError, RuntimeError):
            for number in chosen:
                self._loop.add_signal_handler(number, self._stop.set)
        try:
            yield
        finally:
            for number in chosen:
                self._loop.remove_signal_handler(number)

    def _load(self, name: str, version: int, path: pathlib.Path) -> Servable:
        on_batch = functools.partial(self._metrics.batch, name)
        return Servable(name, version, path, self.settings.batching, on_batch)

    def _note(self, name: str, version: int, state: State, error: str) -> None:
        self._metrics.state(name, version, state.value)
        fields = {"model": name, "version": version, "state": state.name}
        log.log(
            logging.ERROR if error else logging.INFO,
            "version",
            extra={"fields": {**fields, "error": error} if error else fields},
        )


class _Uvicorn(uvicorn.Server):
    """Leaves signals to `Server`, which also stops gRPC."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _port_error(host: str, port: int, reason: str) -> OSError:
    return OSError(f"The server cannot listen on {host}, port {port}: {reason}. Choose another port, or 0 for any.")
