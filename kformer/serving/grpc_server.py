"""The gRPC side of a server: its services, and its limits."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import grpc
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

from kformer.serving import grpc_health
from kformer.serving.access import TokenForGrpc
from kformer.serving.grpc_calls import CallLimits
from kformer.serving.grpc_reflection import SERVICE_NAMES, add_reflection
from kformer.serving.grpc_service import ModelService, PredictionService
from kformer.serving.predict import Answerer
from kformer.serving.rest_server import bound
from kformer.serving.settings import Limits, ServerSettings

# Each connection takes a file descriptor. The server closes one beyond them as soon as it is opened.
MOST_CONNECTIONS = 500
# A client's further calls wait in the client until others have ended.
MOST_CALLS_OF_A_CONNECTION = 64
# After this time a client is asked to connect again, which its user does not notice. Connections that nobody uses, and
# answers that nobody takes, end so, too. grpc's `max_connection_idle_ms` would make clients write lines about an error.
SECONDS_OF_A_CONNECTION = 60


# How long answers are held before and after clients are told that the server stops. This is many times the way to a
# client and back.
HOLD_SECONDS = 0.1


class GrpcServer:
    """Answers requests over gRPC.

    Args:
        settings: How it is set up.
        answerer: Answers predict requests.
        is_ready: Whether requests can be answered now.
    """

    def __init__(self, settings: ServerSettings, answerer: Answerer, is_ready: Callable[[], bool]) -> None:
        self._settings = settings
        self._limits = CallLimits(settings.limits.seconds)
        # The limits count a call once the token has been looked at: one without it is refused at once, and takes no
        # room.
        interceptors: list[Any] = [self._limits]
        reload = settings.reload
        if settings.token is not None or reload is not None:
            interceptors.append(TokenForGrpc(settings.token, reload.token if reload else None))
        logging.getLogger("grpc._cython.cygrpc").addFilter(_is_of_the_server)
        server = grpc.aio.server(options=_options(settings.limits), interceptors=interceptors)
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(PredictionService(answerer), server)
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(ModelService(answerer.manager, reload), server)
        server.add_generic_rpc_handlers((grpc_health.health(is_ready, SERVICE_NAMES),))
        add_reflection(server, [grpc_health.SERVICE])
        self._server = server

    def open(self) -> int:
        """Opens the port, and gives its number.

        Raises:
            OSError: The port is taken, or a file of TLS cannot be read.
        """
        settings = self._settings
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        address = f"{host}:{settings.grpc_port}"
        try:
            if settings.certificate is None or settings.key is None:
                return self._server.add_insecure_port(address)
            pair = (settings.key.read_bytes(), settings.certificate.read_bytes())
            return self._server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
        except RuntimeError as error:
            with bound(settings.host, settings.grpc_port):  # tells the reason, which gRPC keeps for itself
                raise OSError(str(error)) from error

    async def start(self) -> None:
        """Begins to answer."""
        await self._server.start()

    async def stop(self, seconds: float) -> None:
        """Answers what has arrived, and ends.

        Once grpc stops, it cancels each call that arrives before its client has heard of the stop. The client sees
        CANCELLED and does not call again. A client that waits for an answer sends nothing, so answers are held
        meanwhile.

        Args:
            seconds: How long it waits for answers.
        """
        with self._limits.answers_held():
            await asyncio.sleep(HOLD_SECONDS)
            stopping = asyncio.create_task(self._server.stop(seconds))
            await asyncio.sleep(HOLD_SECONDS)
        await stopping


def _is_of_the_server(record: logging.LogRecord) -> bool:
    """Leaves out what grpc says, with all of its stack, of each answer whose client has gone or does not take it."""
    return not record.getMessage().startswith("ExecuteBatchError raised in core")


def _options(limits: Limits) -> list[tuple[str, int]]:
    """The options of grpc's core. Older versions of it do not know all, and ignore the others."""
    patience = max(1000, round(limits.seconds * 1000))  # milliseconds
    most_pending = MOST_CONNECTIONS * MOST_CALLS_OF_A_CONNECTION
    return [
        ("grpc.max_receive_message_length", limits.request_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 0),  # otherwise a second server would share the port unnoticed
        ("grpc.server_handshake_timeout_ms", patience),
        ("grpc.max_allowed_incoming_connections", MOST_CONNECTIONS),
        ("grpc.max_connection_age_ms", max(SECONDS_OF_A_CONNECTION * 1000, patience)),
        ("grpc.max_connection_age_grace_ms", patience),
        ("grpc.max_concurrent_streams", MOST_CALLS_OF_A_CONNECTION),
        # A call that has ended counts until its memory is freed. Without this room, a client that begins the next one
        # at once would be refused.
        ("grpc.http2.max_deallocating_streams", MOST_CALLS_OF_A_CONNECTION),
        # Calls wait until Python takes them. Usually grpc cancels some of them where 1,000 of all clients wait, and
        # those that have waited for 30 seconds. Their clients see CANCELLED and do not call again. The limits above
        # bound how many can wait.
        ("grpc.server.max_pending_requests", most_pending),
        ("grpc.server.max_pending_requests_hard_limit", most_pending),
        ("grpc.server_max_unrequested_time_in_server", 3600),  # seconds
    ]
