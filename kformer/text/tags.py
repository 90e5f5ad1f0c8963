"""Tells the tag of a text from the text behind it, see `kformer.data.tags`; and where the model reads the tag.

Shape letters: B texts, L lines of them, P parts of them, K tags.
"""

import abc
import dataclasses
import re
from typing import NamedTuple

import tensorflow as tf

from kformer.config import DecodingConfig
from kformer.text.parts import Pieces, lines_of
from kformer.tokenizers import Tokenizer
from kformer.tokenizers.base import ids_of_words
from kformer.tokenizers.text_ops import WHITESPACE, replace_invalid


class TaggedLines(NamedTuple):
    """The lines of B texts without their tags."""

    lines: Pieces
    tag: tf.Tensor  # (L,) string
    cut: tf.Tensor  # (L,) string, the tag and the white space that stood at the beginning of a line, but the first
    rest: tf.Tensor  # (B,) string, the texts behind the tags with which they begin
    begin: tf.Tensor  # (B,) int64, how many bytes of white space begin `rest`


@dataclasses.dataclass(frozen=True)
class Tags(abc.ABC):
    """The tags with which texts may begin. A subclass says where the model reads them.

    Attributes:
        pattern: A regular expression for a tag and what must follow.
        default: The tag of a text that begins with none; "" leaves it as it is.
        tokens: The largest number of tokens that a tag has before a source.
        start_id: What stands before a translation without a tag.
        start_ids: What stands before translations in place of it; no translation has these ids.
    """

    pattern: str
    default: str
    tokens: int
    start_id: int
    start_ids: tuple[int, ...]

    def split(self, text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The tag with which each text begins, or else ""; and the text behind it: (B,) string each."""
        begin = f"^[{WHITESPACE}]*{self.pattern}"
        valid = replace_invalid(text)
        begins = tf.strings.regex_full_match(valid, f"{begin}(?s:.*)")
        tag = tf.strings.regex_replace(valid, f"{begin}(?s:.*)", r"\1", replace_global=False)
        rest = tf.strings.regex_replace(text, begin, "", replace_global=False)
        return tf.where(begins, tag, ""), tf.where(begins, rest, text)

    def split_whole(self, text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """As `split`, for texts that are read whole: those without a tag have the default one."""
        tag, rest = self.split(text)
        return tf.where(tag == "", self.default, tag), rest

    def lines(self, text: tf.Tensor) -> TaggedLines:
        """The lines of texts (B,) string, each with its own tag, or else with that of its text."""
        of_text, rest = self.split_whole(text)
        lines, begin = lines_of(rest)
        own, behind = self.split(lines.texts)
        has_own = (own != "") & ~lines.first  # the tag of a first line was that of its text
        behind = tf.where(has_own, behind, lines.texts)
        size = tf.strings.length(lines.texts) - tf.strings.length(behind)
        cut = tf.strings.substr(lines.texts, tf.zeros_like(size), size)
        tag = tf.where(has_own, own, tf.gather(of_text, lines.owner))
        return TaggedLines(lines._replace(texts=behind), tag, cut, rest, begin)

    def ids_behind(self, tag: tf.Tensor, ids: tf.RaggedTensor) -> tf.RaggedTensor:
        """(P, None) int32: the ids of sources, each behind those of its tag; a source without ids has no tag."""
        return tf.concat([self.source_ids(tf.where(ids.row_lengths() > 0, tag, "")), ids], axis=1)

    @abc.abstractmethod
    def source_ids(self, tag: tf.Tensor) -> tf.RaggedTensor:
        """(P, None) int32: what stands before the source of each tag (P,) string; nothing for ""."""

    @abc.abstractmethod
    def starts(self, tag: tf.Tensor) -> tf.Tensor:
        """(P,) int32: the id that stands before the translation for each tag (P,) string."""


@dataclasses.dataclass(frozen=True)
class TagsBeforeSources(Tags):
    """Tags are the first words of sources.

    Attributes:
        tokenizer: Of the sources.
    """

    tokenizer: Tokenizer

    def source_ids(self, tag: tf.Tensor) -> tf.RaggedTensor:
        return self.tokenizer.tokenize(tag)

    def starts(self, tag: tf.Tensor) -> tf.Tensor:
        return tf.fill(tf.shape(tag), tf.constant(self.start_id, tf.int32))


@dataclasses.dataclass(frozen=True)
class TagsBeforeTargets(Tags):
    """A tag stands before the target, in place of the start id.

    Attributes:
        words: The tags, in the order of `start_ids`.
    """

    words: tuple[str, ...]

    def source_ids(self, tag: tf.Tensor) -> tf.RaggedTensor:
        nothing = tf.zeros(tf.shape(tag), tf.int64)
        return tf.RaggedTensor.from_row_lengths(tf.zeros((0,), tf.int32), nothing, validate=False)

    def starts(self, tag: tf.Tensor) -> tf.Tensor:
        is_word = tf.cast(tag[:, tf.newaxis] == tf.constant(["", *self.words]), tf.int32)  # (P, K + 1)
        return tf.gather(tf.constant([self.start_id, *self.start_ids], tf.int32), tf.argmax(is_word, axis=1))


def known_tags(search: DecodingConfig, source: Tokenizer, target: Tokenizer, start_id: int) -> Tags | None:
    """The tags of a search, or else those that the tokenizer of the sources reads; None: there are none.

    Args:
        search: Knows the tags, and where they stand.
        source, target: The tokenizers.
        start_id: What stands before a translation without a tag.

    Raises:
        ValueError: Tags stand before the targets, whose vocabulary lacks one.
    """
    words = tuple((search.tags or "").split())
    if not words:
        pattern = source.tag_pattern
        return None if pattern is None else TagsBeforeSources(f"({pattern})", "", 1, start_id, (), source)
    pattern = f"({'|'.join(map(re.escape, words))})(?:[{WHITESPACE}]|$)"
    default = "" if search.untagged else words[0]
    with tf.init_scope():
        if search.tags_start_targets:
            return TagsBeforeTargets(pattern, default, 0, start_id, ids_of_words(target, words), words)
        tokens = int(tf.reduce_max(source.tokenize(tf.constant(words)).row_lengths()))
        return TagsBeforeSources(pattern, default, tokens, start_id, (), source)
