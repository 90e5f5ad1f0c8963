"""Methods of predictors as `tf.function`, traced again when the model has other weights; checks of their texts."""

import reprlib
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeGuard

import keras
import tensorflow as tf

from kformer.config import DecodingConfig
from kformer.files.encodings import fault_of_value
from kformer.process.forks import check_process
from kformer.wording import count

Defaults = Callable[[DecodingConfig], Sequence[tf.Tensor]]


class ModelFunction:
    """A method of a predictor as a `tf.function`, which is traced again when its model has other weights.

    TensorFlow's function keeps the graph of its first call. `enable_lora` and `quantize` give a model other variables,
    which that graph would not read. New values of the same variables need no new graph.

    Args:
        inputs: The tensors that the method takes, each with its name.
        method: The method. An export calls it with its own weights.
        defaults: The values that the last inputs have in an export where a request does not give them.
    """

    _lock = threading.Lock()  # Threads that make the first call at the same time trace one graph.

    def __init__(
        self,
        inputs: Sequence[tf.TensorSpec],
        method: Callable[..., dict[str, tf.Tensor]],
        defaults: Defaults = lambda decoding: (),
    ) -> None:
        method.__qualname__ = f"kformer.{method.__qualname__}"  # by which `kformer.process.quiet` knows it
        self.inputs = inputs
        self.method = method
        self.defaults = defaults
        self.__doc__ = method.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._kept_as = f"_{name}_of_weights"

    def __get__(self, predictor: Any, owner: type | None = None) -> Any:
        if predictor is None:
            return self
        check_process()
        with self._lock:
            weights = predictor.model.weights
            known, function = predictor.__dict__.get(self._kept_as, ((), None))
            if function is None or [*map(id, known)] != [*map(id, weights)]:
                method = self.method.__get__(predictor)
                function = _Checked(tf.function(method, input_signature=self.inputs, autograph=False), self.inputs)
                predictor.__dict__[self._kept_as] = weights, function
        return function


class _Checked:
    """A `tf.function` that tells wrong arguments by the names of its inputs, before it is traced.

    Args:
        function: It can be used for what a `tf.function` has, such as `get_concrete_function`.
        inputs: Its input signature.
    """

    def __init__(self, function: Any, inputs: Sequence[tf.TensorSpec]) -> None:
        self._function = function
        self._inputs = {spec.name: spec for spec in inputs}

    def __call__(self, *arguments: Any, **named: Any) -> dict[str, tf.Tensor]:
        specs = self._inputs.values()
        tensors = [_input_tensor(spec, value) for spec, value in zip(specs, arguments, strict=False)]
        known = {name: _input_tensor(self._inputs[name], named[name]) for name in named if name in self._inputs}
        return self._function(*tensors, *arguments[len(tensors) :], **(named | known))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)


def _input_tensor(spec: tf.TensorSpec, value: Any) -> tf.Tensor:
    try:
        tensor = tf.convert_to_tensor(value, spec.dtype)
    except (TypeError, ValueError):
        tensor = None
    if tensor is None or not spec.shape.is_compatible_with(tensor.shape):
        wanted = "a list of strings or a (B,) string tensor" if spec.shape.rank else f"one number, {spec.dtype.name}"
        raise ValueError(f"{spec.name} must be {wanted}. Received: {reprlib.repr(value)}.")
    return tensor


def model_function(
    inputs: Sequence[tf.TensorSpec], defaults: Defaults = lambda decoding: ()
) -> Callable[[Callable[..., Any]], Any]:
    """Makes a method of a predictor a `ModelFunction`."""
    return lambda method: ModelFunction(inputs, method, defaults)


def require_tensorflow(what: str) -> None:
    """Raises a ValueError if Keras runs on another backend.

    Args:
        what: The part that needs TensorFlow; it begins the message.
    """
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"{what} runs on Keras's TensorFlow backend. Received: the backend {keras.backend.backend()}. "
            "Start with KERAS_BACKEND=tensorflow; weights trained on another backend load as they are."
        )


def is_one_text(texts: Any) -> TypeGuard[str]:
    """True for one string, of Python, NumPy or TensorFlow; False for several."""
    if tf.is_symbolic_tensor(texts):
        raise ValueError(
            "Texts must have values. Received: a tensor of a graph, as in Dataset.map or a tf.function. Call the "
            "tf.function of the model there, with a (B,) string tensor: `translate` of a Translator, `function` of the "
            "others."
        )
    return isinstance(texts, str | bytes) or getattr(texts, "shape", None) == ()


def text_tensor(texts: Any) -> tf.Tensor:
    """(B,) string, of one text, or of anything that can be iterated over to texts: strings, bytes, string tensors.

    Bytes that are not text in UTF-8, and halves of surrogate pairs, stay as they are, with a warning: tokenizers read
    them as U+FFFD.

    Raises:
        ValueError: A text is not a string.
    """
    check_process()
    if not is_one_text(texts) and not isinstance(texts, Iterable):
        raise ValueError(
            f"Texts must be strings. Received: {texts!r} of type {type(texts).__name__}. "
            "Pass one string, or a list of strings."
        )
    plain = [_plain(text, number) for number, text in enumerate([texts] if is_one_text(texts) else texts)]
    _warn_of_faults(plain)
    written = [text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text for text in plain]
    return tf.constant(written, tf.string, shape=[len(written)])


def _warn_of_faults(texts: Sequence[str | bytes]) -> None:
    faults = {number: fault for number, text in enumerate(texts) if (fault := fault_of_value(text)) is not None}
    if faults:
        first = next(iter(faults))
        warnings.warn(
            f"{len(faults)} of {count(len(texts), 'text')} cannot be read as text; the model reads unknown characters. "
            f"The first is at index {first}: {faults[first]}.",
            stacklevel=_callers_level(),
        )


def _callers_level() -> int:
    """The `stacklevel` of a warning, by its caller, that names the line of the program that called kformer."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("kformer."):
        frame, level = frame.f_back, level + 1
    return level


def _plain(text: Any, number: int) -> str | bytes:
    """The value of a string, also of a string tensor of rank 0."""
    value = text.numpy() if tf.is_tensor(text) and hasattr(text, "numpy") else text
    value = value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value
    if not isinstance(value, str | bytes):
        raise ValueError(
            f"Every text must be a string. Received: {text!r} of type {type(text).__name__} at index {number}. "
            "Pass one string, or a list of strings."
        )
    return value
