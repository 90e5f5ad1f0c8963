"""The options of a request as tensors of a graph: their inputs, checks and what follows from them. Letter: R rows."""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from kformer.config import DecodingConfig
from kformer.text.options import OPTIONS

Options = Mapping[str, tf.Tensor]  # all options of a request by their names, each of rank 0
OPTION_SPECS = [tf.TensorSpec([], option.dtype, name=option.name) for option in OPTIONS.values()]


def option_tensors(decoding: DecodingConfig, given: Mapping[str, float | int | None] | None = None) -> Options:
    """The options that are given. Those that are not, or are None, have the values of the model's own search.

    Raises:
        ValueError: A value is not a number of the option's type.
    """
    values = {name: option.default_for(decoding) for name, option in OPTIONS.items()}
    values |= {name: value for name, value in (given or {}).items() if value is not None}
    return {name: _scalar(name, value) for name, value in values.items()}


def _scalar(name: str, value: float | int) -> tf.Tensor:
    try:
        return tf.constant(value, OPTIONS[name].dtype, shape=[])
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be one number, {OPTIONS[name].dtype}. Received: {value!r}.") from error


def named_options(tensors: Sequence[tf.Tensor]) -> Options:
    """The options, in the order of `OPTION_SPECS`, by their names."""
    return dict(zip(OPTIONS, tensors, strict=True))


def asked_lengths(
    options: Options, decoding: DecodingConfig, limits: tf.Tensor, given: int | tf.Tensor = 0
) -> tuple[tf.Tensor, tf.Tensor]:
    """The largest and the least lengths of answers, (R,) int32 each, where a request may ask for others.

    Args:
        options: Those of a request.
        decoding: The model's own search.
        limits: (R,) int32, the model's own largest lengths.
        given: (R,) int32, tokens of a prompt, which the options do not count but the lengths do.
    """
    new = tf.minimum(limits - given, options["max_length"])  # before the sum, which may exceed int32
    most = tf.where(options["max_length"] > 0, given + new, limits)
    least = tf.where(options["min_length"] > 0, given + options["min_length"], decoding.min_length)
    return most, tf.broadcast_to(least, tf.shape(limits))


def batch_seed(options: Options, rows: tf.Tensor) -> tf.Tensor:
    """(2,) int64: every batch of rows has its own seed. The batch with the first row has the given seed."""
    high = tf.bitwise.right_shift(options["seed"], 32) + tf.cast(tf.reduce_min(rows), tf.int64)
    return tf.stack([options["seed"], high])


def checks(options: Options, longest: int | None) -> list[tf.Operation]:
    """The checks of all options. If one fails, a server answers with INVALID_ARGUMENT.

    Args:
        options: Those of a request.
        longest: The largest number of tokens that the model writes, if it has a number for all texts.
    """
    most = tf.constant(OPTIONS["max_length"].highest if longest is None else longest)
    most = tf.where(options["max_length"] > 0, tf.minimum(options["max_length"], most), most)
    least = options["min_length"]
    rule = f"min_length must be less than {'max_length' if longest is None else f'max_length and {longest}'}"
    return [
        *(
            require(OPTIONS[name].allows(value), f"{name} {OPTIONS[name].rule}", value)
            for name, value in options.items()
        ),
        require(least < most, f"{rule}, because the end counts, too", least, options["max_length"]),
    ]


def require(condition: tf.Tensor, rule: str, *values: tf.Tensor) -> tf.Operation:
    """Refuses a request where the condition does not hold: the values break the rule."""
    return tf.debugging.Assert(condition, [f"{rule}. Received:", *values])
