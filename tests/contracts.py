"""What every layer of kformer promises, in one function that each layer's test calls."""

import inspect
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

Inputs = dict[str, np.ndarray | Callable]


def assert_layer_contract(
    layer_class: type[keras.layers.Layer], kwargs: dict[str, Any], inputs: Inputs, num_parameters: int
) -> None:
    """Checks a layer from its configuration to one step of training.

    Args:
        layer_class: The layer.
        kwargs: Constructor arguments.
        inputs: Arguments of `call` by name, arrays with the batch in front; the first is the one that is passed
            by position. A function is passed on as it is.
        num_parameters: Scalars in the weights, derived by the caller.
    """
    _assert_config_is_the_constructor(layer_class, kwargs)
    _assert_serialization(layer_class, kwargs, inputs)
    _assert_output_shape(layer_class, kwargs, inputs)
    layer = _built(layer_class, kwargs, inputs)
    assert layer.count_params() == num_parameters
    if num_parameters:
        _assert_one_step_moves_every_weight(layer_class, kwargs, inputs)
    for policy in ("float16", "bfloat16", "mixed_float16", "mixed_bfloat16"):
        _assert_half_precision(layer_class, kwargs, inputs, policy)


def _call(layer: keras.layers.Layer, inputs: dict[str, Any], **options: Any) -> Any:
    first, *others = inputs
    return layer(inputs[first], **{name: inputs[name] for name in others}, **options)


def _built(layer_class, kwargs, inputs):
    layer = _new(layer_class, kwargs)
    _call(layer, inputs)
    return layer


def _constructor_arguments(layer_class: type) -> set[str]:
    """Arguments by name of the class and of those of kformer that it extends; none if Keras's constructor serves."""
    names = set()
    for base in layer_class.__mro__:
        if base.__module__.startswith("kformer") and "__init__" in vars(base):
            parameters = list(inspect.signature(base.__init__).parameters.values())[1:]
            names.update(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)
    return names


def _assert_config_is_the_constructor(layer_class, kwargs) -> None:
    layer = _new(layer_class, kwargs)
    config = layer.get_config()
    arguments = _constructor_arguments(layer_class) or set(kwargs)
    assert arguments >= set(kwargs)
    assert arguments <= set(config)
    for name in arguments:
        assert _plain(getattr(layer, name)) == config[name] == _plain(kwargs.get(name, config[name])), name
    # Keras refuses arguments that it does not know, so this finds keys without an argument.
    assert layer_class.from_config(config).get_config() == config
    if type(layer).__bases__ == (keras.layers.Layer,):
        assert set(config) - set(keras.layers.Layer().get_config()) == arguments


def _plain(value: Any) -> Any:
    """An argument as it stands in a configuration: layers in it are serialized."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return keras.saving.serialize_keras_object(value) if isinstance(value, keras.layers.Layer) else value


def _copied(value: Any, policy: str | None = None) -> Any:
    """An argument with copies of the layers in it, so that no two layers share them, under a dtype policy."""
    if isinstance(value, list):
        return [_copied(one, policy) for one in value]
    if not isinstance(value, keras.layers.Layer):
        return value
    config = value.get_config()
    return type(value).from_config(config if policy is None else {**config, "dtype": policy})


def _new(
    layer_class: type[keras.layers.Layer], kwargs: dict[str, Any], policy: str | None = None
) -> keras.layers.Layer:
    return layer_class(**{name: _copied(value, policy) for name, value in kwargs.items()}, dtype=policy)


def _assert_serialization(layer_class, kwargs, inputs) -> None:
    layer = _built(layer_class, kwargs, inputs)
    serialized = keras.saving.serialize_keras_object(layer)
    assert serialized["registered_name"] == f"kformer>{layer_class.__name__}"
    # Without custom_objects: registration alone has to find the class.
    again = keras.saving.deserialize_keras_object(serialized)
    assert type(again) is layer_class
    assert again.get_config() == layer.get_config()
    _call(again, inputs)
    again.set_weights(layer.get_weights())
    np.testing.assert_array_equal(_numpy(_call(again, inputs)), _numpy(_call(layer, inputs)))


def _assert_output_shape(layer_class, kwargs, inputs) -> None:
    layer = _built(layer_class, kwargs, inputs)
    accepted = inspect.signature(layer.compute_output_shape).parameters
    first, *others = (name for name, value in inputs.items() if isinstance(value, np.ndarray))
    shapes = {f"{name}_shape": inputs[name].shape for name in others if f"{name}_shape" in accepted}
    expected = tuple(layer.compute_output_shape(inputs[first].shape, **shapes))
    assert tuple(_call(layer, inputs).shape) == expected


def _assert_one_step_moves_every_weight(layer_class, kwargs, inputs) -> None:
    """One `fit` step through a functional model, so the layer also runs on symbols with an open batch."""
    layer = _new(layer_class, kwargs)
    arrays = {name: value for name, value in inputs.items() if isinstance(value, np.ndarray)}
    symbols = {name: keras.Input(array.shape[1:], dtype=array.dtype.name, name=name) for name, array in arrays.items()}
    model = keras.Model(symbols, _call(layer, {**inputs, **symbols}))
    before = [_numpy(weight) for weight in layer.trainable_weights]
    targets = np.random.default_rng(3).normal(size=model(arrays).shape)
    # Compiled on JAX and eager on TensorFlow: the quicker of the two on each.
    eager = keras.backend.backend() == "tensorflow"
    model.compile(keras.optimizers.SGD(1.0), "mean_squared_error", run_eagerly=eager)
    model.fit(arrays, targets, batch_size=len(targets), verbose=0)
    for weight, old in zip(layer.trainable_weights, before, strict=True):
        assert np.isfinite(_numpy(weight)).all(), weight.path
        # A bias of the keys adds the same number to all scores of a query, which the softmax removes.
        if not weight.path.endswith("key/bias"):
            assert not np.array_equal(_numpy(weight), old), f"{weight.path} did not move"


def _assert_half_precision(layer_class, kwargs, inputs, policy: str) -> None:
    layer = _new(layer_class, kwargs, policy)
    for training in (False, True):
        takes_training = "training" in inspect.signature(layer_class.call).parameters
        outputs = _call(layer, inputs, **({"training": training} if takes_training else {}))
        dtype = keras.backend.standardize_dtype(outputs.dtype)
        assert dtype == layer.compute_dtype == policy.removeprefix("mixed_")
        assert np.isfinite(_numpy(ops.cast(outputs, "float32"))).all()
    for weight in layer.weights:
        assert weight.dtype == ("float32" if policy.startswith("mixed_") else policy), weight.path


def _numpy(tensor: Any) -> np.ndarray:
    return np.array(ops.convert_to_numpy(tensor))
