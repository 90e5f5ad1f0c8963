"""A server as the function that `kformer.text.batches.answer_all` calls."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kformer.client.client import Client
from kformer.client.errors import TOO_LARGE, ServerError, odd_answers_told
from kformer.config import answer_outputs, task_kind
from kformer.runtime.signature_names import DEFAULT_SIGNATURE, DETAILED
from kformer.text.batches import AnswerDrawn, BatchSeeds, Hypothesis, RefusedTextError, batch_seed, hypotheses
from kformer.text.given_answers import SCORE, scored
from kformer.text.options import option_arrays
from kformer.text.word_alignment import with_alignments

REQUESTS_AT_ONCE = 4
_OF_THE_REQUEST = (400, TOO_LARGE)  # statuses of a request that is wrong or too large


def answer_batch(
    client: Client,
    n_best: int = 1,
    task: str = "translate",
    options: Mapping[str, float | int] | None = None,
    alignments: bool = False,
) -> AnswerDrawn:
    """A function that answers batches on a server, as a `kformer.inference.Model` does here.

    Many threads may call it at once. With options, every batch has its own seed: call it for one batch at a time where
    the same seed is to draw the same texts again.

    Args:
        client: Of the server.
        n_best: Hypotheses per text. For more than one the model must have the signature `n_best`.
        task: What the model must have learned.
        options: How a translator or a language model finds its answers: inputs of the signature that takes them, such
            as `translate_with_options`. The server takes the model's own value for another one that is left out, but 0
            for the seed.
        alignments: See `kformer.inference.Model`.

    Raises:
        ValueError: The model lacks the signature, or has learned another task. The function raises a
            `RefusedTextError`, which is one, for a text that the server refuses.
        ServerError: The server does not answer.
    """
    signature = DEFAULT_SIGNATURE if n_best == 1 else "n_best"
    if options:
        signature = task_kind(task).with_options or DEFAULT_SIGNATURE
    if alignments:
        signature = DETAILED
    _check_model(client, signature, task)
    given = options or {}
    seeds = BatchSeeds(int(given.get("seed", 0)))

    def answer(texts: Sequence[bytes], seed: int | None = None) -> list[list[Hypothesis]]:
        inputs = {}
        if given:
            inputs = option_arrays({**given, "seed": seeds.next(len(texts)) if seed is None else seed})
        outputs = client.predict(signature, {"text": texts, **inputs})
        with odd_answers_told(client.url):
            found = hypotheses(*(outputs[name] for name in answer_outputs(task)))
            if len(found) != len(texts):
                raise ValueError(f"{len(found)} answers to {len(texts)} texts")
            if alignments:
                found = with_alignments(found, texts, outputs)
        if found and len(found[0]) < n_best:
            raise ValueError(
                f"The signature {signature} of {client.url} gives {len(found[0])} hypotheses per text. Received: "
                f"n_best={n_best}. Ask for no more."
            )
        return [best[:n_best] for best in found]

    return _naming_refused_texts(answer)


def score_batch(client: Client, task: str = "translate", on_cut: Callable[[bytes], None] | None = None) -> AnswerDrawn:
    """A function that gives the log probabilities of given answers, see `kformer.text.given_answers`.

    Args:
        client: Of the server.
        task: What the model must have learned.
        on_cut: Called for each line whose end the model does not read.

    Raises:
        ValueError: The model lacks the signature, or has learned another task. The function raises a
            `RefusedTextError`, which is one, for a text that the server refuses.
        ServerError: The server does not answer.
    """
    _check_model(client, SCORE, task)

    def run(signature: str, inputs: Mapping[str, Sequence[bytes]]) -> dict[str, np.ndarray]:
        outputs = client.predict(signature, inputs)
        with odd_answers_told(client.url):
            shapes = {name: outputs[name].astype(float).shape for name in ("log_probability", "tokens")}
            if {*shapes.values()} != {(len(inputs["text"]),)}:
                raise ValueError(f"{shapes} for {len(inputs['text'])} texts")
        return outputs

    return _naming_refused_texts(scored(run, task_kind(task).has_cross_attention, on_cut))


def scored_task(client: Client) -> str:
    """The task of a server's model that can be asked for log probabilities.

    Raises:
        ValueError: The model lacks the signature.
        ServerError: The server does not answer.
    """
    known = _signatures(client)
    with odd_answers_told(client.url):
        if SCORE in known:
            return "translate" if "translation" in known[SCORE]["inputs"] else "language-model"
    raise ValueError(
        f"The model of {client.url} has no signature {SCORE}, but {', '.join(sorted(known))}. A translator or a "
        f"language model gets it by kformer export --signature {SCORE}."
    )


def check_server_tag(client: Client, tag: str) -> None:
    """Asks a server whether its translator knows a tag.

    Raises:
        ValueError: It does not.
        ServerError: The server does not answer, or its model cannot be asked.
    """
    try:
        client.predict("translate_with_options", {"text": [b""], "tag": [tag.encode()]})
    except ServerError as error:
        if error.code not in _OF_THE_REQUEST:
            raise
        raise ValueError(f"The model at {client.url} does not take the tag {tag!r}. It says: {error}") from error


def _naming_refused_texts(ask: AnswerDrawn) -> AnswerDrawn:
    """The same function. Of a batch that the server refuses each text is asked for alone, to find the one at fault.

    It raises a `RefusedTextError` for that text.
    """

    def answer(texts: Sequence[bytes], seed: int | None = None) -> list[list[Hypothesis]]:
        try:
            return ask(texts, seed)
        except ServerError as error:
            if error.code not in _OF_THE_REQUEST:
                raise
            if len(texts) == 1:
                raise RefusedTextError(str(error), texts[0]) from error
        seeds = [None if seed is None else batch_seed(seed, place) for place in range(len(texts))]
        return [found for text, own in zip(texts, seeds, strict=True) for found in answer([text], own)]

    return answer


def _check_model(client: Client, signature: str, task: str) -> None:
    """Asks the server for the model's signatures."""
    known = _signatures(client)
    with odd_answers_told(client.url):
        given = dict(known[DEFAULT_SIGNATURE].get("outputs", {})) if DEFAULT_SIGNATURE in known else {}
    if missing := sorted({*answer_outputs(task)} - {*given}):
        raise ValueError(
            f"{client.url} gives no {', '.join(missing)}: its {DEFAULT_SIGNATURE} gives {', '.join(sorted(given))}. "
            f"Expected: a model that has learned the task {task}. Name another model, or use the command of its task."
        )
    if signature not in known:
        raise ValueError(
            f"The model of {client.url} has no signature {signature}, but {', '.join(sorted(known))}. Leave out the "
            f"option that needs it, or export the model with --signature {signature}."
        )


def _signatures(client: Client) -> dict[str, Any]:
    """The server's signatures by their names."""
    metadata = client.metadata()
    with odd_answers_told(client.url):
        return dict(metadata["metadata"]["signature_def"]["signature_def"])
