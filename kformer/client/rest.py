"""TensorFlow Serving's REST interface, as `Client` uses it. TensorFlow is not needed."""

import base64
import http.client
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import requests
import requests.adapters
import requests.auth
import urllib3.exceptions

from kformer.client.errors import ServerError, odd_answers_told
from kformer.client.retries import retries
from kformer.client.settings import ClientSettings, ServerAddress

# The types that TensorFlow Serving's REST knows.
_TYPES: dict[str, type] = {
    "DT_BOOL": np.bool_,
    "DT_STRING": np.object_,
    "DT_HALF": np.float16,
    "DT_FLOAT": np.float32,
    "DT_DOUBLE": np.float64,
    "DT_INT8": np.int8,
    "DT_UINT8": np.uint8,
    "DT_INT16": np.int16,
    "DT_INT32": np.int32,
    "DT_UINT32": np.uint32,
    "DT_INT64": np.int64,
    "DT_UINT64": np.uint64,
}


class RestTransport:
    """Asks a model over REST; see `Client`. Inputs and outputs are JSON in the column format.

    JSON has neither the types of numbers nor the name of an output that is the only one. Both are in the metadata,
    which are asked for once.
    """

    def __init__(self, address: ServerAddress, settings: ClientSettings) -> None:
        self._url = address.url
        self._timeout = settings.timeout
        # Given with each request, not to the session: REQUESTS_CA_BUNDLE or a .netrc would overrule the session's.
        self._auth = None if settings.token is None else _Bearer(settings.token)
        self._verify = True if settings.ca_file is None else str(settings.ca_file)
        self._session = requests.Session()
        adapter = requests.adapters.HTTPAdapter(max_retries=retries(settings.tries, settings.backoff_factor))
        self._session.mount(f"{address.url.split('://')[0]}://", adapter)
        self._types: dict[str, dict[str, type]] = {}  # of the outputs of each signature that was asked

    def predict(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """See `Transport`."""
        named = {name: _json_values(array) for name, array in inputs.items()}
        body = {"signature_name": signature, "inputs": named}
        outputs = self._ask("outputs", "POST", ":predict", body)["outputs"]
        types = self._types.get(signature, {})
        if not _describe(types, outputs):  # the first time, or a version was loaded that gives others
            metadata = self.metadata()
            with odd_answers_told(self._url):
                types = self._types[signature] = _output_types(metadata, signature)
        if not _describe(types, outputs):
            raise ServerError(
                f"{self._url} gives other outputs of {signature} than its metadata describe: {', '.join(types)}. Was "
                "another version loaded meanwhile? Ask again.",
                code=200,
            )
        values = outputs if isinstance(outputs, dict) else dict.fromkeys(types, outputs)
        with odd_answers_told(self._url):
            return {name: _array(values[name], dtype) for name, dtype in types.items()}

    def status(self) -> dict[str, Any]:
        """See `Transport`."""
        return self._ask("model_version_status", "GET", "")

    def metadata(self) -> dict[str, Any]:
        """See `Transport`."""
        return self._ask("metadata", "GET", "/metadata")

    def close(self) -> None:
        """See `Transport`."""
        self._session.close()

    def _ask(self, key: str, method: str, what: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """The JSON object that the server answers, which has this key.

        Raises:
            ServerError: The server does not answer, or its answer has another status than 200 or no such object.
        """
        status, content = self._send(method, what, body)
        found = _object(content)
        if status == 200 and key in found:
            return found
        text = content.decode("utf-8", "replace")
        if status != 200:
            words = found.get("error") or text.strip() or "without a reason"
            by_itself = status != 503 or "error" in found  # and not by a proxy before it
            raise ServerError(f"{self._url} answers {status}: {words}", code=status, is_answer=by_itself)
        raise ServerError(
            f"{self._url} does not answer like TensorFlow Serving's REST: {key!r} is missing. Does another program use "
            f"this address? Received: {text[:200]!r}",
            code=status,
        )

    def _send(self, method: str, what: str, body: dict[str, Any] | None) -> tuple[int, bytes]:
        """Status and body of an answer. An error that held the whole answer object would keep its connection open."""
        try:
            answer = self._session.request(
                method,
                self._url + what,
                data=None if body is None else json.dumps(body, ensure_ascii=False).encode("utf-8"),
                headers={"Content-Type": "application/json"},
                timeout=self._timeout,
                auth=self._auth,
                verify=self._verify,
                allow_redirects=False,  # a POST would become a GET
            )
        except requests.RequestException as error:
            raise _no_answer(self._url, error) from error
        return answer.status_code, answer.content


class _Bearer(requests.auth.AuthBase):
    """Sends a token with every request."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def _no_answer(url: str, error: requests.RequestException) -> ServerError:
    """Tells what went wrong in the last try."""
    outer = error.args[0] if error.args else error
    reason = getattr(outer, "reason", outer)
    late = isinstance(reason, urllib3.exceptions.ReadTimeoutError)
    return ServerError(
        f"{url} does not answer: {reason}{_remedy(url, reason)}", code=504 if late else 503, is_answer=False
    )


def _remedy(url: str, reason: Exception) -> str:
    """A sentence for errors whose cause is mostly the URL or a certificate."""
    cause = reason.args[-1] if isinstance(reason, urllib3.exceptions.ProtocolError) else reason
    # A server with TLS closes the connection. If bytes of the request are still unread then, the system resets it.
    if isinstance(cause, ConnectionResetError) and url.startswith("http:"):
        return ". If it is a port with TLS, name it by https."
    if isinstance(cause, http.client.BadStatusLine):
        return ". This is no HTTP. If it is a port of gRPC, name it by grpc://HOST:PORT/NAME."
    if isinstance(cause, urllib3.exceptions.SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(cause):
        return (
            ". Trust its authority: ca_file of the client, or the variable REQUESTS_CA_BUNDLE, names a file in PEM "
            "form."
        )
    return ""


def _object(content: bytes) -> dict[str, Any]:
    """A JSON object; empty for anything else."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _output_types(metadata: dict[str, Any], signature: str) -> dict[str, type]:
    """The types of a signature's outputs, by their names."""
    definition = metadata["metadata"]["signature_def"]["signature_def"].get(signature, {"outputs": {}})
    return {name: _TYPES[info["dtype"]] for name, info in definition["outputs"].items()}


def _describe(types: dict[str, type], outputs: Any) -> bool:
    """Whether these types have the names of the outputs. A single output has no name in JSON."""
    return {*types} == {*outputs} if isinstance(outputs, dict) else len(types) == 1


def _json_values(array: np.ndarray) -> Any:
    """The values of a tensor as JSON has them."""
    if array.dtype != object:
        return array.tolist()
    values = np.empty(array.size, object)
    values[:] = [_json_text(text) for text in array.flat]
    return values.reshape(array.shape).tolist()


def _json_text(text: bytes) -> str | dict[str, str]:
    """A text, or the base64 of bytes that are no UTF-8."""
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(text).decode("ascii")}


def _array(values: Any, dtype: type) -> np.ndarray:
    """The tensor with these values; see `_json_values`."""
    if dtype is not np.object_:
        found: np.ndarray = np.array(values, dtype)
        # NumPy makes NaN or False of null.
        may_be_null = np.isnan(found).any() if issubclass(dtype, np.floating) else dtype is np.bool_
        if may_be_null and None in np.array(values, object).flat:
            raise ValueError("null in place of a number")
        return found
    texts = np.array(values, object)
    for place, text in np.ndenumerate(texts):
        texts[place] = base64.b64decode(text["b64"], validate=True) if isinstance(text, dict) else text.encode("utf-8")
    return texts
