"""The metrics of a server, in Prometheus's format."""

import contextlib
from collections.abc import Callable
from typing import Any

import prometheus_client

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        registry = self._registry = prometheus_client.CollectorRegistry()
        self._requests = prometheus_client.Counter(
            "kformer_requests", "Predict requests by their status code.", ["model", "code"], registry=registry
        )
        self._seconds = prometheus_client.Histogram(
            "kformer_request_seconds",
            "Seconds from a request's arrival to its answer.",
            ["model"],
            registry=registry,
            buckets=_SECONDS,
        )
        self._batch_texts = prometheus_client.Histogram(
            "kformer_batch_texts", "Texts of a batch.", ["model", "signature"], registry=registry, buckets=_ROWS
        )
        self._batch_seconds = prometheus_client.Histogram(
            "kformer_batch_seconds",
            "Seconds to compute a batch.",
            ["model", "signature"],
            registry=registry,
            buckets=_SECONDS,
        )
        self._of_models: dict[Any, tuple[str, ...]] = {  # with their labels
            self._requests: ("model", "code"),
            self._seconds: ("model",),
            self._batch_texts: ("model", "signature"),
            self._batch_seconds: ("model", "signature"),
        }
        self._states = prometheus_client.Gauge(
            "kformer_version_state",
            "10 start, 20 loading, 30 available, 40 unloading, 50 end.",
            ["model", "version"],
            registry=registry,
        )
        self._waiting = prometheus_client.Gauge(
            "kformer_waiting_texts", "Texts that wait for a batch.", registry=registry
        )
        prometheus_client.ProcessCollector(registry=registry)

    def count(self, model: str, code: str, seconds: float) -> None:
        """Counts a request."""
        self._requests.labels(model, code).inc()
        if code == "OK":
            self._seconds.labels(model).observe(seconds)

    def batch(self, model: str, signature: str, texts: int, seconds: float) -> None:
        """Counts a batch that was computed."""
        self._batch_texts.labels(model, signature).observe(texts)
        self._batch_seconds.labels(model, signature).observe(seconds)

    def state(self, model: str, version: int, number: int) -> None:
        """Notes the state of a version, by its number."""
        self._states.labels(model, str(version)).set(number)

    def forget(self, model: str, version: int) -> None:
        """Shows the state of a version no more."""
        with contextlib.suppress(KeyError):
            self._states.remove(model, str(version))

    def forget_model(self, model: str) -> None:
        """Shows nothing of a model any more. If it returns, its counters begin at 0, as after a start of the server."""
        for metric, names in self._of_models.items():
            samples = [sample.labels for family in metric.collect() for sample in family.samples]
            for labels in {tuple(found[name] for name in names) for found in samples if found["model"] == model}:
                metric.remove(*labels)

    def watch_queue(self, waiting: Callable[[], float]) -> None:
        """Asks for the number of waiting texts whenever the metrics are read."""
        self._waiting.set_function(waiting)

    def page(self) -> bytes:
        """The page that Prometheus reads."""
        return prometheus_client.generate_latest(self._registry)
