"""`kformer serve`, a server of SavedModels with TensorFlow Serving's REST and gRPC."""
