"""The functions of an export: they compute what a translator does, with weights of their own in a chosen precision."""

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from kformer.decoding import SearchResult
from kformer.export.cache import InPlaceCache
from kformer.export.calibration import InputRanges, input_ranges
from kformer.export.kernels import ServedArithmetic
from kformer.export.signatures import SIGNATURES, Function, Served, n_best
from kformer.export.variables import FrozenScope, Weights
from kformer.export.versions import DEFAULT_SIGNATURE
from kformer.models import build_transformer
from kformer.translation.search import Searcher
from kformer.translation.texts import best, translate_texts
from kformer.translation.translator import TEXT, Translator

LENGTH_STEP = 16  # tokens


def served_functions(
    translator: Translator,
    weights: Weights,
    precision: str,
    variant: str,
    samples: Sequence[str],
    signatures: Sequence[str],
) -> dict[str, Function]:
    """The functions of an export, by the names of their signatures.

    Args:
        translator: The translator whose results the functions give.
        weights: Stores the weights, with their present values.
        precision: The number format of the products with weights: "float32", "bfloat16" or "int8".
        variant: "portable" (core operations and oneDNN's) or "xla" (in float32 only).
        samples: Texts like those that the export will translate; int8 takes the ranges of inputs from them.
        signatures: Keys of `kformer.export.signatures.SIGNATURES`.
    """
    if variant == "xla":
        return {DEFAULT_SIGNATURE: _compiled(translator, weights)}
    ranges = input_ranges(translator, samples) if precision == "int8" else {}
    served = _served(translator, weights, precision, ranges)
    return {name: SIGNATURES[name](served) for name in signatures}


def n_best_function(translator: Translator, weights: Weights, number: int) -> Function:
    """A function from (B,) strings to `translation` and `score`, (B, number) each, best first: in float32."""
    return n_best(_served(translator, weights, "float32", {}), number)


def _served(translator: Translator, weights: Weights, precision: str, ranges: InputRanges) -> Served:
    """The translator's codec, a searcher over a model of the same weights in this precision, and the weights' scope."""
    arithmetic = ServedArithmetic(precision, weights, ranges)
    twin = build_transformer(translator.config, dtype=arithmetic)
    twin.set_weights(translator.model.get_weights())
    searcher = Searcher(twin, translator.config, translator.decoding, cache=InPlaceCache)
    return Served(translator.codec, searcher, arithmetic.freeze(twin))


def _compiled(translator: Translator, weights: Weights) -> Function:
    """The search is compiled once for every shape of its inputs.

    To keep the number of shapes small, the batch size is padded to a power of two and the length to a multiple of 16.
    """
    searcher = dataclasses.replace(translator.searcher, first_room=None)
    frozen = FrozenScope(translator.model.variables, weights)

    @tf.function(autograph=False, jit_compile=True)
    def compiled(source: tf.Tensor, limits: tf.Tensor) -> SearchResult:
        with frozen:
            return searcher.find(source, limits)

    def find(source: tf.Tensor, limits: tf.Tensor) -> SearchResult:
        rows, length = tf.shape(source)[0], tf.shape(source)[1]
        more_rows = _next_power_of_two(rows) - rows
        more_tokens = -length % LENGTH_STEP
        padded = tf.pad(source, [[0, more_rows], [0, more_tokens]], constant_values=translator.config.pad_id)
        found = compiled(padded, tf.pad(limits, [[0, more_rows]]))
        return SearchResult(*(part[:rows] for part in found))

    @tf.function(autograph=False, input_signature=[TEXT])
    def translate(text: tf.Tensor) -> dict[str, tf.Tensor]:
        return best(translate_texts(translator.codec, find, text, n_best=1))

    return translate


def _next_power_of_two(number: tf.Tensor) -> tf.Tensor:
    powers = tf.constant([2**exponent for exponent in range(31)], tf.int32)
    return powers[tf.searchsorted(powers, number[tf.newaxis])[0]]
