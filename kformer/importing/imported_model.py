"""What is read from a folder of another toolkit: all that a run folder needs. And the way back of its weights."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from kformer.config import DecodingConfig, TransformerConfig
from kformer.importing.checkpoint import Checkpoint, CheckpointError, aligned
from kformer.models.building import build_model
from kformer.models.transformer import Policy
from kformer.process.memory import give_back, has_onednn
from kformer.tokenizers import Tokenizer


@dataclasses.dataclass(frozen=True)
class Source:
    """Where a weight comes from.

    Attributes:
        names: Of tensors in the checkpoint.
        make: Makes the weight of these tensors.
        back: Makes of the weight the tensor with the first name, or its part of it; None: nothing writes such tensors.
    """

    names: tuple[str, ...]
    make: Callable[..., np.ndarray]
    back: Callable[[np.ndarray], np.ndarray] | None = None

    def shape(self, checkpoint: Checkpoint) -> tuple[int, ...]:
        """The shape of the weight. No tensor is read."""
        zeros = (np.broadcast_to(np.float32(0), checkpoint.shape(name)) for name in self.names)
        return self.make(*zeros).shape

    def read(self, checkpoint: Checkpoint) -> np.ndarray:
        """The weight, float32.

        Raises:
            CheckpointError: A tensor cannot be read, or holds numbers that are not finite.
        """
        array = self.make(*(checkpoint.read(name) for name in self.names))
        if not np.all(np.isfinite(array)):
            raise CheckpointError(
                f"The tensor {' or '.join(self.names)} holds numbers that are not finite: its file is damaged, or its "
                "training failed. Import another copy."
            )
        return array


def same(name: str) -> Source:
    """A weight that is a tensor as it is."""
    return Source((name,), as_it_is, as_it_is)


def transposed(name: str) -> Source:
    """A matrix (in, out) from one that is kept as (out, in), as PyTorch does."""
    return Source((name,), np.transpose, np.transpose)


def as_it_is(tensor: np.ndarray) -> np.ndarray:
    """The tensor."""
    return tensor


def norm(path: str, name: str) -> dict[str, Source]:
    """The weights of a layer norm."""
    return {f"{path}/gamma": same(f"{name}.weight"), f"{path}/beta": same(f"{name}.bias")}


def dense(path: str, name: str) -> dict[str, Source]:
    """The weights of a dense layer with a bias, whose matrix is kept as (out, in)."""
    return {f"{path}/kernel": transposed(f"{name}.weight"), f"{path}/bias": same(f"{name}.bias")}


def tensors_of(sources: Mapping[str, Source], weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors of a checkpoint that `sources` would read as these weights.

    Args:
        sources: Where each weight lies, by its path. Weights of one tensor stand side by side in it, in this order.
        weights: The weights, by their paths; those that `sources` does not name are left out.

    Returns:
        The tensors by their names.

    Raises:
        ValueError: A weight has no way back.
    """
    parts: dict[str, list[np.ndarray]] = {}
    for path, source in sources.items():
        if source.back is None:
            raise ValueError(f"{path} cannot be written as the tensor {source.names[0]}: that format is only read.")
        parts.setdefault(source.names[0], []).append(source.back(weights[path]))
    return {name: some[0] if len(some) == 1 else np.concatenate(some, axis=-1) for name, some in parts.items()}


@dataclasses.dataclass(frozen=True)
class ImportedModel:
    """A model of another toolkit in kformer's terms. Its weights stay on disk until it is built.

    Attributes:
        transformer: Sizes, options and task.
        tokenizers: Of source and target; the same object twice if they share a vocabulary.
        decoding: The search that the model comes with.
        checkpoint: The tensors.
        weights: Where each weight comes from, by the weight's path in kformer's model.
        unused: Names of tensors that kformer's model does not need, such as positions that it computes.
    """

    transformer: TransformerConfig
    tokenizers: tuple[Tokenizer, Tokenizer]
    decoding: DecodingConfig
    checkpoint: Checkpoint
    weights: Mapping[str, Source]
    unused: frozenset[str] = frozenset()

    def build(self, dtype: Policy = None) -> keras.Model:
        """The model with its weights. Names and sizes are compared first, so that a wrong size fills no memory.

        Args:
            dtype: As in `build_model`.

        Raises:
            CheckpointError: A tensor is missing, has another size or no place in the model, or cannot be read.
        """
        self._check_names()
        self._check_sizes()
        model = build_model(self.transformer, dtype)
        self._check_shapes({weight.path: tuple(weight.shape) for weight in model.weights})
        for weight in model.weights:  # one at a time
            weight.assign(_as_tensor(self.weights[weight.path].read(self.checkpoint)))
        give_back()  # what was only needed to make them
        return model

    def _check_names(self) -> None:
        used = {name for source in self.weights.values() for name in source.names}
        held = {*self.checkpoint.names()}
        if missing := sorted(used - held):
            raise CheckpointError(f"The weights lack the tensor {missing[0]}. Copy the whole folder again.")
        if more := sorted(held - used - self.unused):
            raise CheckpointError(
                f"The weights hold the tensor {more[0]}, for which the model that the configuration describes has no "
                "place. It is of another kind, which kformer cannot import."
            )

    def _check_sizes(self) -> None:
        """Refuses sizes of the configuration that no weight has."""
        config = self.transformer
        sizes = {
            "d_model": config.d_model,
            "d_ff": config.d_ff,
            "source_vocab_size": config.source_vocab_size,
            "num_heads times head_dim": config.num_heads * config.head_size,
        }
        held = {size for source in self.weights.values() for size in source.shape(self.checkpoint)}
        for name, size in sizes.items():
            if size not in held:
                raise CheckpointError(
                    f"{name} is {size} by the configuration, and no weight has this size. Configuration and weights "
                    "are of different models."
                )

    def _check_shapes(self, expected: Mapping[str, tuple[int, ...]]) -> None:
        for path in sorted(expected.keys() | self.weights.keys()):
            source = self.weights.get(path)
            found = source.shape(self.checkpoint) if source is not None else None
            if source is None or found != expected.get(path):
                tensor = "no tensor" if source is None else f"the tensor {' and '.join(source.names)}"
                raise CheckpointError(
                    f"{path} gets {tensor} of the size {found}. Expected: {expected.get(path)}, by the configuration. "
                    "Configuration and weights are of different models."
                )


def _as_tensor(array: np.ndarray) -> Any:
    """A tensor in the memory of an array, of which TensorFlow would make two copies before it assigns it.

    With oneDNN, the copies cost nothing more: TensorFlow has kept memory in which they have room.
    """
    if keras.backend.backend() != "tensorflow" or has_onednn():
        return array
    import tensorflow as tf

    return tf.experimental.dlpack.from_dlpack(aligned(array).__dlpack__())
