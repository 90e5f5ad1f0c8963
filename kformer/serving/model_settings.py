"""How a model is served: where its versions are, and how requests share batches."""

import dataclasses
import os
import pathlib


@dataclasses.dataclass(frozen=True)
class Batching:
    """How requests share batches.

    Args:
        max_batch_size: The most texts in a batch, and in a request.
        batch_timeout_micros: How long a request waits for others while a thread is free, in microseconds.
        max_enqueued_batches: Batches that may wait; further requests are refused.
        num_batch_threads: Batches that are computed at the same time.
        max_queue_seconds: The longest time that a request may have to wait: one that would wait longer is refused. It
            is an option of `kformer serve`, and no field of the file.
        allowed_batch_sizes: Rising; a smaller batch is filled up to the next of them. Empty: every size is allowed.
    """

    max_batch_size: int = 32
    batch_timeout_micros: int = 0
    max_enqueued_batches: int = 100
    num_batch_threads: int = dataclasses.field(default_factory=lambda: len(os.sched_getaffinity(0)))
    allowed_batch_sizes: tuple[int, ...] = ()
    max_queue_seconds: float = 10.0

    def __post_init__(self) -> None:
        for name in ("max_batch_size", "max_enqueued_batches", "num_batch_threads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1. Received: {getattr(self, name)}.")
        if self.batch_timeout_micros < 0:
            raise ValueError(f"batch_timeout_micros must be at least 0. Received: {self.batch_timeout_micros}.")
        sizes = self.allowed_batch_sizes
        if sizes and (list(sizes) != sorted({*sizes}) or sizes[-1] != self.max_batch_size or sizes[0] < 1):
            raise ValueError(
                f"allowed_batch_sizes must rise, and end with max_batch_size, {self.max_batch_size}. Received: "
                f"{', '.join(map(str, sizes))}."
            )


@dataclasses.dataclass(frozen=True)
class ModelSettings:
    """A model and where its versions are.

    Args:
        name: Its name in URLs.
        base_path: The folder of its versions.
        latest: How many of the newest versions are served; None: all of them.
        specific: Serve these versions, and no others.
        labels: Names of versions.
    """

    name: str
    base_path: pathlib.Path
    latest: int | None = 1
    specific: tuple[int, ...] = ()
    labels: dict[str, int] = dataclasses.field(default_factory=dict)
