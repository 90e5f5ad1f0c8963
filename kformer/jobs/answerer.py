"""What answers a batch of a job: a model in this process, or a server."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from kformer.client import Client
from kformer.inference import Model
from kformer.inference.find import find_model
from kformer.inference.fingerprint import fingerprint
from kformer.inference.line_counts import is_short
from kformer.jobs.asking import AskedAnswers, Asking
from kformer.text.batches import Hypothesis, batch_seed, tagged


class Answers(NamedTuple):
    """The answers to a batch.

    Attributes:
        found: The answers to each text, best first.
        notes: For each kind of note, the places of the texts in the batch that it is about.
    """

    found: list[list[Hypothesis]]
    notes: dict[str, list[int]]


class Answerer(Protocol):
    """Answers batches of texts."""

    def __call__(self, texts: Sequence[bytes], seed: int) -> Answers:
        """The answers to texts, drawn with this seed if they are drawn at random."""
        ...


class AnswererSource(Protocol):
    """Opens an answerer in a process or thread. It can be pickled."""

    def opened(self) -> contextlib.AbstractContextManager[Answerer]:
        """The answerer, until the block ends."""
        ...


@dataclasses.dataclass(frozen=True)
class LocalModel:
    """A model on this machine.

    Its notes are "unknown", for texts that the vocabulary mostly lacks; "cut", for texts whose end it does not read;
    and "short", for translations that are much too short.

    Args:
        model: With one thread for an operation: a job keeps every core busy with a batch of its own.
        asking: What it is asked.
        short_ratio: See `kformer.inference.line_counts.ShortTranslations`.
        sha256: What `kformer.inference.fingerprint` says of the model; None: it is not compared. A worker that takes
            the place of another one must not answer by a model that was written meanwhile.
    """

    model: Model
    asking: Asking = AskedAnswers()  # noqa: RUF009 (nobody changes it)
    short_ratio: float = 0.0
    sha256: str | None = None

    @contextlib.contextmanager
    def opened(self) -> Iterator[Answerer]:
        unknown: list[bytes] = []
        cut: list[bytes] = []
        if self.sha256 is not None and fingerprint(find_model(self.model.path)) != self.sha256:
            raise ValueError(
                f"{self.model.path} has changed since the job began. Restore the model, or name a new folder by "
                "--output."
            )
        on_cut = cut.append if self.asking.needs_ends else None
        model = dataclasses.replace(self.model, on_unknown=unknown.append, on_cut=on_cut).load()
        ask, tag = self.asking.of_model(model), self.asking.tag

        def answer(texts: Sequence[bytes], seed: int) -> Answers:
            unknown.clear()
            cut.clear()
            found = ask(texts, seed)
            asked = texts if tag is None else tagged(texts, tag)
            places = {
                "unknown": _places(asked, {*unknown}),
                "cut": _places(texts, {*cut}),
                "short": [
                    place for place, text in enumerate(texts) if is_short(text, found[place][0], self.short_ratio)
                ],
            }
            return Answers(found, {kind: noted for kind, noted in places.items() if noted})

        yield answer


def _places(texts: Sequence[bytes], noted: set[bytes]) -> list[int]:
    return [place for place, text in enumerate(texts) if text in noted]


@dataclasses.dataclass(frozen=True)
class ServedModel:
    """A model on a server.

    Args:
        url: See `kformer.client.Client`.
        token: The bearer token.
        timeout: Seconds that an answer may take.
        asking: What it is asked.
    """

    url: str
    token: str | None = dataclasses.field(default=None, repr=False)
    timeout: float = 120.0
    asking: Asking = AskedAnswers()  # noqa: RUF009

    @contextlib.contextmanager
    def opened(self) -> Iterator[Answerer]:
        # One try: where there are other servers, the batch goes to one of them.
        with Client(self.url, self.token, self.timeout, tries=1) as client:
            cut: list[bytes] = []
            ask = self.asking.of_server(client, cut.append)

            def answer(texts: Sequence[bytes], seed: int) -> Answers:
                cut.clear()
                found: list[list[Hypothesis]] = []
                for first in range(0, len(texts), client.batch_size):  # servers take no more at once
                    found += ask(texts[first : first + client.batch_size], batch_seed(seed, first))
                places = _places(texts, {*cut})
                return Answers(found, {"cut": places} if places else {})

            yield answer
