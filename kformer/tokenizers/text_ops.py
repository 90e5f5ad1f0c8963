"""Text operations that several tokenizers use, and the import of tensorflow-text after a check of its version.

Shapes: B batch.
"""

import importlib.metadata
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import tensorflow as tf

from kformer.writing_systems import MEANINGLESS, UNSPACED, WHITESPACE

# Within the brackets of a regular expression: characters that show nothing where they stand alone.
INVISIBLE = MEANINGLESS + "\u180e\u200c\u200d"

# Texts that begin or end with a character of a script that writes blanks between words, and those that end with one.
BEGINS_SPACED, ENDS_SPACED = rf"(?s)[^{UNSPACED}{WHITESPACE}].*", rf"(?s).*[^{UNSPACED}{WHITESPACE}]"
ENDS_BLANK = rf"(?s).*[{WHITESPACE}]"

# Runs of white space that one blank takes the place of. A pattern that also found single blanks would take five times
# as long, since most texts have no other white space.
_NOT_ONE_BLANK = f"[{WHITESPACE}]{{2,}}|[{WHITESPACE.replace(' ', '')}]"


def check_tensorflow_text(tensorflow_version: str, text_version: str | None) -> None:
    """Refuses a tensorflow-text that was built for another TensorFlow: its import would fail with an undefined symbol.

    Raises:
        ImportError: tensorflow-text is missing (`text_version=None`) or has another minor version.
    """
    minor = ".".join(tensorflow_version.split(".")[:2])
    if text_version is not None and text_version.split(".")[:2] == minor.split("."):
        return
    found = "is not installed" if text_version is None else f"is version {text_version}"
    raise ImportError(
        f"kformer's tokenizers need the tensorflow-text for TensorFlow {tensorflow_version}, but tensorflow-text "
        f'{found}. Run: pip install "tensorflow-text=={minor}.*"'
    )


def _installed_version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_keras(setting: str, keras_2_version: str | None) -> None:
    """Refuses the environment variable TF_USE_LEGACY_KERAS where the import of tensorflow-text would fail with it.

    Args:
        setting: The value of TF_USE_LEGACY_KERAS; "" if it is not set.
        keras_2_version: The installed version of tf_keras, or None.

    Raises:
        ImportError: TensorFlow is to use Keras 2, which is not installed.
    """
    if setting.lower() in ("1", "true") and keras_2_version is None:
        raise ImportError(
            f"TF_USE_LEGACY_KERAS={setting} makes TensorFlow look for Keras 2, which is not installed. kformer runs on "
            "Keras 3. Run: unset TF_USE_LEGACY_KERAS. If another package needs Keras 2: pip install tf_keras"
        )


check_keras(os.environ.get("TF_USE_LEGACY_KERAS", ""), _installed_version("tf_keras"))
check_tensorflow_text(tf.__version__, _installed_version("tensorflow-text"))

import tensorflow_text as tf_text  # noqa: E402  (after the check, because a failed import would not name the cause)


def string_tensor(texts: Sequence[str]) -> tf.Tensor:
    """(N,) string. Lone surrogates are kept: `replace_invalid` turns them into U+FFFD."""
    return tf.constant([text.encode("utf-8", "surrogatepass") for text in texts], tf.string)


def as_texts(text: Any) -> tf.Tensor:
    """The texts of a batch as a (B,) string tensor.

    Raises:
        ValueError: They are no strings, or have another shape.
    """
    try:
        tensor = tf.convert_to_tensor(text, tf.string)
    except (TypeError, ValueError):
        tensor = None
    if tensor is None or tensor.shape.rank not in (1, None):
        raise ValueError(
            "A tokenizer takes a batch of texts: a list of strings, or a string tensor of shape (B,). "
            f"Received: {text!r:.200}. Put a single text into a list, and the texts of several rows into one list."
        )
    return tensor


def as_ids(ids: Any) -> tf.Tensor | tf.RaggedTensor:
    """The ids of a batch as a (B, T) int32 tensor, dense or ragged.

    Raises:
        ValueError: They are no integers, or have another shape.
    """
    try:
        tensor = ids if tf.is_tensor(ids) else tf.ragged.constant(ids, tf.int32, ragged_rank=1)
    except (TypeError, ValueError):
        tensor = None
    if tensor is None or tensor.shape.rank not in (2, None) or not tensor.dtype.is_integer:
        raise ValueError(
            f"A tokenizer makes texts of rows of integer ids, of shape (B, T). Received: {ids!r:.200}. "
            "Put the ids of a single text into a list: [ids]."
        )
    return tf.cast(tensor, tf.int32)


def replace_invalid(text: tf.Tensor) -> tf.Tensor:
    """(B,) string to (B,) string: bytes that are not UTF-8 become U+FFFD."""
    return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace", replacement_char=0xFFFD)


def collapse_whitespace(text: tf.Tensor) -> tf.Tensor:
    """(B,) string to (B,) string: every run of Unicode white space becomes one blank, or nothing at the ends."""
    text = tf.strings.regex_replace(text, _NOT_ONE_BLANK, " ")
    return tf.strings.regex_replace(text, r"^ | $", "")


def trimmed(text: tf.Tensor) -> tf.Tensor:
    """(B,) string to (B,) string, without white space at the ends."""
    return tf.strings.regex_replace(text, r"^\s+|\s+$", "")


def normalize_text(text: tf.Tensor) -> tf.Tensor:
    """(B,) string to (B,) string: valid UTF-8, Unicode form NFC, white space collapsed. Nothing else is changed."""
    return collapse_whitespace(tf_text.normalize_utf8(replace_invalid(text), "NFC"))


def read_text(text: tf.Tensor) -> tf.Tensor:
    """As `normalize_text`, for texts to tokenize: without `MEANINGLESS` characters.

    A text that shows nothing becomes "", as if it were blank.
    """
    text = tf.strings.regex_replace(replace_invalid(text), f"[{MEANINGLESS}]+", "")
    return tf.strings.regex_replace(normalize_text(text), f"^[ {INVISIBLE}]+$", "")


def lower(text: tf.Tensor) -> tf.Tensor:
    """(B,) string, valid UTF-8, to (B,) string: lower case, each letter by itself, in the same way on every machine.

    TensorFlow's operation writes a sigma at the end of a word as ς, and I as ı where the system's language is Turkish.
    """
    for upper, small in (("Σ", "σ"), ("I", "i"), ("İ", "i̇")):
        text = tf.strings.regex_replace(text, upper, small)
    return tf.strings.lower(text, encoding="utf-8")


def traced(
    tokenize: Callable[[tf.Tensor], tf.RaggedTensor], detokenize: Callable[[tf.RaggedTensor], tf.Tensor]
) -> tuple[Callable[[tf.Tensor], tf.RaggedTensor], Callable[[tf.RaggedTensor], tf.Tensor]]:
    """The two methods of a tokenizer as `tf.function`s.

    They are traced at once. If each tokenizer traced them at its first call, TensorFlow would warn after a few
    tokenizers, because it would take them for one function that is traced again and again.

    Args:
        tokenize: From texts, (B,) string, to ids, (B, None) int32.
        detokenize: From ids, (B, None) int32, to texts, (B,) string.
    """
    functions = (
        tf.function(tokenize, input_signature=[tf.TensorSpec([None], tf.string)]),
        tf.function(detokenize, input_signature=[tf.RaggedTensorSpec([None, None], tf.int32)]),
    )
    for function in functions:
        function.get_concrete_function()
    return functions


def batches_of_bytes(texts: Iterable[str], size: int) -> Iterator[list[bytes]]:
    """Lists of up to `size` UTF-8 strings. Lone surrogates are kept: `replace_invalid` turns them into U+FFFD."""
    iterator = iter(texts)
    while batch := [text.encode("utf-8", "surrogatepass") for text in islice(iterator, size)]:
        yield batch
