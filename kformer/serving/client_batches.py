"""A server as the function that `kformer.translation.batches.translate_all` calls."""

from collections.abc import Sequence

from kformer.export.versions import DEFAULT_SIGNATURE
from kformer.serving.client import Client
from kformer.translation.batches import Hypothesis, TranslateBatch, hypotheses

REQUESTS_AT_ONCE = 4


def translate_batch(client: Client, n_best: int = 1) -> TranslateBatch:
    """A function that translates batches on a server; many threads may call it at once.

    Args:
        client: Of the server.
        n_best: Hypotheses per text. For more than one the model must have the signature `n_best`.

    Raises:
        ValueError: The model lacks the signature.
        ServerError: The server does not answer.
    """
    signature = DEFAULT_SIGNATURE if n_best == 1 else "n_best"
    if n_best > 1:
        known = client.metadata()["metadata"]["signature_def"]["signature_def"]
        if signature not in known:
            raise ValueError(
                f"{client.url} gives one translation per text: its model has no signature n_best, but "
                f"{', '.join(sorted(known))}. Leave out --n-best, or export the model with --signature n_best."
            )

    def translate(texts: Sequence[bytes]) -> list[list[Hypothesis]]:
        outputs = client.predict(signature, {"text": texts})
        found = hypotheses(outputs["translation"], outputs["score"])
        if found and len(found[0]) < n_best:
            raise ValueError(
                f"The signature n_best of {client.url} gives {len(found[0])} hypotheses per text. Received: "
                f"n_best={n_best}. Ask for no more."
            )
        return [best[:n_best] for best in found]

    return translate
