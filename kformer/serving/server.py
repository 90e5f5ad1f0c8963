"""`kformer serve`: one process that answers REST and gRPC as TensorFlow Serving does, and shows a page."""

import asyncio
import contextlib
import functools
import logging
import pathlib
import signal
import threading
from collections.abc import Callable, Iterator

from kformer.serving.grpc_server import GrpcServer
from kformer.serving.metrics import Metrics
from kformer.serving.model_manager import ModelManager
from kformer.serving.predict import Answerer
from kformer.serving.reloading import ConfigWatch
from kformer.serving.rest import Rest, application
from kformer.serving.rest_server import RestServer, listening
from kformer.serving.servable import Servable
from kformer.serving.settings import ServerSettings
from kformer.serving.version import State

log = logging.getLogger(__name__)
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
        self._manager = ModelManager(settings.models, self._load, self._note, self._forget, settings.load_seconds)
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
        answerer = Answerer(self._manager, self.settings.limits, self._metrics)
        with listening(self.settings) as rest_socket:
            rpc = GrpcServer(self.settings, answerer, self.is_ready)
            self.grpc_port = rpc.open()
            endpoint = Rest(answerer, self._metrics, self.settings.metrics_path, self.is_ready)
            rest = RestServer(application(endpoint), self.settings)
            await rpc.start()
            self.rest_port = rest_socket.getsockname()[1]
            answering = asyncio.create_task(rest.serve([rest_socket]))
            self._manager.start(self.settings.poll_seconds)
            with self._on_signals(), self._config_watched():
                on_start(self)
                await asyncio.wait([answering, asyncio.create_task(self._stop.wait())], return_when="FIRST_COMPLETED")
            log.info("draining")
            self._draining = True
            rest.should_exit = True
            await asyncio.gather(answering, rpc.stop(self.settings.drain_seconds))
        is_busy = not self._unload_models()
        log.info("stopped", extra={"fields": {"busy": is_busy}})
        return is_busy

    @contextlib.contextmanager
    def _config_watched(self) -> Iterator[None]:
        """Reads the file of the models again from time to time, if that is asked for."""
        file, seconds = self.settings.model_config_file, self.settings.model_config_poll_seconds
        if file is None or not seconds:
            yield
            return
        watch = ConfigWatch(self._manager, file, seconds)
        watch.start()
        try:
            yield
        finally:
            watch.close()

    def _unload_models(self) -> bool:
        """Unloads the models. False if that takes too long: a batch whose clients have gone can take minutes."""
        closing = threading.Thread(target=self._manager.close, name="closing", daemon=True)
        closing.start()
        closing.join(_SECONDS_TO_CLOSE)
        return not closing.is_alive()

    @contextlib.contextmanager
    def _on_signals(self) -> Iterator[None]:
        """SIGTERM, SIGINT and SIGHUP stop the server; a second one ends it at once.

        Only the main thread can handle signals. SIGHUP comes when the terminal of the server is closed. `nohup` has it
        ignored, and so it is here.
        """
        assert self._loop is not None
        assert self._stop is not None
        chosen = [signal.SIGTERM, signal.SIGINT]
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            chosen.append(signal.SIGHUP)
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
        return Servable(name, version, path, self.settings.batching, on_batch, self.settings.trust)

    def _note(self, name: str, version: int, state: State, error: str) -> None:
        self._metrics.state(name, version, state.value)
        fields = {"model": name, "version": version, "state": state.name}
        log.log(
            logging.ERROR if error else logging.INFO,
            "version",
            extra={"fields": {**fields, "error": error} if error else fields},
        )

    def _forget(self, name: str, version: int) -> None:
        self._metrics.forget(name, version)
        if name not in self._manager.names():
            self._metrics.forget_model(name)
