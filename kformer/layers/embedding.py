"""Token embeddings that also give the logits before the softmax (section 3.4).

Shape letters: B batch, T length, D model size, V vocabulary.
"""

from typing import Any

import keras
from keras import ops

from kformer.layers.arithmetic import Arithmetic
from kformer.layers.initializers import small_normal
from kformer.layers.tensors import Tensor


def take_rows(matrix: Tensor, ids: Tensor) -> Tensor:
    """Rows (..., D) of a matrix (V, D) for integer ids (...), with a gradient that is a dense tensor.

    TensorFlow's own gradient is a list of slices, which Keras's gradient accumulation adds up incorrectly.
    """
    vocab_size, width = matrix.shape

    @ops.custom_gradient
    def take(matrix: Tensor) -> tuple[Tensor, Any]:
        def gradient(*args: Any, upstream: Any = None) -> Tensor:
            if upstream is None:  # TensorFlow and JAX pass it by position
                (upstream,) = args
            slices = ops.reshape(ops.cast(upstream, "float32"), (-1, width))
            sums = ops.segment_sum(slices, ops.reshape(ids, (-1,)), num_segments=vocab_size)  # (V, D)
            return ops.cast(sums, matrix.dtype)

        return ops.take(matrix, ids, axis=0), gradient

    return take(matrix)


@keras.saving.register_keras_serializable(package="kformer")
class TokenEmbedding(keras.layers.ReversibleEmbedding):
    """Embeddings times sqrt(d_model); called in reverse, the projection to the vocabulary.

    With `tie_weights`, embedding and projection use one matrix. One such layer for source, target and softmax is the
    three-way weight tying of section 3.4.

    Args:
        input_dim: V.
        output_dim: D.
        tie_weights: Whether the reverse projection shares the matrix.

    Example:
        >>> embedding = TokenEmbedding(input_dim=100, output_dim=8)
        >>> vectors = embedding(np.array([[3, 5]]))
        >>> tuple(vectors.shape), tuple(embedding(vectors, reverse=True).shape), len(embedding.weights)
        ((1, 2, 8), (1, 2, 100), 1)
    """

    def __init__(self, input_dim: int, output_dim: int, tie_weights: bool = True, **kwargs: Any) -> None:
        kwargs.setdefault("embeddings_initializer", small_normal())
        super().__init__(input_dim, output_dim, tie_weights=tie_weights, **kwargs)

    def call(self, inputs: Tensor, reverse: bool = False) -> Tensor:
        """Embeds ids, or projects vectors to logits.

        Args:
            inputs: (B, T) integer ids; with `reverse`, (B, T, D) floats.
            reverse: Whether to project to logits (the signature of `keras.layers.ReversibleEmbedding`).

        Returns:
            (B, T, D) floats; with `reverse`, (B, T, V) logits.
        """
        return self.project(inputs) if reverse else self.embed(inputs) * self.output_dim**0.5

    def embed(self, inputs: Tensor) -> Tensor:
        """(B, T) integer ids to (B, T, D) rows of the matrix, not yet scaled."""
        if isinstance(self.dtype_policy, Arithmetic):
            return self.dtype_policy.embed(self, inputs)
        # Keras may return a TensorFlow variable, which allows no custom gradient. The copy is a tensor.
        rows = take_rows(ops.copy(self.embeddings), ops.cast(inputs, "int32"))
        return ops.cast(rows, self.compute_dtype)

    def project(self, inputs: Tensor) -> Tensor:
        """(B, T, D) floats to (B, T, V) logits."""
        if isinstance(self.dtype_policy, Arithmetic):
            return self.dtype_policy.project(self, inputs)
        return super().call(inputs, reverse=True)
