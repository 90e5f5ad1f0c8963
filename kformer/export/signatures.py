"""The signatures of an export: each is a method of the predictor, computed with the export's weights.

All inputs and outputs have the batch as their first dimension, so that a server can put requests together. Only
`translate_with_options` and `generate_with_options` are different: their options are scalars for a whole request, and
there may be one prefix for all texts. No name ends in `_bytes`, because REST encodes such outputs. Shape letters: B
texts, N beams.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from kformer.export.variables import FrozenScope
from kformer.runtime.signature_names import CUT, DEFAULT_SIGNATURE, MOSTLY_UNKNOWN
from kformer.tasks.predictor import TEXT, Predictor
from kformer.tasks.translator import Translator

Function: TypeAlias = tf.types.experimental.PolymorphicFunction


class Served(NamedTuple):
    """What is exported: a model with weights of its own."""

    predictor: Predictor
    frozen: FrozenScope  # in which the predictor's model computes


def signature(served: Served, name: str) -> Function:
    """`serving_default`, which gives what the predictor's `answer` gives, or another of its `signatures`.

    Inputs with a default have it in the SignatureDef. A server uses it if a request does not give the input: the answer
    is then that of `serving_default`.
    """
    predictor = served.predictor
    chosen = type(predictor).function if name == DEFAULT_SIGNATURE else predictor.signatures[name]
    defaults = chosen.defaults(predictor.decoding)
    return _function(served, lambda *inputs: chosen.method(predictor, *inputs), chosen.inputs, defaults)


def n_best(served: Served, number: int) -> Function:
    """Of a translator: from `text` (B,) string to what `Translator.find_n_best` gives, with N = `number`."""
    translator = served.predictor
    assert isinstance(translator, Translator)
    return _function(served, lambda text: translator.find_n_best(text, number), [TEXT])


def reading(served: Served) -> Function:
    """From `text` (B,) string to `mostly_unknown` and `cut`, (B,) bool.

    See `Tokenizer.is_mostly_unknown` and `Predictor.is_cut`.
    """
    predictor = served.predictor

    def read(text: tf.Tensor) -> dict[str, tf.Tensor]:
        return {MOSTLY_UNKNOWN: predictor.source_tokenizer.is_mostly_unknown(text), CUT: predictor.is_cut(text)}

    return _function(served, read, [TEXT])


def _function(
    served: Served,
    method: Callable[..., dict[str, tf.Tensor]],
    inputs: Sequence[tf.TensorSpec],
    defaults: Sequence[tf.Tensor] = (),
) -> Function:
    """The method as a `tf.function` of these inputs, of which the last ones have defaults."""

    def function(*tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        with served.frozen:
            return method(*tensors)

    # TensorFlow writes the defaults of named arguments into the SignatureDef. So `function`, which takes any number of
    # tensors, gets the names of the inputs.
    without = len(inputs) - len(defaults)
    values: list[Any] = [inspect.Parameter.empty] * without + [*defaults]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    named = [inspect.Parameter(spec.name, kind, default=value) for spec, value in zip(inputs, values, strict=True)]
    function.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    return tf.function(function, input_signature=inputs, autograph=False)
