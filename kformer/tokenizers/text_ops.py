"""Text operations that several tokenizers use, and the import of tensorflow-text after a check of its version.

Shapes: B batch.
"""

import importlib.metadata
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import tensorflow as tf

# Within the brackets of a regular expression: all characters with Unicode's property White_Space, which are ASCII
# blanks, NEXT LINE, and the separators Zs, Zl and Zp.
WHITESPACE = r"\t-\r \x{85}\p{Z}"


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


check_tensorflow_text(tf.__version__, _installed_version("tensorflow-text"))

import tensorflow_text as tf_text  # noqa: E402  (after the check, because a failed import would not name the cause)


def replace_invalid(text: tf.Tensor) -> tf.Tensor:
    """(B,) string to (B,) string: bytes that are not UTF-8 become U+FFFD."""
    return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace", replacement_char=0xFFFD)


def collapse_whitespace(text: tf.Tensor) -> tf.Tensor:
    """(B,) string to (B,) string: every run of Unicode white space becomes one blank, or nothing at the ends."""
    text = tf.strings.regex_replace(text, f"[{WHITESPACE}]+", " ")
    return tf.strings.regex_replace(text, r"^ | $", "")


def normalize_text(text: tf.Tensor) -> tf.Tensor:
    """(B,) string to (B,) string: valid UTF-8, Unicode form NFC, white space collapsed. Nothing else is changed."""
    return collapse_whitespace(tf_text.normalize_utf8(replace_invalid(text), "NFC"))


def traced(
    tokenize: Callable[[tf.Tensor], tf.RaggedTensor], detokenize: Callable[[tf.RaggedTensor], tf.Tensor]
) -> tuple[Callable[[tf.Tensor], tf.RaggedTensor], Callable[[tf.RaggedTensor], tf.Tensor]]:
    """Graphs of a function from (B,) string to (B, None) ids, and of one from (B, None) int32 ids to (B,) string.

    They are traced here. If each tokenizer traced them at its first call, TensorFlow would warn after a few tokenizers,
    because it would take them for one function that is traced again and again.
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
