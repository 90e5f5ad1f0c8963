"""What a model is asked for each line, on this machine or on a server."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kformer.client import Client
from kformer.client.batches import answer_batch, check_server_tag, score_batch
from kformer.config import task_kind
from kformer.inference import Model
from kformer.text.batches import AnswerDrawn, with_tag
from kformer.text.given_answers import SCORE, scored

OnCut = Callable[[bytes], None]


class Asking(Protocol):
    """What a model is asked for each line.

    Attributes:
        task: What the model must have learned.
        tag: Stands before each line for a translator.
    """

    @property
    def task(self) -> str: ...

    @property
    def tag(self) -> str | None: ...

    @property
    def draws(self) -> bool:
        """Whether answers are drawn at random."""
        ...

    @property
    def seed(self) -> int:
        """Of answers that are drawn."""
        ...

    @property
    def needs_ends(self) -> bool:
        """Whether a person should know of lines whose end the model does not read."""
        ...

    @property
    def columns(self) -> int | None:
        """How many columns a line must have, split by tabs; None: any number."""
        ...

    @property
    def model_options(self) -> Mapping[str, Any]:
        """The fields of a `kformer.inference.Model` that can be asked so."""
        ...

    def of_model(self, model: Model) -> AnswerDrawn:
        """A function that asks a model on this machine, and calls its `on_cut` if `needs_ends`."""
        ...

    def of_server(self, client: Client, on_cut: OnCut) -> AnswerDrawn:
        """A function that asks a server.

        Args:
            client: Of the server.
            on_cut: Called for each line whose end the model does not read, if `needs_ends` and the server tells.

        Raises:
            ValueError: The server's model cannot be asked so.
            ServerError: The server does not answer.
        """
        ...


def facts_of(asking: Asking) -> dict[str, object]:
    """What tells a job from others that ask the model for something else: values for JSON."""
    return {type(asking).__name__: dataclasses.asdict(asking)}  # type: ignore[call-overload]


@dataclasses.dataclass(frozen=True)
class AskedAnswers:
    """The answers of the model.

    Args:
        task: What the model must have learned.
        n_best, options, alignments: See `kformer.inference.Model`.
        tag: Stands before each line for a translator.
    """

    task: str = "translate"
    n_best: int = 1
    options: Mapping[str, float | int] = dataclasses.field(default_factory=dict)
    alignments: bool = False
    tag: str | None = None

    @property
    def draws(self) -> bool:
        return bool(self.options.get("temperature"))

    @property
    def seed(self) -> int:
        return int(self.options.get("seed", 0))

    @property
    def needs_ends(self) -> bool:
        return task_kind(self.task).has_labels  # other models divide a long text, or go on behind its end

    @property
    def columns(self) -> int | None:
        return None

    @property
    def model_options(self) -> Mapping[str, Any]:
        return {name: getattr(self, name) for name in ("task", "n_best", "options", "alignments")}

    def of_model(self, model: Model) -> AnswerDrawn:
        return _with_tag(model, self.tag)

    def of_server(self, client: Client, on_cut: OnCut) -> AnswerDrawn:
        ask = answer_batch(client, self.n_best, self.task, self.options, self.alignments)
        return _with_server_tag(client, ask, self.tag)


@dataclasses.dataclass(frozen=True)
class AskedScores:
    """How probable given answers are: see `kformer.text.given_answers`.

    Args:
        task: What the model must have learned: to translate, or texts as a language model does.
        tag: Stands before each line for a translator.
    """

    task: str = "translate"
    tag: str | None = None

    @property
    def draws(self) -> bool:
        return False

    @property
    def seed(self) -> int:
        return 0

    @property
    def needs_ends(self) -> bool:
        return True

    @property
    def columns(self) -> int | None:
        return 2 if self._has_sources else None

    @property
    def model_options(self) -> Mapping[str, Any]:
        return {"task": self.task, "signatures": [SCORE]}

    def of_model(self, model: Model) -> AnswerDrawn:
        on_cut = None if model.on_cut is None else self._without_tag(model.on_cut)
        return _with_tag(scored(model.run, self._has_sources, on_cut), self.tag)

    def of_server(self, client: Client, on_cut: OnCut) -> AnswerDrawn:
        return _with_server_tag(client, score_batch(client, self.task, self._without_tag(on_cut)), self.tag)

    def _without_tag(self, on_cut: OnCut) -> OnCut:
        tag = b"" if self.tag is None else f"{self.tag} ".encode()
        return lambda text: on_cut(text.removeprefix(tag))

    @property
    def _has_sources(self) -> bool:
        return task_kind(self.task).has_cross_attention


def _with_tag(ask: AnswerDrawn, tag: str | None) -> AnswerDrawn:
    return ask if tag is None else with_tag(ask, tag)


def _with_server_tag(client: Client, ask: AnswerDrawn, tag: str | None) -> AnswerDrawn:
    if tag is not None:
        check_server_tag(client, tag)
    return _with_tag(ask, tag)
