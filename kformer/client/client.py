"""A client of TensorFlow Serving and of `kformer serve`, over REST or gRPC."""

import pathlib
import types
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias, overload

import numpy as np

from kformer.client.errors import TOO_LARGE, ServerError
from kformer.client.settings import ClientSettings, ServerAddress
from kformer.runtime.signature_names import DEFAULT_SIGNATURE

Text: TypeAlias = str | bytes


class Transport(Protocol):
    """Sends requests to a model. Strings are objects that are bytes. Every method may raise `ServerError`."""

    def predict(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs of a signature for one request."""

    def status(self) -> dict[str, Any]:
        """See `Client.status`."""

    def metadata(self) -> dict[str, Any]:
        """See `Client.metadata`."""

    def close(self) -> None:
        """Closes the connections."""


class Client:
    """Asks a model that TensorFlow Serving or `kformer serve` serves. Threads may share a client.

        with Client("http://localhost:8501/v1/models/translator") as client:
            client.translate(["You are witnesses of these things."])

    A request is sent again where a later try may succeed: the connection fails or ends before the answer, the answer
    takes longer than `timeout`, or the server says that it is busy (REST: 429, 503, 504; gRPC: RESOURCE_EXHAUSTED,
    UNAVAILABLE, DEADLINE_EXCEEDED). This is safe, because translating changes nothing on the server. Other errors are
    raised at once.

    Args:
        url: `http://HOST:8501/v1/models/NAME` for REST, or `grpc://HOST:8500/NAME` for gRPC, which needs TensorFlow
            here, too; `https` and `grpcs` use TLS. `/versions/3` or `/labels/stable` at its end chooses a version;
            otherwise the latest answers.
        token: Sent with every request as `Authorization: Bearer TOKEN`. Without TLS, others on the network can read it.
        timeout: Seconds that one try may wait: over gRPC for the answer, over REST for the connection and for each next
            part of the answer.
        tries: How often a request is sent, at most.
        backoff_factor: The waits between tries are 0, 2, 4, 8, ... times this number of seconds. A server's
            `Retry-After` is added to them.
        batch_size: Texts in a request, at most; servers of kformer's exports take 32. More are sent in several
            requests.
        ca_file: Certificates (PEM) of the authorities that are trusted in place of the usual ones.

    Raises:
        ValueError: The URL has another form, or an argument is invalid.
        FileNotFoundError: There is no `ca_file`.

    Examples:
        >>> with Client("http://localhost:8501/v1/models/translator/versions/3", timeout=5) as client:
        ...     client.translate([])  # an empty list needs no server
        []
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        timeout: float = 60.0,
        tries: int = 6,
        backoff_factor: float = 1.0,
        batch_size: int = 32,
        ca_file: str | pathlib.Path | None = None,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1. Received: {batch_size}.")
        self.url = url
        self.batch_size = batch_size
        certificates = None if ca_file is None else pathlib.Path(ca_file)
        settings = ClientSettings(token, timeout, tries, backoff_factor, certificates)
        self._transport = _transport(ServerAddress.of_url(url), settings)

    # mypy notes that a str is a sequence of str, too: the first form that fits is taken.
    @overload
    def translate(self, texts: Text) -> str: ...  # type: ignore[overload-overlap]
    @overload
    def translate(self, texts: Sequence[Text]) -> list[str]: ...

    def translate(self, texts: Text | Sequence[Text]) -> str | list[str]:
        """The translation of a text, or the translations of several in the same order.

        Args:
            texts: Strings, or bytes, which need not be UTF-8. An empty list needs no server.

        Raises:
            ServerError: The server does not answer, or refuses a request.
        """
        if isinstance(texts, str | bytes):
            return self.translate([texts])[0]
        if len(texts) == 0:
            return []
        outputs = self.predict(DEFAULT_SIGNATURE, {"text": texts})
        if "translation" not in outputs:
            raise ValueError(
                f"{self.url} is no translator: its signature {DEFAULT_SIGNATURE} gives no translation, but "
                f"{', '.join(sorted(outputs))}. Use predict."
            )
        return [text.decode("utf-8") for text in outputs["translation"]]

    def predict(self, signature: str, inputs: Mapping[str, np.ndarray | Sequence[Any]]) -> dict[str, np.ndarray]:
        """The outputs of a signature.

        Inputs of more than `batch_size` entries are sent in several requests, and so are those that are too large for
        the server together.

        Scalars, and inputs of one entry beside longer ones, go with each of these requests. A `seed` does, too: equal
        texts in two requests are drawn alike. Call this method once for each seed where they must not be.

        Args:
            signature: Such as "serving_default", "n_best" or "score".
            inputs: A tensor for each input of the signature; in kformer's exports the first dimension is the batch.
                Strings may be str or bytes. Over gRPC, numbers must be an array of the signature's type: those in a
                list are int64 or float64.

        Returns:
            A tensor for each output, with the types of the signature; strings are objects that are bytes.

        Raises:
            ServerError: The server does not answer, or refuses a request.
            ValueError: An input is no tensor, or the model's outputs cannot be put together from several requests.
        """
        tensors = {name: _tensor(values) for name, values in inputs.items()}
        lengths = {len(tensor) for tensor in tensors.values() if tensor.ndim}
        length = max(lengths, default=0)
        if length < 2 or lengths - {1, length}:  # inputs of other lengths are no batch
            return self._transport.predict(signature, tensors)
        batched = [name for name, tensor in tensors.items() if tensor.ndim and len(tensor) == length]
        answers, start, size = [], 0, self.batch_size
        while start < length:
            part = tensors | {name: tensors[name][start : start + size] for name in batched}
            number = min(size, length - start)
            try:
                answers.append(self._transport.predict(signature, part))
            except ServerError as error:
                if error.code != TOO_LARGE or number == 1:
                    raise
                size = number // 2  # texts may be long
                continue
            if number < length:
                self._check_part(signature, answers[-1], number)
            start, size = start + number, self.batch_size
        return {name: _joined([answer[name] for answer in answers]) for name in answers[0]}

    def status(self) -> dict[str, Any]:
        """The states of the model's versions, as TensorFlow Serving's REST writes them in JSON.

        Returns:
            Such as `{"model_version_status": [{"version": "1", "state": "AVAILABLE", "status": {...}}]}`.

        Raises:
            ServerError: The server does not answer, or does not know the model.
        """
        return self._transport.status()

    def metadata(self) -> dict[str, Any]:
        """The model's signatures, as TensorFlow Serving's REST writes them in JSON.

        Returns:
            `{"model_spec": {...}, "metadata": {"signature_def": {"signature_def": {NAME: {...}}}}}`.

        Raises:
            ServerError: The server does not answer, or does not know the model.
        """
        return self._transport.metadata()

    def close(self) -> None:
        """Closes the connections."""
        self._transport.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.close()

    def _check_part(self, signature: str, outputs: Mapping[str, np.ndarray], length: int) -> None:
        for name, output in outputs.items():
            if output.shape[:1] != (length,):
                raise ValueError(
                    f"The outputs of {signature} cannot be put together from several requests: {name} has the shape "
                    f"{output.shape} for {length} inputs. Give at most batch_size={self.batch_size} at a time."
                )


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    """The rows of all parts. Those of shorter rows are filled up with empty strings or zeros, as a model does it."""
    if len(parts) == 1:
        return parts[0]
    shape = [max(sizes) for sizes in zip(*(part.shape[1:] for part in parts), strict=True)]
    rows = sum(map(len, parts))
    joined = np.full((rows, *shape), b"" if parts[0].dtype == object else 0, parts[0].dtype)
    start = 0
    for part in parts:
        joined[(slice(start, start + len(part)), *map(slice, part.shape[1:]))] = part
        start += len(part)
    return joined


def _transport(address: ServerAddress, settings: ClientSettings) -> Transport:
    """Imports no more than the address needs."""
    if settings.ca_file is not None and not address.is_encrypted:
        raise ValueError(f"ca_file is for https and grpcs. Received: {address.url}")
    if address.is_rest:
        from kformer.client.rest import RestTransport

        return RestTransport(address, settings)
    from kformer.client.grpc import GrpcTransport

    return GrpcTransport(address, settings)


def _tensor(values: np.ndarray | Sequence[Any]) -> np.ndarray:
    """The values as an array, texts as objects that are bytes: NumPy's own strings lose NULs at their end."""
    array = values if isinstance(values, np.ndarray) else np.array(values, object)
    if array.dtype.kind not in "OUS":
        return array
    if all(isinstance(value, str | bytes) for value in array.flat):
        texts = np.empty(array.size, object)
        texts[:] = [value.encode("utf-8") if isinstance(value, str) else value for value in array.flat]
        return texts.reshape(array.shape)
    numbers = np.array(array.tolist())
    if numbers.dtype.kind not in "bif":
        raise ValueError("An input must hold texts alone, or numbers alone in rows of the same length.")
    return numbers
