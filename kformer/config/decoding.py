"""The configuration of the search."""

import dataclasses
import math
from typing import ClassVar, Self

from kformer.config.base import Config
from kformer.config.fields import setting

# Of a model that is used without a run folder, so that nobody knows how long the texts were that it learned from.
_LINE_LENGTH = 64
_SOURCE_LENGTH = 256
BEAM_RULES = ("paper", "transformers", "opennmt")
TAG_PLACES = ("source", "target")
# Beyond it the penalty of a long text is too large for float32: all scores would be 0.
LARGEST_LENGTH_PENALTY = 10.0
# A run finds them in its training data.
FROM_DATA = ("max_source_length", "max_sentence_length", "short_ratio", "tags", "untagged", "tags_before")


@dataclasses.dataclass(frozen=True)
class DecodingConfig(Config):
    """How a translator searches. Defaults are the paper's (section 6.1).

    A model translates badly what is longer than the texts that it learned from: it leaves out the end. So a run
    measures its training texts, and keeps their lengths in its folder. They take the place of fields that are None.

    Raises:
        ValueError: A field is out of range.

    Examples:
        >>> decoding = DecodingConfig(beam_size=8).replace(max_length=20)
        >>> decoding.beam_size, decoding.max_length, decoding.length_penalty
        (8, 20, 0.6)
    """

    panel: ClassVar[str] = "Search"
    beam_size: int = setting(4, "Width of the beam; 1 is greedy search.")
    length_penalty: float = setting(
        0.6,
        "Exponent of the length penalty, alpha of Wu et al. (2016), equation 14; larger gives longer translations. "
        "At most 10.",
    )
    max_extra_length: int = setting(50, "A translation has at most so many tokens more than its source.")
    max_length: int | None = setting(
        None, "A translation has at most so many tokens; by default there is no such limit."
    )
    beam_rules: str = setting(
        "paper",
        "Scores and end of a beam search: those of the paper; those of Hugging Face's transformers, which divide a "
        "score by length ** length_penalty; or those of OpenNMT-tf, whose finished hypotheses stay in the beam.",
        choices=BEAM_RULES,
    )
    first_id: int | None = setting(
        None,
        "The token with which every translation begins, such as the language in M2M100, NLLB and mBART. By "
        "transformers' rules it costs nothing.",
    )
    early_stopping: bool = setting(
        False, "By transformers' rules, a sentence is done as soon as beam_size translations of it are finished."
    )
    forced_end: bool = setting(False, "A translation that reaches its largest length ends there with the end token.")
    renormalize: bool = setting(False, "The probabilities of the tokens that may come next are divided by their sum.")
    min_length: int = setting(0, "Number of tokens before a translation may end.")
    no_repeat_ngram_size: int = setting(
        0, "No n-gram of so many tokens comes twice in a translation. 0: any n-gram may."
    )
    max_source_length: int | None = setting(
        None,
        "A translator divides a line with more tokens, its end id included, into its sentences; other models read no "
        "more tokens at once. By default as the run says, else 64 and 256.",
    )
    max_sentence_length: int | None = setting(
        None,
        "A sentence with more tokens, its end id included, is divided. By default as the run says, and at least "
        "max_source_length.",
    )
    short_ratio: float | None = setting(
        None,
        "A translation with fewer characters for each character of its source is reported as short. By default as the "
        "run says. 0: none is reported.",
    )
    tags: str | None = setting(
        None,
        "Words with blanks between them, such as '<2es> <2fr>', of which each source of a translator begins with one. "
        "What does not begin with one of them gets the first, but see untagged. By default as the run says.",
    )
    untagged: bool | None = setting(
        None,
        "Whether a source that begins with none of the tags is read as it is, because the run learned such sources. By "
        "default as the run says.",
    )
    tags_before: str | None = setting(
        None,
        "Where the model reads the tag of a text: before the source, as its first word, or before the target, in place "
        "of the start token. By default as the run says, else before the source.",
        choices=TAG_PLACES,
    )

    def __post_init__(self) -> None:
        self._check_types_and_choices()
        self._check_positive("beam_size", "max_extra_length", "max_length")
        self._check_positive("max_source_length", "max_sentence_length")
        for name, meaning in (
            ("length_penalty", "to compare plain log probabilities"),
            ("min_length", "for no minimum"),
            ("no_repeat_ngram_size", "to allow repetitions"),
            ("short_ratio", "to report nothing"),
        ):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise ValueError(f"{name} must be at least 0 and finite. Received: {name}={value}. Pass 0 {meaning}.")
        if self.length_penalty > LARGEST_LENGTH_PENALTY:
            raise ValueError(
                f"length_penalty must be at most {LARGEST_LENGTH_PENALTY:g}. Received: "
                f"length_penalty={self.length_penalty}. Values up to 2 are usual."
            )
        if self.max_length is not None and self.min_length >= self.max_length:
            raise ValueError(
                "min_length must be less than max_length, which counts the end, too. Received: "
                f"min_length={self.min_length}, max_length={self.max_length}. Change one of them."
            )

    @property
    def longest_line(self) -> int:
        """The largest number of tokens of a line, with the end id, that a translator does not divide."""
        return self.max_source_length or min(_LINE_LENGTH, self.longest_source)

    @property
    def longest_source(self) -> int:
        """The largest number of tokens, with the end id, that a model reads at once."""
        return max(self.max_source_length or 0, self.max_sentence_length or 0) or _SOURCE_LENGTH

    @property
    def tags_start_targets(self) -> bool:
        """Whether there are tags, and each translation begins with one of them in place of the start token.

        Examples:
            >>> DecodingConfig(tags="<2es> <2fr>", tags_before="target").tags_start_targets
            True
        """
        return bool(self.tags) and self.tags_before == "target"

    @property
    def first_is_free(self) -> bool:
        """Whether the first token of every translation is given, and costs nothing."""
        return self.first_id is not None and self.beam_rules == "transformers" and self.beam_size > 1

    def completed(self, run: "DecodingConfig") -> Self:
        """This search, with the lengths of texts that a run folder's search knows, where this one says nothing.

        Examples:
            >>> run = DecodingConfig(max_source_length=62, max_sentence_length=115)
            >>> search = DecodingConfig(beam_size=1, max_source_length=50).completed(run)
            >>> search.beam_size, search.max_source_length, search.max_sentence_length
            (1, 50, 115)
        """
        known = {name: getattr(run, name) for name in FROM_DATA if getattr(self, name) is None}
        return self.replace(**known)
