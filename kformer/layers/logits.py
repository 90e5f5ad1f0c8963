"""The last layer of a model: logits in the precision of the softmax, with or without a bias.

The product with the matrix of the vocabulary is in `embedding`.

Shape letters: V vocabulary.
"""

from typing import Any

import keras
from keras import ops

from kformer.layers.tensors import Tensor


@keras.saving.register_keras_serializable(package="kformer")
class Logits(keras.layers.Layer):
    """Converts logits to the dtype of this layer, and adds a trained bias for each token of the vocabulary.

    With the dtype "float32", loss and search compute in full precision under every dtype policy of the other layers.
    The paper's softmax has no bias. Marian has one ("final_logits_bias"), and so has BERT where it predicts tokens.

    Args:
        use_bias: Whether the bias is added. It begins with zeros.

    Examples:
        >>> layer = Logits(use_bias=True, dtype="float32")
        >>> layer.build((None, None, 3))
        >>> layer.set_weights([np.array([0.0, 0.5, -1.0])])
        >>> np.asarray(layer(np.array([[[1.0, 2.0, 3.0]]]))).tolist()
        [[[1.0, 2.5, 2.0]]]
    """

    def __init__(self, use_bias: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.use_bias = use_bias

    def build(self, inputs_shape: tuple) -> None:
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(shape=(inputs_shape[-1],), initializer="zeros", name="bias")
        self.built = True

    def call(self, inputs: Tensor) -> Tensor:
        """(..., V) floats to the same shape."""
        return inputs if self.bias is None else ops.add(inputs, self.bias)

    def compute_output_shape(self, inputs_shape: tuple) -> tuple:
        return tuple(inputs_shape)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "use_bias": self.use_bias}
