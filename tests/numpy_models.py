"""Transformers in NumPy and float64, as papers or the code of others describe them. They share no code with kformer.

They read the weights of a kformer model by their paths, and the options from its configuration.
Shape letters: B batch, T positions of queries, S of keys, H heads, G heads of keys and values, K size of a head.
"""

import functools
import math

import keras
import numpy as np

from kformer.config import TransformerConfig


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2,
    "gelu_tanh": gelu_tanh,
    "silu": lambda x: x / (1 + np.exp(-x)),
}
GATES = {"swiglu": "silu", "geglu_tanh": "gelu_tanh"}


def t5_bucket(distance: int, one_way: bool) -> int:
    """`_relative_position_bucket` of T5, with 32 buckets and a largest distance of 128; `distance` is key - query."""
    buckets, first = (32, 0) if one_way else (16, 16 if distance > 0 else 0)
    distance = max(-distance, 0) if one_way else abs(distance)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    far = exact + int(math.log(distance / exact) / math.log(128 / exact) * (buckets - exact))
    return first + min(far, buckets - 1)


class NumpyModel:
    """The forward pass of a model of `build_transformer`, `build_language_model` or `build_masked_language_model`."""

    def __init__(self, model: keras.Model, config: TransformerConfig) -> None:
        self.config = config
        self.weights = {one.path: keras.ops.convert_to_numpy(one).astype("float64") for one in model.weights}

    def translator(self, source: np.ndarray, target_in: np.ndarray) -> np.ndarray:
        """(B, T, V) logits."""
        visible = (source != self.config.pad_id)[:, None, None, :]
        memory = self.stack("encoder", self.embed("source", source), visible, causal=False)
        outputs = self.stack("decoder", self.embed("target", target_in), None, True, memory, visible)
        return self.logits("target", outputs)

    def language_model(self, target_in: np.ndarray) -> np.ndarray:
        """(B, T, V) logits."""
        return self.logits("target", self.stack("decoder", self.embed("target", target_in), None, causal=True))

    def masked_language_model(self, source: np.ndarray) -> np.ndarray:
        """(B, S, V) logits, by the head of BERT: dense, GELU, norm, the embedding matrix and a bias."""
        ends = np.cumsum(source == self.config.end_id, axis=1) - (source == self.config.end_id)
        embedded = self.embed("source", source) + self.weights["segments/vectors"][np.minimum(ends, 1)]
        outputs = self.stack("encoder", embedded, (source != self.config.pad_id)[:, None, None, :], causal=False)
        return self.logits("source", self.norm("transform_norm", ACTIVATIONS["gelu"](self.dense("transform", outputs))))

    def embed(self, side: str, ids: np.ndarray) -> np.ndarray:
        vectors = self.matrix(side)[ids]
        return vectors * math.sqrt(self.config.d_model) if self.config.scale_embeddings else vectors

    def matrix(self, side: str) -> np.ndarray:
        shared = self.weights.get("shared_embedding/embeddings")
        return self.weights[f"{side}_embedding/embeddings"] if shared is None else shared

    def logits(self, side: str, outputs: np.ndarray) -> np.ndarray:
        untied = self.weights.get(f"{side}_embedding/reverse_embeddings")
        return outputs @ (self.matrix(side).T if untied is None else untied) + self.weights.get("logits/bias", 0.0)

    def stack(self, name, x, mask, causal, memory=None, memory_mask=None) -> np.ndarray:
        config, length = self.config, x.shape[1]
        x, rotate, bias = self.positions(name, x, causal)
        if config.normalize_embeddings:
            x = self.norm(f"{name}/embedding_norm", x)
        mask = np.tril(np.ones((length, length), bool)) if causal else mask
        layers = config.num_decoder_layers if causal else config.num_encoder_layers
        within = functools.partial(self.attention, mask=mask, rotate=rotate, bias=bias)
        across = functools.partial(self.attention, mask=memory_mask, memory=memory)
        for layer in (f"{name}/layer_{number}" for number in range(layers)):
            x = self.residual(f"{layer}/self_attention", x, within)
            if memory is not None:
                x = self.residual(f"{layer}/cross_attention", x, across)
            x = self.residual(f"{layer}/feed_forward", x, self.feed_forward)
        return self.norm(f"{name}/final_norm", x) if config.norm_first else x

    def positions(self, stack: str, x: np.ndarray, causal: bool):
        """The embeddings with their positions, the rotation of queries and keys, and the bias of the scores."""
        kind, length = self.config.positional_encoding, x.shape[1]
        if kind == "learned":
            return x + self.weights[f"{stack}/positions/embeddings"][:length], None, 0.0
        if kind == "sinusoidal_halves":
            angles = self.angles(self.config.first_position + np.arange(length), x.shape[2])
            return x + np.concatenate([np.sin(angles), np.cos(angles)], axis=1), None, 0.0
        if kind == "rotary":
            return x, self.rotate, 0.0
        biases = self.weights[f"{stack}/positions/biases"]  # (32, H)
        buckets = [[t5_bucket(key - query, causal) for key in range(length)] for query in range(length)]
        return x, None, np.moveaxis(biases[np.array(buckets)], 2, 0)

    def angles(self, positions: np.ndarray, width: int) -> np.ndarray:
        return np.outer(positions, self.config.max_wavelength ** (-2 * np.arange(width // 2) / width))

    def rotate(self, heads: np.ndarray) -> np.ndarray:
        """(B, H, T, K): neighbouring features are a complex number, which is turned."""
        turned = (heads[..., ::2] + 1j * heads[..., 1::2]) * np.exp(
            1j * self.angles(np.arange(heads.shape[2]), heads.shape[3])
        )
        return np.stack([turned.real, turned.imag], axis=-1).reshape(heads.shape)

    def residual(self, name: str, x: np.ndarray, sublayer) -> np.ndarray:
        norm = f"{name}_residual/norm"
        if self.config.norm_first:
            return x + sublayer(name, self.norm(norm, x))
        return self.norm(norm, x + sublayer(name, x))

    def attention(self, name: str, x: np.ndarray, mask, memory=None, rotate=None, bias=0.0) -> np.ndarray:
        memory = x if memory is None else memory
        query, key, value = (
            self.dense(f"{name}/{part}", given).reshape(*given.shape[:2], -1, self.config.head_size).swapaxes(1, 2)
            for part, given in (("query", x), ("key", memory), ("value", memory))
        )
        if rotate is not None:
            query, key = rotate(query), rotate(key)
        key, value = (np.repeat(heads, query.shape[1] // heads.shape[1], axis=1) for heads in (key, value))
        scores = query @ key.swapaxes(2, 3) / math.sqrt(self.config.head_size) + bias
        powers = np.where(mask, np.exp(scores - scores.max(axis=-1, keepdims=True)), 0.0)
        heads = powers / powers.sum(axis=-1, keepdims=True) @ value
        return self.dense(f"{name}/output", heads.swapaxes(1, 2).reshape(*x.shape[:2], -1))

    def feed_forward(self, name: str, x: np.ndarray) -> np.ndarray:
        inner, kind = self.dense(f"{name}/inner", x), self.config.activation
        if kind in GATES:
            inner *= ACTIVATIONS[GATES[kind]](self.dense(f"{name}/gate", x))
        else:
            inner = ACTIVATIONS[kind](inner)
        return self.dense(f"{name}/outer", inner)

    def dense(self, name: str, x: np.ndarray) -> np.ndarray:
        return x @ self.weights[f"{name}/kernel"] + self.weights.get(f"{name}/bias", 0.0)

    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        if self.config.normalization == "rms_norm":
            size = np.sqrt((x**2).mean(axis=-1, keepdims=True) + self.config.layer_norm_epsilon)
            return x / size * self.weights[f"{name}/scale"]
        normal = (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(
            x.var(axis=-1, keepdims=True) + self.config.layer_norm_epsilon
        )
        return normal * self.weights[f"{name}/gamma"] + self.weights[f"{name}/beta"]
