"""A translator whose attention learns word alignments, beside the translations.

Source: Chen et al. 2016, "Guided Alignment Training for Topic-Aware Neural Machine Translation".

Shape letters: B batch, S source length, T target length, V vocabulary.
"""

from typing import Any, Self

import keras
from keras import ops

from kformer.config import TransformerConfig
from kformer.layers import padding_mask
from kformer.layers.tensors import Tensor
from kformer.losses import AlignmentCrossEntropy
from kformer.models.transformer import (
    DECODER,
    ENCODER,
    LOGITS,
    SOURCE_EMBEDDING,
    TARGET_EMBEDDING,
    find_embedding,
    target_mask,
)


@keras.saving.register_keras_serializable(package="kformer")
class GuidedAlignment(keras.Model):
    """A translator of which the loss of a training step has a term more: `AlignmentCrossEntropy` times a weight.

    It compares the alignments of the batch with the cross-attention of the decoder's last layer, the mean of its heads:
    the weights that `Translator.translate_detailed` reads alignments from. The loss and the metrics that it is compiled
    with are those of the translations alone.

    A batch has one more input, `"alignment"`, (B, T, S) uint8: 1 where target token t is aligned with source token s,
    else 0. Here t counts in the labels, and not in `"target_in"`, which begins with the start id.

    In a validation, and for all other uses, it is the model that it was made of: both have the same layers, with the
    same names and weights, and no alignments are needed.

    Args:
        args, kwargs: Inputs and outputs, as of a functional `keras.Model`; `of` makes it from such a model.
        weight: Factor of the term.
        transformer: The configuration of the model, or the dictionary of one.

    Examples:
        >>> config = kformer.TransformerConfig(9, 9, 1, 1, d_model=8, d_ff=16, num_heads=2)
        >>> model = GuidedAlignment.of(kformer.models.build_transformer(config), config, weight=0.1)
        >>> model.compile("sgd", kformer.losses.LabelSmoothedCrossEntropy())
        >>> batch = {"source": np.array([[5, 6, 2]]), "target_in": np.array([[1, 7]])}
        >>> batch["alignment"] = np.array([[[1, 1, 0], [0, 0, 0]]], "uint8")
        >>> history = model.fit(batch, np.array([[7, 2]]), verbose=0)
        >>> tuple(model(batch).shape)
        (1, 2, 9)
    """

    def __init__(
        self, *args: Any, weight: float, transformer: TransformerConfig | dict[str, Any], **kwargs: Any
    ) -> None:  # Keras loads a functional model of another class only if it has these two names
        super().__init__(*args, **kwargs)
        self.weight = weight
        self.transformer = (
            transformer if isinstance(transformer, TransformerConfig) else TransformerConfig.from_dict(transformer)
        )
        self.alignment_loss = AlignmentCrossEntropy()

    @classmethod
    def of(cls, model: keras.Model, transformer: TransformerConfig, weight: float) -> Self:
        """The guided model that shares the layers of a translator.

        Args:
            model: From `kformer.models.build_transformer`.
            transformer: Its configuration.
            weight: As of the class.
        """
        return cls(model.input, model.output, name=model.name, weight=weight, transformer=transformer)

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        """The logits; arguments as of any Keras model.

        Args:
            inputs: The model's own, and in training the alignments.
            training: Whether dropout is applied, and attention weights are returned.
            mask: The implicit Keras masks of the inputs. Ids have none.

        Returns:
            (B, T, V) floats; in training a pair of them and the attention weights (B, T, S).
        """
        if not training:
            return super().call({name: inputs[name] for name in self.input}, training=training)
        return call_with_alignment(self, inputs["source"], inputs["target_in"], self.transformer, training)

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Tensor:
        """The compiled loss and, in training, the weighted term. Keras calls it; arguments as there."""
        translations, weights = _both(y_pred)
        loss = super().compute_loss(x, y, translations, sample_weight, training=training)
        if weights is None:
            return loss
        return loss + self.weight * self.alignment_loss(x["alignment"], weights, sample_weight)

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> dict[str, Any]:
        """The compiled metrics, of the translations. Keras calls it; arguments as there."""
        return super().compute_metrics(x, y, _both(y_pred)[0], sample_weight)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "weight": self.weight, "transformer": self.transformer.to_dict()}


def call_with_alignment(
    model: keras.Model, source: Tensor, target_in: Tensor, config: TransformerConfig, training: bool | None = None
) -> tuple[Tensor, Tensor]:
    """The logits of a call of the model, and how much each target position attends to each source position.

    Only the last layer computes its attention weights; the others may attend by a fused kernel.

    Args:
        model: From `kformer.models.build_transformer`.
        source: (B, S) int32 ids.
        target_in: (B, T) int32 ids: the start id, followed by the target.
        config: Of the model.
        training: Whether dropout is applied; not to the weights that are returned.

    Returns:
        (B, T, V) float32, and the weights (B, T, S) float32 of the last layer's cross-attention, the mean of its heads.

    Examples:
        >>> config = kformer.TransformerConfig(9, 9, 1, 1, d_model=8, d_ff=16, num_heads=2)
        >>> ids = np.array([[5, 6, 2]]), np.array([[1, 7]])
        >>> logits, weights = call_with_alignment(kformer.models.build_transformer(config), *ids, config)
        >>> tuple(logits.shape), np.round(np.asarray(weights).sum(-1), 3).tolist()
        ((1, 2, 9), [[1.0, 1.0]])
    """
    embedding, mask = find_embedding(model, TARGET_EMBEDDING), ops.not_equal(source, config.pad_id)
    embedded = find_embedding(model, SOURCE_EMBEDDING)(source)
    output, weights = model.get_layer(DECODER)(
        embedding(target_in),
        model.get_layer(ENCODER)(embedded, mask=mask, training=training),
        cross_mask=padding_mask(source, config.pad_id),
        counted=target_mask(target_in, config),
        return_attention_scores=True,
        training=training,
    )
    logits = model.get_layer(LOGITS)(embedding(output, reverse=True))
    return logits, ops.mean(ops.cast(weights, "float32"), axis=1)


def _both(outputs: Any) -> tuple[Tensor, Tensor | None]:
    """The logits, and the attention weights of a training step."""
    return outputs if isinstance(outputs, tuple) else (outputs, None)
