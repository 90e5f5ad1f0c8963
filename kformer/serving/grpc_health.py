"""`grpc.health.v1`: tells Kubernetes and clients whether the server answers requests now."""

from collections.abc import Callable, Collection
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

SERVICE = "grpc.health.v1.Health"


def health(is_ready: Callable[[], bool], services: Collection[str]) -> grpc.GenericRpcHandler:
    """The service for a server. It answers Check; Watch, which would keep a call open, is not implemented.

    Args:
        is_ready: Whether requests can be answered now.
        services: The names that a client may ask for, besides "" for the whole server.
    """

    async def check(request: health_pb2.HealthCheckRequest, context: Any) -> health_pb2.HealthCheckResponse:
        if request.service and request.service not in services:
            await context.abort(
                grpc.StatusCode.NOT_FOUND,
                f"The server has {', '.join(services)}. Received: {request.service[:100]}.",
            )
        status = health_pb2.HealthCheckResponse.ServingStatus
        return health_pb2.HealthCheckResponse(status=status.SERVING if is_ready() else status.NOT_SERVING)

    handler = grpc.unary_unary_rpc_method_handler(
        check, health_pb2.HealthCheckRequest.FromString, health_pb2.HealthCheckResponse.SerializeToString
    )
    return grpc.method_handlers_generic_handler(SERVICE, {"Check": handler})
