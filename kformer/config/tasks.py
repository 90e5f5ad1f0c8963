"""What a model learns to do: one description of each task. Everything that depends on a task asks its description."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from kformer.wording import did_you_mean

_ENCODER, _DECODER = "num_encoder_layers", "num_decoder_layers"
_ENCODERS = ("translate", "classify", "tag", "masked-language-model")  # tasks whose models have an encoder
# Smoothed labels would raise the perplexity by which language models are compared.
_NOT_SMOOTHED = {"label_smoothing": 0.0}


@dataclasses.dataclass(frozen=True)
class TaskKind:
    """The description of a task.

    Attributes:
        name: By which the task is chosen.
        targets: What the model learns for a text: another "text"; one "label"; "tags", one for each word; or "none",
            where it learns from plain text, a text on each line.
        layers: The numbers of layers, fields of a `TransformerConfig`, that are not 0.
        builder: Module and name of the function that builds the model; `pkgutil.resolve_name` reads it when it is used.
        implementation: The same of the class, a `kformer.tasks.base.Task`.
        first_weights: The tasks of the runs whose weights a model can begin with.
        outputs: The names of two outputs of a trained model: the answer, a string, and its score, a float32. None for a
            model that answers nothing by itself.
        command: The command that uses a trained model; None if there is none.
        scored_by: What `kformer evaluate` compares: "translations", "labels", or how probable "texts" are.
        searches: Whether the model searches for its answer token by token.
        samples_subwords: Whether training may divide texts into subwords anew each time that they are seen.
        has_cross_attention: Whether the model attends from the target to the source, so that it can learn which word
            translates which.
        with_options: The signature by which a model answers with the options of a request, `kformer.text.options`; None
            if it takes none.
        training: The fields of a `TrainingConfig` in which the task differs from the settings of a size.

    Examples:
        >>> task_kind("tag").layers, task_kind("tag").outputs
        (('num_encoder_layers',), ('tags', 'score'))
    """

    name: str
    targets: Literal["text", "label", "tags", "none"]
    layers: tuple[str, ...]
    builder: str
    implementation: str
    first_weights: tuple[str, ...]
    outputs: tuple[str, str] | None
    command: str | None
    scored_by: Literal["translations", "labels", "texts"] | None
    searches: bool = False
    samples_subwords: bool = False
    has_cross_attention: bool = False
    with_options: str | None = None
    training: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def has_labels(self) -> bool:
        """Whether the model chooses from labels: a classifier or a tagger."""
        return self.targets in ("label", "tags")

    @property
    def learns_from_plain_text(self) -> bool:
        """Whether the model learns from texts alone. Others learn from pairs."""
        return self.targets == "none"


_KINDS = (
    TaskKind(
        "translate",
        targets="text",
        layers=(_ENCODER, _DECODER),
        builder="kformer.models.transformer:build_transformer",
        implementation="kformer.tasks.translate:TranslateTask",
        first_weights=("translate",),
        outputs=("translation", "score"),
        command="translate",
        scored_by="translations",
        searches=True,
        samples_subwords=True,
        has_cross_attention=True,
        with_options="translate_with_options",
    ),
    TaskKind(
        "classify",
        targets="label",
        layers=(_ENCODER,),
        builder="kformer.models.encoder_only:build_classifier",
        implementation="kformer.tasks.classify:ClassifyTask",
        first_weights=_ENCODERS,
        outputs=("label", "probability"),
        command="classify",
        scored_by="labels",
    ),
    TaskKind(
        "tag",
        targets="tags",
        layers=(_ENCODER,),
        builder="kformer.models.encoder_only:build_tagger",
        implementation="kformer.tasks.tag:TagTask",
        first_weights=_ENCODERS,
        outputs=("tags", "score"),
        command="tag",
        scored_by="labels",
    ),
    TaskKind(
        "language-model",
        targets="none",
        layers=(_DECODER,),
        builder="kformer.models.decoder_only:build_language_model",
        implementation="kformer.tasks.language_model:LanguageModelTask",
        first_weights=("language-model",),
        outputs=("text", "score"),
        command="generate",
        scored_by="texts",
        searches=True,
        samples_subwords=True,
        with_options="generate_with_options",
        training=_NOT_SMOOTHED,
    ),
    TaskKind(
        "masked-language-model",
        targets="none",
        layers=(_ENCODER,),
        builder="kformer.models.encoder_only:build_masked_language_model",
        implementation="kformer.tasks.masked_language_model:MaskedLanguageModelTask",
        first_weights=_ENCODERS,
        outputs=None,
        command=None,
        scored_by=None,
        training=_NOT_SMOOTHED,
    ),
)
# By name, in the order in which messages and pages list them.
TASKS: dict[str, TaskKind] = {kind.name: kind for kind in _KINDS}


def task_kind(name: str) -> TaskKind:
    """The description of the task with this name.

    Raises:
        ValueError: There is no such task.
    """
    if name not in TASKS:
        raise ValueError(f"There is no task {name!r}. Choose one of {', '.join(TASKS)}.{did_you_mean([name], TASKS)}")
    return TASKS[name]


def answer_outputs(task: str) -> tuple[str, str]:
    """The names of two outputs of a trained model: the answer, a string, and its score, a float32.

    Raises:
        ValueError: There is no such task, or its models answer nothing by themselves.
    """
    outputs = task_kind(task).outputs
    if outputs is None:
        raise ValueError(f"A model of the task {task} answers nothing by itself. It gives first weights to others.")
    return outputs


def check_first_weights(task: str, earlier: str) -> None:
    """Refuses first weights of a model that has no layers in common with the new one.

    Args:
        task: What the new model learns.
        earlier: What the model with the first weights has learned.

    Raises:
        ValueError: A model of one of the tasks has no encoder, or one no decoder of the same kind.

    Examples:
        >>> check_first_weights("classify", "masked-language-model")
    """
    suitable = task_kind(task).first_weights
    if earlier not in suitable:
        raise ValueError(
            f"A model of the task {task} can begin with the weights of a run of: {', '.join(suitable)}. "
            f"Received: a run of the task {earlier}. Begin with another run, or with new weights."
        )
