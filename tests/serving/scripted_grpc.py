"""A server with TensorFlow Serving's gRPC, whose first statuses a test gives; its model turns texts into capitals."""

import concurrent.futures

import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc


class ScriptedGrpc(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Refuses requests with the next of `statuses`, and then answers.

    Args:
        statuses: gRPC's codes.
        port: 0 for one that is free.
        credentials: Those of gRPC for TLS; None for a port without it.
        largest: Bytes of a request; -1 for any number.
    """

    def __init__(self, statuses=(), port=0, credentials=None, largest=-1):
        self.statuses, self.requests, self.metadata = list(statuses), [], []
        options = [("grpc.max_receive_message_length", largest), ("grpc.max_send_message_length", -1)]
        options += [("grpc.so_reuseport", 0)]
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(4), options=options)
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(self, self.server)
        address = f"127.0.0.1:{port}"
        if credentials is None:
            self.url = f"grpc://127.0.0.1:{self.server.add_insecure_port(address)}/m"
        else:
            self.url = f"grpcs://127.0.0.1:{self.server.add_secure_port(address, credentials)}/m"
        self.server.start()

    def Predict(self, request, context):
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        if self.statuses:
            context.abort(self.statuses.pop(0), "the server's words")
        texts = tf.make_ndarray(request.inputs["text"])
        response = predict_pb2.PredictResponse()
        response.outputs["translation"].CopyFrom(tf.make_tensor_proto([text.upper() for text in texts]))
        response.outputs["score"].CopyFrom(tf.make_tensor_proto([0.0] * len(texts)))
        return response

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.server.stop(None)
