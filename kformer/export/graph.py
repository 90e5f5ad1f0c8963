"""The functions of an export: they compute what a predictor does, with weights of their own in a chosen precision."""

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from kformer.decoding import SearchResult
from kformer.export.calibration import InputRanges, input_ranges
from kformer.export.in_place_cache import InPlaceCache
from kformer.export.quantization import ServedArithmetic
from kformer.export.signatures import Function, Served, reading, signature
from kformer.export.signatures import n_best as n_best_of
from kformer.export.variables import FrozenScope, Weights, copy_weights
from kformer.runtime.signature_names import DEFAULT_SIGNATURE, READING
from kformer.tasks.predictor import TEXT, Predictor
from kformer.tasks.translator import Translator
from kformer.text.codec import best
from kformer.text.translate_texts import translate_texts

LENGTH_STEP = 16  # tokens


def served_functions(
    predictor: Predictor,
    weights: Weights,
    precision: str,
    variant: str,
    samples: Sequence[str],
    signatures: Sequence[str],
) -> dict[str, Function]:
    """The functions of an export, by the names of their signatures.

    Args:
        predictor: The model whose answers the functions give.
        weights: Stores the weights, with their present values.
        precision: The number format of the products with weights: "float32", "bfloat16" or "int8".
        variant: "portable" (core operations and oneDNN's) or "xla" (a translator in float32 only).
        samples: Texts like those that the export will get; int8 takes the ranges of inputs from them.
        signatures: `serving_default`, and names of `Predictor.signatures`.

    Raises:
        ValueError: The variant "xla" is asked for something else than a translator.
    """
    if variant == "xla":
        if not isinstance(predictor, Translator):
            raise ValueError(f"Only translators have the variant xla. Received: {predictor.task}. Leave it out.")
        return {DEFAULT_SIGNATURE: _compiled(predictor, weights)}
    ranges = input_ranges(predictor, samples) if precision == "int8" else {}
    served = _served(predictor, weights, precision, ranges)
    return {name: signature(served, name) for name in signatures}


def functions_of_this_machine(
    predictor: Predictor, weights: Weights, n_best: int, signatures: Sequence[str]
) -> dict[str, Function]:
    """The functions of a float32 export, by the names of their signatures: the default one and `signatures`.

    A translator's default one gives `translation` and `score` of shape (B, n_best), best first.
    """
    served = _served(predictor, weights, "float32", {})
    is_translator = isinstance(predictor, Translator)
    default = n_best_of(served, n_best) if is_translator else signature(served, DEFAULT_SIGNATURE)
    others = {name: signature(served, name) for name in signatures}
    return {DEFAULT_SIGNATURE: default, **others, READING: reading(served)}


def _served(predictor: Predictor, weights: Weights, precision: str, ranges: InputRanges) -> Served:
    """The same predictor over a model of the same weights in this precision, and the weights' scope."""
    arithmetic = ServedArithmetic(precision, weights, ranges)
    model = predictor.build(arithmetic)
    copy_weights(predictor.model, model)
    return Served(predictor.twin(model, InPlaceCache), arithmetic.freeze(model))


def _compiled(translator: Translator, weights: Weights) -> Function:
    """The search is compiled once for every shape of its inputs.

    To keep the number of shapes small, the batch size is padded to a power of two and the length to a multiple of 16.
    """
    searcher = dataclasses.replace(translator.searcher, first_room=None)
    frozen = FrozenScope(translator.model.variables, weights)

    @tf.function(autograph=False, jit_compile=True)
    def compiled(source: tf.Tensor, limits: tf.Tensor, starts: tf.Tensor) -> SearchResult:
        with frozen:
            return searcher.find(source, limits, starts)

    def find(source: tf.Tensor, limits: tf.Tensor, starts: tf.Tensor) -> SearchResult:
        rows, length = tf.shape(source)[0], tf.shape(source)[1]
        more_rows = _next_power_of_two(rows) - rows
        more_tokens = -length % LENGTH_STEP
        padded = tf.pad(source, [[0, more_rows], [0, more_tokens]], constant_values=translator.config.pad_id)
        found = compiled(padded, tf.pad(limits, [[0, more_rows]]), tf.pad(starts, [[0, more_rows]]))
        return SearchResult(*(part[:rows] for part in found))

    @tf.function(autograph=False, input_signature=[TEXT])
    def translate(text: tf.Tensor) -> dict[str, tf.Tensor]:
        return best(translate_texts(translator.codec, find, text, n_best=1))

    return translate


def _next_power_of_two(number: tf.Tensor) -> tf.Tensor:
    powers = tf.constant([2**exponent for exponent in range(31)], tf.int32)
    return powers[tf.searchsorted(powers, number[tf.newaxis])[0]]
