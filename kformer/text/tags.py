"""Tells the tag of a text from the text behind it, see `kformer.data.tags`.

Shape letters: B texts.
"""

import re
from typing import NamedTuple, Self

import tensorflow as tf

from kformer.config import DecodingConfig
from kformer.tokenizers import Tokenizer
from kformer.tokenizers.text_ops import WHITESPACE, replace_invalid


class Tags(NamedTuple):
    """The tags with which texts may begin.

    Attributes:
        pattern: A regular expression for a tag and what must follow.
        default: The tag of a text that begins with none; "" leaves it as it is.
        tokens: The largest number of tokens of a tag.
    """

    pattern: str
    default: str
    tokens: int

    @classmethod
    def known(cls, search: DecodingConfig, tokenizer: Tokenizer) -> Self | None:
        """Those of a search, or else those that the tokenizer reads; None: there are none."""
        words = (search.tags or "").split()
        if words:
            every = "|".join(map(re.escape, words))
            with tf.init_scope():
                tokens = int(tf.reduce_max(tokenizer.tokenize(tf.constant(words)).row_lengths()))
            return cls(f"({every})(?:[{WHITESPACE}]|$)", "" if search.untagged else words[0], tokens)
        if tokenizer.tag_pattern is not None:
            return cls(f"({tokenizer.tag_pattern})", "", 1)
        return None

    def split(self, text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The tag of each text, and the text behind it: (B,) string each. A text without a tag has the default one.

        A text of several lines of which a later one begins with a tag, too, is left as it is: its lines say what they
        want.
        """
        begin = f"^[{WHITESPACE}]*{self.pattern}"
        valid = replace_invalid(text)
        begins = tf.strings.regex_full_match(valid, f"{begin}(?s:.*)")
        is_own = tf.strings.regex_full_match(
            valid, f"(?s:.*)[^{WHITESPACE}](?s:.*)\n[{WHITESPACE}]*{self.pattern}(?s:.*)"
        )
        tag = tf.strings.regex_replace(valid, f"{begin}(?s:.*)", r"\1", replace_global=False)
        rest = tf.strings.regex_replace(text, begin, "", replace_global=False)
        tag = tf.where(begins, tag, self.default)
        return tf.where(is_own, "", tag), tf.where(begins & ~is_own, rest, text)


def ids_behind(tag: tf.Tensor, ids: tf.RaggedTensor, tokenizer: Tokenizer) -> tf.RaggedTensor:
    """(B, None) int32: the ids of each tag, and behind them those of its text; a text without ids has no tag."""
    tagged = tf.where(ids.row_lengths() > 0, tag, "")
    return tf.concat([tokenizer.tokenize(tagged), ids], axis=1)
