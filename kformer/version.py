"""The version of kformer."""

__version__ = "0.1.0"
