"""Layers that compute their activations again in the backward pass: less memory for more time.

Source: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", section 3. Other names are gradient
checkpointing and activation recomputation.
"""

from typing import Any

import keras
from keras import ops

from kformer.layers.dropout import draw_seeds, dropping_by
from kformer.layers.tensors import Tensor


def rematerialized(layer: keras.layers.Layer, inputs: Tensor, **arguments: Any) -> Any:
    """What a layer returns, of which only the inputs are kept for the backward pass.

    Both passes have the same dropout: its seeds are drawn here, once.

    Args:
        layer: A layer with one output tensor or a tuple of them, whose random numbers are those of
            `kformer.layers.dropout.Dropout`.
        inputs: Its first argument.
        arguments: Its other arguments.

    Examples:
        >>> layer = EncoderLayer(d_model=8, num_heads=2, d_ff=16)
        >>> inputs = np.ones((1, 3, 8), "float32")
        >>> bool(np.allclose(rematerialized(layer, inputs), layer(inputs)))
        True
    """
    # TensorFlow gives gradients to arguments and to variables, but not to other tensors that a function uses.
    tensors = {name: value for name, value in arguments.items() if _has_gradient(value)}
    others = {name: value for name, value in arguments.items() if name not in tensors}
    seeds = draw_seeds(layer) if arguments.get("training") else {}

    def call(inputs: Tensor, *values: Tensor) -> Tensor:
        with dropping_by(seeds):
            return layer(inputs, **dict(zip(tensors, values, strict=True)), **others)

    return keras.remat(call)(ops.convert_to_tensor(inputs), *tensors.values())


def _has_gradient(value: Any) -> bool:
    return ops.is_tensor(value) and "float" in keras.backend.standardize_dtype(value.dtype)
