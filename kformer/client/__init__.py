"""A client of servers of exported translators. Importing it loads neither TensorFlow nor network libraries."""

from kformer.client.client import Client
from kformer.client.errors import ServerError

__all__ = ["Client", "ServerError"]
