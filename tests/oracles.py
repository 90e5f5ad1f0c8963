"""The Transformer's formulas in plain NumPy loops and float64: slow, and easy to check against the paper.

Shape letters: B batch, T queries, S keys, H heads, K size of a head, D model size, F inner size.

Weights come as a flat dictionary with the layer's own names, as `weights_of` gives them:
`self_attention/query/kernel`, `feed_forward/inner/bias`, ...
"""

import math

import keras
import numpy as np


def randomize(layer: keras.layers.Layer, seed: int = 5) -> None:
    """Gives every weight, biases and norms included, a value that leaves no term of a formula idle."""
    generator = np.random.default_rng(seed)
    for weight in layer.weights:
        centre = 1.0 if weight.name == "gamma" else 0.0
        weight.assign(generator.normal(centre, 0.3, weight.shape))


def weights_of(layer: keras.layers.Layer) -> dict[str, np.ndarray]:
    """The weights of a built layer by their names below it, in float64."""
    return {
        weight.path.removeprefix(layer.name + "/"): keras.ops.convert_to_numpy(weight).astype("float64")
        for weight in layer.weights
    }


def below(weights: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """The weights of the sublayer `name`."""
    return {key.removeprefix(name + "/"): value for key, value in weights.items() if key.startswith(name + "/")}


def softmax(scores: list[float]) -> list[float]:
    highest = max(scores)
    powers = [math.exp(score - highest) for score in scores]
    return [power / sum(powers) for power in powers]


def attention_weights(query: np.ndarray, key: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    """Equation 1 without V: (B, H, T, K), (B, H, S, K), (B, H, T, S) to (B, H, T, S)."""
    batch, heads, queries, size = query.shape
    keys = key.shape[2]
    mask = np.ones((1, 1, 1, 1), bool) if mask is None else mask
    mask = np.broadcast_to(mask, (batch, heads, queries, keys))
    weights = np.zeros((batch, heads, queries, keys))
    for b, h, t in np.ndindex(batch, heads, queries):
        seen = [s for s in range(keys) if mask[b, h, t, s]]
        if not seen:
            continue
        scores = [sum(query[b, h, t, k] * key[b, h, s, k] for k in range(size)) / math.sqrt(size) for s in seen]
        weights[b, h, t, seen] = softmax(scores)
    return weights


def attention(query: np.ndarray, key: np.ndarray, value: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    """Equation 1: (B, H, T, K), (B, H, S, K) twice to (B, H, T, K)."""
    weights = attention_weights(query, key, mask)
    outputs = np.zeros(query.shape)
    for b, h, t, s in np.ndindex(weights.shape):
        outputs[b, h, t] += weights[b, h, t, s] * value[b, h, s]
    return outputs


def dense(weights: dict[str, np.ndarray], inputs: np.ndarray) -> np.ndarray:
    return inputs @ weights["kernel"] + weights["bias"]


def multi_head_attention(
    weights: dict[str, np.ndarray],
    num_heads: int,
    query: np.ndarray,
    key: np.ndarray | None = None,
    mask: np.ndarray | None = None,
) -> np.ndarray:
    """Section 3.2.2: head i reads the i-th slice of every projection; the heads are put side by side again."""
    key = query if key is None else key
    q, k, v = (dense(below(weights, name), x) for name, x in (("query", query), ("key", key), ("value", key)))
    size = q.shape[-1] // num_heads
    heads = []
    for head in range(num_heads):
        part = slice(head * size, (head + 1) * size)
        heads.append(attention(q[:, None, :, part], k[:, None, :, part], v[:, None, :, part], mask)[:, 0])
    return dense(below(weights, "output"), np.concatenate(heads, axis=-1))


def feed_forward(weights: dict[str, np.ndarray], inputs: np.ndarray) -> np.ndarray:
    """Equation 2."""
    return dense(below(weights, "outer"), np.maximum(0.0, dense(below(weights, "inner"), inputs)))


def layer_norm(weights: dict[str, np.ndarray], inputs: np.ndarray, epsilon: float = 1e-6) -> np.ndarray:
    outputs = np.empty(inputs.shape)
    for index in np.ndindex(inputs.shape[:-1]):
        row = inputs[index]
        mean = sum(row) / len(row)
        variance = sum((x - mean) ** 2 for x in row) / len(row)
        outputs[index] = (row - mean) / math.sqrt(variance + epsilon) * weights["gamma"] + weights["beta"]
    return outputs


def residual(weights: dict[str, np.ndarray], inputs: np.ndarray, sublayer, norm_first: bool) -> np.ndarray:
    """LayerNorm(x + Sublayer(x)), or x + Sublayer(LayerNorm(x))."""
    norm = below(weights, "norm")
    if norm_first:
        return inputs + sublayer(layer_norm(norm, inputs))
    return layer_norm(norm, inputs + sublayer(inputs))


def encoder_layer(
    weights: dict[str, np.ndarray], num_heads: int, inputs: np.ndarray, mask: np.ndarray, norm_first: bool
) -> np.ndarray:
    """Section 3.1: two sublayers."""

    def attend(x):
        return multi_head_attention(below(weights, "self_attention"), num_heads, x, mask=mask)

    attended = residual(below(weights, "self_attention_residual"), inputs, attend, norm_first)
    return residual(
        below(weights, "feed_forward_residual"),
        attended,
        lambda x: feed_forward(below(weights, "feed_forward"), x),
        norm_first,
    )


def decoder_layer(
    weights: dict[str, np.ndarray],
    num_heads: int,
    inputs: np.ndarray,
    encoder_output: np.ndarray,
    self_mask: np.ndarray,
    cross_mask: np.ndarray,
    norm_first: bool,
) -> np.ndarray:
    """Section 3.1: three sublayers."""

    def self_attend(x):
        return multi_head_attention(below(weights, "self_attention"), num_heads, x, mask=self_mask)

    def cross_attend(x):
        return multi_head_attention(below(weights, "cross_attention"), num_heads, x, encoder_output, cross_mask)

    outputs = residual(below(weights, "self_attention_residual"), inputs, self_attend, norm_first)
    outputs = residual(below(weights, "cross_attention_residual"), outputs, cross_attend, norm_first)
    return residual(
        below(weights, "feed_forward_residual"),
        outputs,
        lambda x: feed_forward(below(weights, "feed_forward"), x),
        norm_first,
    )


def sinusoids(length: int, d_model: int, offset: int = 0) -> np.ndarray:
    """Section 3.5: sines on even features, cosines on odd ones."""
    table = np.zeros((length, d_model))
    for row in range(length):
        for feature in range(0, d_model, 2):
            angle = (offset + row) / 10000 ** (feature / d_model)
            table[row, feature] = math.sin(angle)
            table[row, feature + 1] = math.cos(angle)
    return table
