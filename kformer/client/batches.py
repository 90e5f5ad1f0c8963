"""A server as the function that `kformer.text.batches.translate_all` calls."""

from collections.abc import Mapping, Sequence

from kformer.client.client import Client
from kformer.config import answer_outputs
from kformer.runtime.versions import DEFAULT_SIGNATURE
from kformer.text.batches import BatchSeeds, Hypothesis, TranslateBatch, hypotheses
from kformer.text.options import option_arrays

REQUESTS_AT_ONCE = 4


def answer_batch(client: Client, n_best: int = 1, task: str = "translate") -> TranslateBatch:
    """A function that answers batches on a server; many threads may call it at once.

    Args:
        client: Of the server.
        n_best: Hypotheses per text. For more than one the model must have the signature `n_best`.
        task: What the model must have learned, see `kformer.inference.load.load_model`.

    Raises:
        ValueError: The model lacks the signature, or has learned another task.
        ServerError: The server does not answer.
    """
    signature = DEFAULT_SIGNATURE if n_best == 1 else "n_best"
    _check_model(client, signature, task)

    def answer(texts: Sequence[bytes]) -> list[list[Hypothesis]]:
        outputs = client.predict(signature, {"text": texts})
        found = hypotheses(*(outputs[name] for name in answer_outputs(task)))
        if found and len(found[0]) < n_best:
            raise ValueError(
                f"The signature n_best of {client.url} gives {len(found[0])} hypotheses per text. Received: "
                f"n_best={n_best}. Ask for no more."
            )
        return [best[:n_best] for best in found]

    return answer


def generate_batch(client: Client, options: Mapping[str, float | int]) -> TranslateBatch:
    """The same for a language model that goes on with texts as the options say.

    Every batch has its own seed. Call the function for one batch at a time where the same seed is to draw the same
    texts again.

    Args:
        client: Of the server.
        options: Inputs of the signature `generate_with_options`, the seed among them. The server takes the model's own
            value for another option that is left out.

    Raises:
        ValueError, ServerError: As for `answer_batch`.
    """
    signature = "generate_with_options"
    _check_model(client, signature, "language-model")
    seeds = BatchSeeds(int(options["seed"]))

    def answer(texts: Sequence[bytes]) -> list[list[Hypothesis]]:
        inputs = option_arrays({**options, "seed": seeds.next(len(texts))})
        outputs = client.predict(signature, {"text": texts, **inputs})
        return hypotheses(*(outputs[name] for name in answer_outputs("language-model")))

    return answer


def _check_model(client: Client, signature: str, task: str) -> None:
    """Asks the server for the model's signatures."""
    known = client.metadata()["metadata"]["signature_def"]["signature_def"]
    given = known[DEFAULT_SIGNATURE].get("outputs", {}) if DEFAULT_SIGNATURE in known else {}
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
