"""A model that reads every row twice in training, for R-Drop.

Source: Liang et al. 2021, "R-Drop: Regularized Dropout for Neural Networks", section 2.2.

Shape letters: B batch, T target length, V vocabulary.
"""

from typing import Any, Self

import keras
from keras import ops

from kformer.layers.tensors import Tensor

PASSES = 2


@keras.saving.register_keras_serializable(package="kformer")
class TwoPasses(keras.Model):
    """A model of which a training step has two predictions of each row, with another dropout in each.

    In training the logits are (B, 2, T, V), as `kformer.losses.RDropCrossEntropy` takes them. Otherwise the model is
    the one that it was made of, with logits (B, T, V). Both have the same layers, with the same names and weights.

    Args:
        arguments: Inputs and outputs, as of a functional `keras.Model`; `of` makes it from such a model.

    Examples:
        >>> config = kformer.TransformerConfig(9, 9, 1, 1, d_model=8, d_ff=16, num_heads=2)
        >>> model = TwoPasses.of(kformer.models.build_transformer(config))
        >>> batch = {"source": np.array([[5, 6, 2]]), "target_in": np.array([[1, 7]])}
        >>> tuple(model(batch).shape), tuple(model(batch, training=True).shape)
        ((1, 2, 9), (1, 2, 2, 9))
    """

    @classmethod
    def of(cls, model: keras.Model) -> Self:
        """The model with two passes that shares the layers of a functional model.

        Args:
            model: From `kformer.models.build_model`.
        """
        return cls(model.input, model.output, name=model.name)

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Tensor:
        """The logits; arguments as of any Keras model.

        Args:
            inputs: Tensors of B rows, in the structure of the model's inputs.
            training: Whether dropout is applied, and each row read twice.
            mask: The implicit Keras masks of the inputs. Ids have none.

        Returns:
            (B, 2, T, V) floats in training, else (B, T, V).
        """
        if not training:
            return super().call(inputs, training=training, mask=mask)
        # A row and its copy lie side by side, so a device that has some of the rows has their copies, too.
        twice = keras.tree.map_structure(lambda rows: ops.repeat(rows, PASSES, axis=0), inputs)
        logits = super().call(twice, training=training)
        return ops.reshape(logits, (-1, PASSES, *ops.shape(logits)[1:]))
