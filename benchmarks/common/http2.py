"""A little HTTP/2, by hand: gRPC calls as no client library would send them."""

import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS = 0, 1, 3, 4
_END_STREAM, _END_HEADERS = 1, 4
_INITIAL_WINDOW_SIZE = 4
_CANCEL = 8
PREDICT = "/tensorflow.serving.PredictionService/Predict"


def predict_call(model: str) -> bytes:
    """A whole connection up to a Predict call whose message is this model's name; the end of the stream is missing."""
    return PREFACE + SETTINGS + call(1) + _frame(_DATA, 0, 1, _message(model))


def status_call(model: str, number: int) -> bytes:
    """A whole GetModelStatus call of this model, as the stream with this odd number."""
    head = call(number, "/tensorflow.serving.ModelService/GetModelStatus")
    return head + _frame(_DATA, _END_STREAM, number, _message(model))


def call(number: int, method: str = PREDICT) -> bytes:
    """The headers of a call, as the stream with this odd number; its message is missing."""
    fields = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": method.encode(),
        b":authority": b"localhost",
        b"content-type": b"application/grpc",
        b"te": b"trailers",
    }
    headers = b"".join(b"\0" + _string(name) + _string(value) for name, value in fields.items())
    return _frame(_HEADERS, _END_HEADERS, number, headers)


def reset(number: int) -> bytes:
    """Cancels a call."""
    return _frame(_RESET, 0, number, struct.pack(">I", _CANCEL))


def ends_a_call(received: bytes) -> bool:
    """Whether a server has ended a call: by its status, or by a reset."""
    while len(received) >= 9:
        length, kind, flags = struct.unpack(">I", b"\0" + received[:3])[0], received[3], received[4]
        if kind == _RESET or (kind == _HEADERS and flags & _END_STREAM):
            return True
        received = received[9 + length :]
    return False


def _message(model: str) -> bytes:
    """A request whose only field is its `model_spec`, as gRPC sends it."""
    message = b"\x0a" + _string(b"\x0a" + _string(model.encode()))
    return b"\0" + struct.pack(">I", len(message)) + message


def _frame(kind: int, flags: int, number: int, content: bytes) -> bytes:
    return struct.pack(">I", len(content))[1:] + bytes([kind, flags]) + struct.pack(">I", number) + content


def _string(value: bytes) -> bytes:
    """A string shorter than 127 bytes, with its length in front."""
    return bytes([len(value)]) + value


SETTINGS = _frame(_SETTINGS, 0, 0, b"")
# The settings of a client that takes no answer.
NO_WINDOW = _frame(_SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW_SIZE, 0))
