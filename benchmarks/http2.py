"""A little HTTP/2, by hand: the beginning of a gRPC call, as no client library would send it."""

import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS = 0, 1, 3, 4
_END_STREAM, _END_HEADERS = 1, 4
SETTINGS = struct.pack(">I", 0)[1:] + bytes([_SETTINGS, 0]) + struct.pack(">I", 0)


def predict_call(model: str) -> bytes:
    """A whole connection up to a Predict call whose message is this model's name; the end of the stream is missing."""
    fields = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": b"/tensorflow.serving.PredictionService/Predict",
        b":authority": b"localhost",
        b"content-type": b"application/grpc",
        b"te": b"trailers",
    }
    headers = b"".join(b"\0" + _string(name) + _string(value) for name, value in fields.items())
    message = b"\x0a" + _string(b"\x0a" + _string(model.encode()))  # PredictRequest.model_spec.name
    message = b"\0" + struct.pack(">I", len(message)) + message
    return PREFACE + SETTINGS + _frame(_HEADERS, _END_HEADERS, headers) + _frame(_DATA, 0, message)


def ends_a_call(received: bytes) -> bool:
    """Whether a server has ended a call: by its status, or by a reset."""
    while len(received) >= 9:
        length, kind, flags = struct.unpack(">I", b"\0" + received[:3])[0], received[3], received[4]
        if kind == _RESET or (kind == _HEADERS and flags & _END_STREAM):
            return True
        received = received[9 + length :]
    return False


def _frame(kind: int, flags: int, content: bytes) -> bytes:
    return struct.pack(">I", len(content))[1:] + bytes([kind, flags]) + struct.pack(">I", 1) + content


def _string(value: bytes) -> bytes:
    """A short string behind its length; HPACK and protobuf write it alike."""
    return bytes([len(value)]) + value
