"""Checks an export before it gets its name: in this process and another, it must compute what the predictor does."""

import base64
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from kformer.config import answer_outputs
from kformer.export.lint import is_refused
from kformer.export.operations import operations, read
from kformer.runtime import c_api
from kformer.runtime.signature_names import DEFAULT_SIGNATURE
from kformer.tasks.predictor import Predictor

# How far scores may be apart, as a share of their mean.
SCORE_TOLERANCE = {"float32": 1e-3, "float16": 0.05, "bfloat16": 0.05, "int16": 0.05, "int8": 0.1}


def check_operations(saved_model: str | pathlib.Path) -> set[str]:
    """Refuses a SavedModel that a stock TensorFlow Serving could not run.

    Returns:
        The names of all operations in the graph.

    Raises:
        ValueError: There is a Python callback or an operation of the XLA bridge in it.
    """
    used = operations(saved_model)
    refused = sorted(filter(is_refused, used))
    if refused:
        raise ValueError(
            f"The graph holds operations that TensorFlow Serving does not run: {', '.join(refused)}. "
            "Use a tokenizer that is made of TensorFlow operations."
        )
    return used


def check_agreement(
    answer: Callable[..., Any], predictor: Predictor, texts: Sequence[str], precision: str
) -> dict[str, float]:
    """Answers `texts` with both: the share of identical answers, and how far the scores are apart.

    Args:
        answer: The signature of the export, loaded again.
        predictor: What was exported.
        texts: What is answered.
        precision: Of the export.

    Raises:
        ValueError: Their scores differ by more than rounding to `precision` explains.
    """
    expected, found = predictor.function(tf.constant(list(texts))), answer(text=tf.constant(list(texts)))
    output, score = answer_outputs(predictor.task)
    same = expected[output].numpy() == found[output].numpy()
    agreement = check_scores(expected[score].numpy(), found[score].numpy(), precision)
    return {"samples": len(texts), "identical_answers": float(same.mean()), **agreement}


def check_scores(expected: np.ndarray, found: np.ndarray, precision: str) -> dict[str, float]:
    """How far the scores of an export are from those of the predictor, as a share of their mean.

    Args:
        expected: (B,), of the predictor.
        found: (B,), of the export.
        precision: Of the export.

    Raises:
        ValueError: They differ by more than rounding to `precision` explains.
    """
    share = score_difference(expected, found)
    if not share <= SCORE_TOLERANCE[precision]:  # also refuses NaN
        raise ValueError(
            f"The export does not compute what the predictor does. Its scores on {len(expected)} texts differ by "
            f"{share:.2%} of their mean; rounding to {precision} explains at most {SCORE_TOLERANCE[precision]:.2%}. "
            f"{_remedy(precision)}"
        )
    return {"score_difference": share}


def score_difference(expected: np.ndarray, found: np.ndarray) -> float:
    """The mean difference of scores, as a share of their mean."""
    return float(np.abs(expected - found).mean() / max(np.abs(expected).mean(), 1e-9))


def check_without_python(
    saved_model: pathlib.Path,
    answer: Callable[..., Any],
    predictor: Predictor,
    texts: Sequence[str],
    precision: str,
) -> dict[str, float]:
    """Loads the export through TensorFlow's C API, as a server does, in a separate process.

    That process answers the texts in one batch and one by one, and calls every other signature once.

    Args:
        saved_model: The export.
        answer: Its signature `serving_default`, loaded by Python.
        predictor: What was exported.
        texts: What is answered.
        precision: Of the export.

    Returns:
        The share of texts that have the same answer alone and in the batch.

    Raises:
        ValueError: The C API does not load the export, a signature does not answer, or the results differ.
    """
    texts = list(texts)
    batches = [_encoded(batch) for batch in (texts, *([text] for text in texts))]
    together, *alone = _run([*batches, *_requests(saved_model, texts[0])], saved_model)
    alone = alone[: len(texts)]
    expected = answer(text=tf.constant(list(texts)))
    output, score = answer_outputs(predictor.task)
    for found in (together[score], [one[score][0] for one in alone]):
        share = score_difference(expected[score].numpy(), np.array(found))
        if not share <= SCORE_TOLERANCE[precision]:
            raise ValueError(
                f"The export gives different results outside Python or for single texts. The scores of {len(texts)} "
                f"texts differ by {share:.2%} of their mean. {_remedy(precision)}"
            )
    same = [one[output][0] == batch for one, batch in zip(alone, together[output], strict=True)]
    return {"identical_alone": float(np.mean(same))}


def _remedy(precision: str) -> str:
    if precision != "float32":
        return "Export in float32."
    return "This is a fault of kformer or of a library, not of your model: please report it with this message."


def _encoded(texts: Sequence[str]) -> list[dict[str, str]]:
    return [{"b64": base64.b64encode(text.encode()).decode()} for text in texts]


def _requests(saved_model: pathlib.Path, text: str) -> Iterator[dict[str, Any]]:
    """A request of every signature but the default one. Inputs with a default have it, all others are the text."""
    for name, definition in sorted(read(saved_model).meta_graphs[0].signature_def.items()):
        if name == DEFAULT_SIGNATURE or name.startswith("__"):
            continue
        inputs: dict[str, Any] = {key: _encoded([text]) for key in definition.inputs}
        for key, value in definition.defaults.items():
            default = tf.make_ndarray(value)
            is_text = default.ndim == 1
            inputs[key] = (
                _encoded([one.decode() for one in default]) if is_text else {default.dtype.name: default.item()}
            )
        yield {"signature": name, "inputs": inputs}


def _run(requests: Sequence[Any], saved_model: pathlib.Path) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", c_api.__name__, str(saved_model)]  # it reads requests from standard input
    paths = os.pathsep.join(filter(None, sys.path))  # with this kformer, wherever it was imported from
    done = subprocess.run(
        command,
        input=json.dumps(requests),
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
        env={**os.environ, "PYTHONPATH": paths},
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no error message"])[-1]
        raise ValueError(f"The export does not run outside Python: {reason}. No incomplete export remains.")
    return json.loads(done.stdout.splitlines()[-1])
