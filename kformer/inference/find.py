"""Finds a model, and checks that it can do the requested search, before TensorFlow is loaded."""

import pathlib
from typing import Any

from kformer.config import DecodingConfig, task_kind
from kformer.runs.folder import RunFolder
from kformer.runtime.export_description import description
from kformer.runtime.versions import find_saved_model


def find_model(path: str | pathlib.Path) -> RunFolder | pathlib.Path:
    """The run folder or folder of CTranslate2 at `path`, or that of the SavedModel there (the last numbered version).

    Raises:
        FileNotFoundError: There is no model at `path`, or a run folder without weights.
    """
    path = pathlib.Path(path)
    saved_model = find_saved_model(path)
    if saved_model is not None:
        return saved_model
    if description(path).get("format") == "ctranslate2":
        return path
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist. Name a run folder or a SavedModel.")
    return RunFolder(path).check()


def check_search(model: RunFolder | pathlib.Path, decoding: DecodingConfig | None, n_best: int = 1) -> None:
    """Refuses a search that the model cannot do.

    Args:
        model: From `find_model`.
        decoding: How to search; None: the model's default.
        n_best: Hypotheses per text.

    Raises:
        ValueError: `decoding` or `n_best` is given for a SavedModel, or `n_best` exceeds the beam size.
    """
    if not isinstance(model, RunFolder):
        if decoding is not None or n_best != 1:
            raise ValueError(
                f"{model} is an export: its search was fixed when it was exported, and it gives one translation "
                "per text. Leave out the options of the search and n-best, or name the run folder."
            )
        return
    beam_size = model.decoding_config(decoding).beam_size
    if n_best > beam_size:
        raise ValueError(
            f"A search finds at most beam_size hypotheses. Received: n_best={n_best}, "
            f"beam_size={beam_size}. Widen the beam."
        )


def check_task(model: RunFolder | pathlib.Path, task: str) -> None:
    """Refuses a model that learned another task.

    Args:
        model: From `find_model`.
        task: One of `kformer.config.TASKS`.

    Raises:
        ValueError: The model is of another task.
    """
    own = task_name(model)
    if own != task:
        kind = task_kind(own)
        in_python = "Use it in Python." if kind.outputs else "It only gives first weights to other models."
        remedy = f"Use `kformer {kind.command}`." if kind.command else in_python
        raise ValueError(f"{_path(model)} has learned the task {own}. Expected: a model of the task {task}. {remedy}")


def check_answers(model: RunFolder | pathlib.Path) -> None:
    """Refuses a model that answers nothing, a masked language model.

    Args:
        model: From `find_model`.

    Raises:
        ValueError: The model has no outputs that answer a text.
    """
    own = task_name(model)
    if task_kind(own).outputs is None:
        raise ValueError(
            f"{_path(model)} has learned the task {own}, and answers nothing by itself. Train a classifier or a tagger "
            f"that begins with its weights: `kformer train --task classify --initialize-from {_path(model)}`."
        )


def task_name(model: RunFolder | pathlib.Path) -> str:
    """The task that a model from `find_model` has learned."""
    if isinstance(model, RunFolder):
        return model.transformer_config().task
    return description(model).get("task", "translate")


def search_of(model: RunFolder | pathlib.Path, decoding: DecodingConfig | None) -> dict[str, Any]:
    """The fields of the `DecodingConfig` by which a model from `find_model` searches, with this search or its own.

    There are none where nobody knows them: for a SavedModel that kformer did not write.
    """
    if isinstance(model, RunFolder):
        return model.decoding_config(decoding).to_dict()
    return description(model)


def _path(model: RunFolder | pathlib.Path) -> pathlib.Path:
    return model.path if isinstance(model, RunFolder) else model


def reads_symbols(model: RunFolder | pathlib.Path) -> bool | None:
    """Whether the sources of a model are symbols split by blanks, not sentences; None where the model does not say.

    Args:
        model: From `find_model`.
    """
    if isinstance(model, RunFolder):
        return model.reads_symbols()
    return description(model).get("symbols")
