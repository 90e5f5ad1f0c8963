"""The configuration of the search."""

import dataclasses
import math

from kformer.config.base import Config


@dataclasses.dataclass(frozen=True)
class DecodingConfig(Config):
    """How a translator searches. Defaults are the paper's (section 6.1).

    Raises:
        ValueError: A field is out of range.

    Examples:
        >>> decoding = DecodingConfig(beam_size=8).replace(max_length=20)
        >>> decoding.beam_size, decoding.max_length, decoding.length_penalty
        (8, 20, 0.6)
    """

    beam_size: int = 4  # 1 is greedy search
    length_penalty: float = 0.6  # alpha of Wu et al. (2016), equation 14
    max_extra_length: int = 50  # a translation has at most source length + 50 tokens
    max_length: int | None = None  # and at most this many, if given
    min_length: int = 0  # tokens before a translation may end
    max_source_length: int = 256  # with the end id; longer texts are translated in parts

    def __post_init__(self) -> None:
        self._check_types()
        self._check_positive("beam_size", "max_extra_length", "max_length", "max_source_length")
        for name, meaning in (
            ("length_penalty", "to compare plain log probabilities"),
            ("min_length", "for no minimum"),
        ):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} must be at least 0 and finite. Received: {name}={value}. Pass 0 {meaning}.")
