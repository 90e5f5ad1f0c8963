"""A client of servers of exported translators. Importing it loads neither TensorFlow nor network libraries."""

from kformer.serving.client import Client
from kformer.serving.client_errors import ServerError

__all__ = ["Client", "ServerError"]
