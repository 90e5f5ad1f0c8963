"""The function that an export holds: weights as constants, in the arithmetic that a server is to use."""

from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from kformer.config import TransformerConfig
from kformer.decoding import SearchResult
from kformer.models import build_transformer
from kformer.quantization import quantize_products
from kformer.translator import TEXT, Translator

# Under these policies the matrix products run in the precision; the sums of residual connections, layer norms,
# softmax and logits stay float32.
PRECISIONS = {"float32": "float32", "bfloat16": "mixed_bfloat16", "int8": "float32"}
LENGTH_STEP = 16  # tokens


class FrozenScope(keras.StatelessScope):
    """A scope in which a variable is a constant of the graph that reads it, already in the dtype of the computation.

    Each graph gets its own: the body of a loop is a graph for itself, and only constants that stand in it are known
    to be constant there. oneDNN then packs a matrix once and for all; what comes into a loop from outside, as a
    variable's value does, is packed again at every step.

    Args:
        variables: What is frozen, at its present values.
        inside: Whether constants stand in the graphs that read them, or all in the outermost one. XLA wants them
            outside what it compiles, or every compiled shape would hold a copy.
    """

    def __init__(self, variables: Iterable[keras.Variable], inside: bool = True) -> None:
        super().__init__()
        self._inside = inside
        self._arrays = {id(variable): keras.ops.convert_to_numpy(variable) for variable in variables}
        self._constants: dict[tuple[int, int, str], tf.Tensor] = {}
        self._graphs: list[tf.Graph] = []  # keeps them alive, for their identities are keys

    def get_current_value(self, variable: keras.Variable) -> Any:
        array = self._arrays.get(id(variable))
        if array is None:
            return super().get_current_value(variable)
        graph = tf.compat.v1.get_default_graph()
        while not self._inside and isinstance(graph.outer_graph, type(graph)):
            graph = graph.outer_graph
        dtype = variable.dtype  # what Keras would cast it to here
        key = (id(graph), id(variable), dtype)
        if key not in self._constants:
            self._graphs.append(graph)
            with graph.as_default():
                self._constants[key] = tf.constant(array.astype(tf.as_dtype(dtype).as_numpy_dtype))
        return self._constants[key]


def with_precision(model: keras.Model, config: TransformerConfig, precision: str) -> keras.Model:
    """The model itself for float32, or one with the same weights whose matrix products run in `precision`.

    Raises:
        ValueError: There is no such precision.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}. Received: {precision!r}.")
    if precision == "float32":
        return model
    twin = build_transformer(config, dtype=PRECISIONS[precision])
    twin.set_weights(model.get_weights())
    if precision == "int8":
        quantize_products(twin)
        return twin
    for layer in twin._flatten_layers():
        if isinstance(layer, keras.layers.LayerNormalization):
            layer.dtype_policy = "float32"  # its output is the residual stream
    return twin


def served_function(translator: Translator, precision: str, variant: str) -> tf.types.experimental.PolymorphicFunction:
    """A function from (B,) strings to `translation` and `score`, without variables.

    Args:
        translator: What it computes.
        precision: One of `PRECISIONS`.
        variant: One of `VARIANTS`.

    Raises:
        ValueError: There is no such precision or variant.
    """
    if variant not in VARIANTS:
        raise ValueError(f"variant must be one of {', '.join(VARIANTS)}. Received: {variant!r}.")
    if (precision, variant) == ("int8", "xla"):
        raise ValueError("XLA does not compile the int8 products. Choose the variant portable, or another precision.")
    model = with_precision(translator.model, translator.config, precision)
    tokenizers = (translator.source_tokenizer, translator.target_tokenizer)
    return VARIANTS[variant](Translator(model, translator.config, *tokenizers, translator.decoding))


def portable_function(translator: Translator) -> tf.types.experimental.PolymorphicFunction:
    """`translate` over constant weights, of core operations."""
    frozen = FrozenScope(translator.model.variables)

    @tf.function(input_signature=[TEXT])
    def translate(text: tf.Tensor) -> dict[str, tf.Tensor]:
        with frozen:
            return translator.search(text)

    return translate


def xla_function(translator: Translator) -> tf.types.experimental.PolymorphicFunction:
    """`translate` with the search compiled by XLA, once for every shape it meets.

    To keep the shapes few, the number of sentences is filled up to a power of two and their length to a multiple
    of 16.
    """
    frozen = FrozenScope(translator.model.variables, inside=False)

    @tf.function(jit_compile=True)
    def find(source: tf.Tensor, limits: tf.Tensor) -> SearchResult:
        with frozen:
            return translator.find(source, limits)

    @tf.function(input_signature=[TEXT])
    def translate(text: tf.Tensor) -> dict[str, tf.Tensor]:
        source, limits = translator.encode(text)
        rows, length = tf.shape(source)[0], tf.shape(source)[1]
        more_rows = _next_power_of_two(rows) - rows
        more_tokens = -length % LENGTH_STEP
        padded = tf.pad(source, [[0, more_rows], [0, more_tokens]], constant_values=translator.config.pad_id)
        found = find(padded, tf.pad(limits, [[0, more_rows]]))
        return translator.decode_best(SearchResult(*(part[:rows] for part in found)), limits)

    return translate


def _next_power_of_two(number: tf.Tensor) -> tf.Tensor:
    powers = tf.constant([2**exponent for exponent in range(31)], tf.int32)
    return powers[tf.searchsorted(powers, number[tf.newaxis])[0]]


VARIANTS = {"portable": portable_function, "xla": xla_function}
