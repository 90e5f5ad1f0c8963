"""Answers the requests of both REST and gRPC, each within its time.

`Servable.submit` puts a request into a batch, see `batching`.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping

import numpy as np
from starlette.requests import ClientDisconnect

from kformer.runtime.c_api import SavedModelError
from kformer.runtime.signature_names import DEFAULT_SIGNATURE
from kformer.runtime.status_codes import Code
from kformer.serving.batching import Answer, ClosedError
from kformer.serving.errors import ServingError
from kformer.serving.metrics import Metrics
from kformer.serving.model_manager import ModelManager
from kformer.serving.servable import Servable
from kformer.serving.settings import Limits
from kformer.serving.signatures import Signature, check_sizes

Outputs = dict[str, np.ndarray]
ReadInputs = Callable[[Signature], Mapping[str, np.ndarray]]
_IPV4 = "::ffff:"  # before the IPv4 address of a client where the server listens on IPv6
_TRIES = 3  # a version may be unloaded between the moment it is found and the moment it gets the request


class Answerer:
    """Answers requests.

    Args:
        manager: The models.
        limits: The limits of a request.
        metrics: Where requests are counted.
    """

    def __init__(self, manager: ModelManager, limits: Limits, metrics: Metrics) -> None:
        self.manager = manager
        self.limits = limits
        self._metrics = metrics

    @contextlib.contextmanager
    def counted(self, model: str) -> Iterator[None]:
        """Counts a request by how the block ends.

        A model that is not served is counted without its name, because clients could invent any number of names.
        """
        began, code = time.monotonic(), "INTERNAL"
        try:
            yield
            code = "OK"
        except ServingError as error:
            code = error.code.name
            raise
        except (asyncio.CancelledError, ClientDisconnect):  # the client has gone
            code = "CANCELLED"
            raise
        finally:
            self._metrics.count(model if model in self.manager.names() else "", code, time.monotonic() - began)

    async def predict(
        self,
        model: str,
        read_inputs: ReadInputs,
        version: int | None = None,
        label: str | None = None,
        signature_name: str = "",
        seconds: float | None = None,
        chosen: Collection[str] = (),
        client: str = "",
        gone: "asyncio.Future[None] | None" = None,
    ) -> tuple[Servable, Signature, Outputs]:
        """Computes outputs of a signature.

        Args:
            model: The model's name.
            read_inputs: Reads the inputs, with the types that the signature has.
            version: The version's number; by default the newest.
            label: The version's label, in place of its number.
            signature_name: By default `serving_default`.
            seconds: What is left until the deadline of the client, where that is shorter than the limit.
            chosen: The names of the outputs to give; all where there are none.
            client: The address of the client. Clients have equal shares.
            gone: It is done when the client has gone; None: this task is cancelled then.

        Raises:
            ServingError: The request is wrong or too large, the server is busy, or the time is over.
            ClientDisconnect: The client has gone.
        """
        limit = self.limits.seconds if seconds is None else min(seconds, self.limits.seconds)
        for _ in range(_TRIES):
            servable = self.manager.servable(model, version, label)
            signature = servable.signature(signature_name or DEFAULT_SIGNATURE)
            inputs = signature.complete(read_inputs(signature))
            signature.check_outputs(chosen)
            check_sizes(inputs, self.limits.texts, self.limits.text_bytes)
            if limit <= 0:
                raise self._too_late()
            try:
                answer = servable.submit(signature, inputs, client.removeprefix(_IPV4), limit)
            except ClosedError:
                continue
            outputs = await self._outputs(answer, limit, gone)
            return servable, signature, {name: outputs[name] for name in chosen or outputs}
        raise ServingError(Code.UNAVAILABLE, f"The model {model} is being unloaded. Send the request again later.")

    async def _outputs(self, answer: Answer, limit: float, gone: "asyncio.Future[None] | None") -> Outputs:
        try:
            await _end(answer, limit, gone)
        finally:
            answer.cancel()  # so that it is not computed if it still waits, and nobody waits for it any more
        if gone is not None and gone.done():
            raise ClientDisconnect
        if not answer.done() or answer.cancelled():
            raise self._too_late()
        try:
            return answer.result()
        except SavedModelError as error:
            raise ServingError(Code.of_number(error.code), str(error).split("\n")[0]) from error

    def _too_late(self) -> ServingError:
        return ServingError(
            Code.DEADLINE_EXCEEDED,
            f"The answer took longer than {self.limits.seconds:g} seconds, or than the client waits. Send fewer or "
            "shorter texts in a request.",
        )


async def _end(answer: Answer, seconds: float, gone: "asyncio.Future[None] | None") -> None:
    """Waits until an answer is there, the time is over, or the client has gone.

    It is one future: `asyncio.wait_for` and `wrap_future` have three, each of which takes a turn of the event loop.
    """
    loop = asyncio.get_running_loop()
    end = loop.create_future()

    def note(_: object = None) -> None:
        if not end.done():
            end.set_result(None)

    def note_from_thread(_: object) -> None:
        if not loop.is_closed():  # a batch may take longer than the server runs
            loop.call_soon_threadsafe(note)

    answer.add_done_callback(note_from_thread)
    if gone is not None:
        gone.add_done_callback(note)
    late = loop.call_later(seconds, note)
    try:
        await end
    finally:
        late.cancel()
        if gone is not None:
            gone.remove_done_callback(note)
