"""A model with the sinusoids of the paper as the same model with all sines before all cosines.

The two orders of sinusoids differ in the places of the features. So the features of embeddings, of the inputs and
outputs of all sublayers, and of the norms change places in the same way, and every logit stays what it was. Only sums
have another order.

Shape letters: D model size, V vocabulary, F any other features.
"""

from collections.abc import Mapping

import numpy as np

# The ends of the paths of the weights with such features.
_FROM_FEATURES = ("query/kernel", "key/kernel", "value/kernel", "inner/kernel", "/reverse_embeddings")  # (D, F)
_TO_FEATURES = (  # (F, D) and (D,)
    *("/embeddings", "output/kernel", "output/bias", "outer/kernel", "outer/bias"),
    *("norm/gamma", "norm/beta"),
)


def with_halved_positions(weights: Mapping[str, np.ndarray], d_model: int) -> dict[str, np.ndarray]:
    """The weights of a translator with `positional_encoding="sinusoidal"` for one with "sinusoidal_halves".

    Args:
        weights: By their paths: attention with one matrix for each projection, no gates, and layer norms.
        d_model: D.

    Examples:
        >>> weights = {"shared_embedding/embeddings": np.array([[10, 11, 12, 13]]), "logits/bias": np.array([1])}
        >>> {path: array.tolist() for path, array in with_halved_positions(weights, 4).items()}
        {'shared_embedding/embeddings': [[10, 12, 11, 13]], 'logits/bias': [1]}
    """
    order = np.concatenate([np.arange(0, d_model, 2), np.arange(1, d_model, 2)])
    return {path: _ordered(path, array, order) for path, array in weights.items()}


def _ordered(path: str, array: np.ndarray, order: np.ndarray) -> np.ndarray:
    if path.endswith(_FROM_FEATURES):
        return array[order]
    return array[..., order] if path.endswith(_TO_FEATURES) else array
