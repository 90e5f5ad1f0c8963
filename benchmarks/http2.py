"""A little HTTP/2, by hand: the beginning of a gRPC call, as no client library would send it."""

import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS = 0, 1, 4
_END_HEADERS = 4
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


def _frame(kind: int, flags: int, content: bytes) -> bytes:
    return struct.pack(">I", len(content))[1:] + bytes([kind, flags]) + struct.pack(">I", 1) + content


def _string(value: bytes) -> bytes:
    """A short string behind its length; HPACK and protobuf write it alike."""
    return bytes([len(value)]) + value
