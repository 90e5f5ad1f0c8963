"""Token embeddings that also give the logits before the softmax (section 3.4).

Shape letters: B batch, T length, D model size, V vocabulary.
"""

from typing import Any

import keras

from kformer.layers.initializers import small_normal

Tensor = Any


@keras.saving.register_keras_serializable(package="kformer")
class TokenEmbedding(keras.layers.ReversibleEmbedding):
    """Embeddings times sqrt(d_model); called in reverse, the projection to the vocabulary.

    With `tie_weights` both use one matrix. Used for source, target and softmax alike it is the three-way
    tie of section 3.4.

    Args:
        input_dim: V.
        output_dim: D.
        tie_weights: Whether the reverse projection shares the matrix.
    """

    def __init__(self, input_dim: int, output_dim: int, tie_weights: bool = True, **kwargs: Any) -> None:
        kwargs.setdefault("embeddings_initializer", small_normal())
        super().__init__(input_dim, output_dim, tie_weights=tie_weights, **kwargs)

    def call(self, inputs: Tensor, reverse: bool = False) -> Tensor:
        """Embeds ids, or projects vectors to logits.

        Args:
            inputs: (B, T) integer ids; with `reverse`, (B, T, D) floats.
            reverse: Which of the two (the signature of `keras.layers.ReversibleEmbedding`).

        Returns:
            (B, T, D) floats; with `reverse`, (B, T, V) logits.
        """
        return self.project(inputs) if reverse else self.embed(inputs) * self.output_dim**0.5

    def embed(self, inputs: Tensor) -> Tensor:
        """(B, T) integer ids to (B, T, D) rows of the matrix, not yet scaled."""
        return super().call(inputs)

    def project(self, inputs: Tensor) -> Tensor:
        """(B, T, D) floats to (B, T, V) logits."""
        return super().call(inputs, reverse=True)
