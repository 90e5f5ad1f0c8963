"""Length penalties: the log probability of a hypothesis is divided by them, so that a long one can be the best.

Here alpha is `length_penalty`, a float or a tensor () float32, and |Y| the number of tokens, the end included.
"""

from collections.abc import Callable
from typing import Any

from keras import ops

LengthNorm = Callable[[Any, Any], Any]


def length_norm(lengths: Any, length_penalty: Any) -> Any:
    """lp(Y) = ((5 + |Y|) / 6) ** alpha, Wu et al. 2016, equation 14; float32, shape of `lengths`."""
    return ops.power((5.0 + ops.cast(lengths, "float32")) / 6.0, length_penalty)


def length_power(lengths: Any, length_penalty: Any) -> Any:
    """|Y| ** alpha, as transformers and CTranslate2 have it; float32, shape of `lengths`. A length of 0 counts as 1."""
    return ops.power(ops.maximum(ops.cast(lengths, "float32"), 1.0), length_penalty)


def norm_of(beam_rules: str) -> LengthNorm:
    """The length penalty that belongs to the rules of a beam search, see `DecodingConfig.beam_rules`.

    Examples:
        >>> [float(norm_of(rules)(7, 1.0)) for rules in ("paper", "opennmt", "transformers")]
        [2.0, 2.0, 7.0]
    """
    return length_power if beam_rules == "transformers" else length_norm
