"""What a model's signatures take: the types and shapes of their inputs, and whether requests may share a batch."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from kformer.runtime.status_codes import Code
from kformer.serving.errors import ServingError, too_large

MOST_DIMENSIONS = 8  # of an input in a request: NumPy's arrays have a limit, too


@dataclasses.dataclass(frozen=True)
class Tensor:
    """An input or output of a signature.

    Args:
        dtype: Strings are objects that are bytes.
        shape: None in place of a size that may vary; None in place of the shape if the rank is unknown.
    """

    dtype: np.dtype
    shape: tuple[int | None, ...] | None

    @classmethod
    def of_info(cls, info: Any) -> "Tensor":
        """From a `TensorInfo`."""
        shape = info.tensor_shape
        sizes = tuple(None if dim.size < 0 else dim.size for dim in shape.dim)
        return cls(np.dtype(tf.dtypes.as_dtype(info.dtype).as_numpy_dtype), None if shape.unknown_rank else sizes)

    @property
    def is_batch(self) -> bool:
        """Whether the first dimension counts examples."""
        return self.shape is not None and len(self.shape) > 0 and self.shape[0] is None

    def __str__(self) -> str:
        name = "string" if self.dtype == object else str(self.dtype)
        if self.shape is None:
            return f"{name} of any shape"
        return f"{name} of shape ({', '.join('any' if size is None else str(size) for size in self.shape)})"


class Signature:
    """One signature of a model.

    Args:
        name: Its name.
        definition: The `SignatureDef`.
    """

    def __init__(self, name: str, definition: Any) -> None:
        self.name = name
        self.definition = definition
        self.inputs = {key: Tensor.of_info(info) for key, info in sorted(definition.inputs.items())}
        self.outputs = {key: Tensor.of_info(info) for key, info in sorted(definition.outputs.items())}
        self.defaults = {key: tf.make_ndarray(value) for key, value in definition.defaults.items()}

    @property
    def is_shared(self) -> bool:
        """Whether requests may share a batch: the first dimension of every input and output counts the examples."""
        return bool(self.inputs) and all(tensor.is_batch for tensor in (*self.inputs.values(), *self.outputs.values()))

    def complete(self, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The inputs of a request, defaults added.

        Raises:
            ServingError: An input is missing or unknown, or has another type or shape.
        """
        self.check_names(given)
        inputs = {**self.defaults, **given}
        for name, array in inputs.items():
            self.check(name, Tensor(array.dtype, array.shape))
        sizes = {len(inputs[name]) for name in inputs if self.inputs[name].is_batch}
        if self.is_shared and len(sizes) > 1:
            raise ServingError(
                Code.INVALID_ARGUMENT,
                f"All inputs of {self.name} must have the same number of examples. Received: "
                f"{', '.join(map(str, sorted(sizes)))}.",
            )
        return inputs

    def check_names(self, given: Collection[str]) -> None:
        """Refuses inputs by their names, before anything is done with their values.

        Raises:
            ServingError: An input is missing or unknown.
        """
        if {*self.defaults, *given} != {*self.inputs}:
            raise ServingError(
                Code.INVALID_ARGUMENT,
                f"The signature {self.name} takes {', '.join(self.inputs)}. Received: {', '.join(sorted(given))}.",
            )

    def check(self, name: str, given: Tensor) -> None:
        """Refuses an input by its type and shape.

        Raises:
            ServingError: The signature takes another type or shape.
        """
        tensor = self.inputs[name]
        assert given.shape is not None
        fits = tensor.shape is None or (
            len(given.shape) == len(tensor.shape)
            and all(size in (None, found) for size, found in zip(tensor.shape, given.shape, strict=True))
        )
        if given.dtype != tensor.dtype or not fits:
            raise ServingError(
                Code.INVALID_ARGUMENT, f"The input {name} of {self.name} must be {tensor}. Received: {given}."
            )

    def check_outputs(self, names: Collection[str]) -> None:
        """Refuses outputs that a request chooses.

        Raises:
            ServingError: There is no such output, or it is chosen twice.
        """
        if {*names} - {*self.outputs} or len({*names}) < len(names):
            raise ServingError(
                Code.INVALID_ARGUMENT,
                f"The signature {self.name} gives {', '.join(self.outputs)}; output_filter may name each of them once. "
                f"Received: {', '.join(names)}.",
            )


def check_sizes(inputs: Mapping[str, np.ndarray], max_texts: int, max_text_bytes: int) -> None:
    """Refuses a request that has too many examples, or too long a text.

    Raises:
        ServingError: It is too large.
    """
    for name, array in inputs.items():
        if array.ndim and len(array) > max_texts:
            raise too_large(
                f"A request may have {max_texts} texts. Received: {len(array)} in {name}. Send several requests."
            )
        longest = max(map(len, array.flat), default=0) if array.dtype == object else 0
        if longest > max_text_bytes:
            raise too_large(
                f"A text may have {max_text_bytes} bytes. Received: {longest} in {name}. Divide it, at the ends of "
                "paragraphs, for example."
            )
