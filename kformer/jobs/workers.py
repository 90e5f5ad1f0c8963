"""Workers that answer the batches of a job: processes of this machine, or servers."""

import dataclasses
import enum
from collections.abc import Sequence
from typing import Protocol, Self

from kformer.jobs.answerer import Answers


@dataclasses.dataclass(frozen=True)
class Batch:
    """Texts that are answered together.

    Attributes:
        part: The number of the part.
        places: The places of the texts in the part.
        texts: UTF-8.
        seed: Of texts that are drawn at random.
        losses: How often its worker was lost.
    """

    part: int
    places: tuple[int, ...]
    texts: tuple[bytes, ...]
    seed: int = 0
    losses: int = 0


class Fate(enum.Enum):
    """What became of a batch."""

    ANSWERED = enum.auto()
    REFUSED = enum.auto()  # it gets no answer from any worker, or not in time
    LOST = enum.auto()  # its worker ended: because of the batch, or because somebody killed it
    UNREACHED = enum.auto()  # no worker has seen it
    LATE = enum.auto()  # it took too long, and nobody knows yet whether because of itself


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a batch.

    Attributes:
        batch: The batch.
        fate: In one word.
        answers: If it was answered.
        fault: If it was not: why.
        server: The number of the server that had it, where workers are servers.
    """

    batch: Batch
    fate: Fate
    answers: Answers | None = None
    fault: str = ""
    server: int = 0


class Workers(Protocol):
    """Answers several batches at the same time. A worker that is lost is replaced, and its batch comes back."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def free(self) -> bool:
        """Whether a batch can begin now."""
        ...

    def begin(self, batch: Batch) -> None:
        """Gives a batch to a free worker."""
        ...

    def wait(self) -> Sequence[Outcome]:
        """Waits until something happens. Gives the batches that are done; there may be none.

        Raises:
            OSError: No worker can answer.
        """
        ...
