"""A model beside its teacher in training, for word-level distillation.

Source: Kim and Rush 2016, "Sequence-Level Knowledge Distillation", section 3.1.

Shape letters: B batch, T target length, V vocabulary.
"""

from typing import Any, Self

import keras
from keras import ops

from kformer.layers.tensors import Tensor


@keras.saving.register_keras_serializable(package="kformer")
class WithTeacher(keras.Model):
    """A model of which a training step has two predictions of each row: its own, and the one of its teacher.

    In training the logits are (B, 2, T, V), as `kformer.losses.WordLevelCrossEntropy` takes them. Otherwise the model
    is the one that it was made of, with logits (B, T, V). Both have the same layers, with the same names and weights.
    The teacher reads without dropout and does not learn. Its weights are no weights of this model, and a file of this
    model does not hold them.

    Args:
        args, kwargs: Inputs and outputs, as of a functional `keras.Model`; `of` makes it from such a model.
        teacher: A model of the same inputs and the same vocabulary. None: the model was read from a file. It cannot be
            trained before `of` gives it a teacher again.

    Examples:
        >>> small = kformer.TransformerConfig(9, 9, 1, 1, d_model=8, d_ff=16, num_heads=2)
        >>> teacher = kformer.models.build_transformer(small.replace(d_model=16))
        >>> model = WithTeacher.of(kformer.models.build_transformer(small), teacher)
        >>> batch = {"source": np.array([[5, 6, 2]]), "target_in": np.array([[1, 7]])}
        >>> tuple(model(batch).shape), tuple(model(batch, training=True).shape)
        ((1, 2, 9), (1, 2, 2, 9))
    """

    def __init__(self, *args: Any, teacher: keras.Model | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # A function, because Keras takes the weights of a model that is an attribute for those of this one.
        self._teacher = lambda: teacher

    @classmethod
    def of(cls, model: keras.Model, teacher: keras.Model) -> Self:
        """The model with a teacher that shares the layers of a functional model.

        Args:
            model: From `kformer.models.build_model`.
            teacher: As of the class.
        """
        return cls(model.input, model.output, name=model.name, teacher=teacher)

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Tensor:
        """The logits; arguments as of any Keras model.

        Args:
            inputs: Tensors of B rows, in the structure of the model's inputs.
            training: Whether dropout is applied, and the teacher reads the rows, too.
            mask: The implicit Keras masks of the inputs. Ids have none.

        Returns:
            (B, 2, T, V) floats in training, the teacher's at [:, 1], else (B, T, V).

        Raises:
            ValueError: There is no teacher for a training.
        """
        logits = super().call(inputs, training=training, mask=mask)
        if not training:
            return logits
        teacher = self._teacher()
        if teacher is None:
            raise ValueError(
                f"The model {self.name} was read from a file, which does not hold its teacher. Give it one by "
                "kformer.models.WithTeacher.of(model, teacher), and compile that model."
            )
        taught = ops.cast(teacher(inputs, training=False), logits.dtype)
        return ops.stack([logits, ops.stop_gradient(taught)], axis=1)
