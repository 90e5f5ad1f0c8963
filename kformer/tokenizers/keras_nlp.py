"""Makes any tokenizer of keras-nlp (keras-hub) a kformer tokenizer.

Shapes: B batch, T tokens.
"""

import json
import pathlib
from collections.abc import Callable
from typing import Any, ClassVar, Self

import keras
import numpy as np
import tensorflow as tf

from kformer.tokenizers.base import NUM_SPECIAL_IDS, UNKNOWN_ID, Tokenizer, begins_word
from kformer.tokenizers.ragged import kept
from kformer.tokenizers.text_ops import as_texts, replace_invalid, tf_text, traced

CONFIG_FILE = "keras.json"
ASSETS_FOLDER = "assets"


class KerasNLPTokenizer(Tokenizer):
    """Wraps a tokenizer of keras-nlp. Its ids are raised by 4, so that 0 to 3 stay free for kformer's special ids.

    Many wrapped tokenizers change letters' case, blanks or punctuation, and `normalize` shows the changes.

    Args:
        tokenizer: a `keras_nlp.tokenizers.Tokenizer` that returns integers and has no `sequence_length`.

    Raises:
        ValueError: The tokenizer returns strings, pads or cuts its output, or adds start or end tokens.

    Examples:
        >>> import keras_nlp  # doctest: +SKIP
        >>> tokenizer = KerasNLPTokenizer(keras_nlp.tokenizers.ByteTokenizer())  # doctest: +SKIP
        >>> tokenizer.tokenize(["ab"]).to_list()  # the bytes are 97 and 98  # doctest: +SKIP
        [[101, 102]]
    """

    kind: ClassVar[str] = "keras_nlp"

    def __init__(self, tokenizer: keras.Layer) -> None:
        super().__init__(name="keras_nlp_tokenizer")
        if getattr(tokenizer, "sequence_length", None) is not None:
            raise ValueError(
                "The keras-nlp tokenizer must not pad or cut. "
                f"Received: sequence_length={tokenizer.sequence_length}. Build it with sequence_length=None."
            )
        for option in ("add_bos", "add_eos"):
            if getattr(tokenizer, option, False):
                raise ValueError(
                    "The keras-nlp tokenizer must not add start and end tokens, kformer adds its own. "
                    f"Received: {option}=True. Build it with {option}=False."
                )
        if not keras.backend.is_int_dtype(tokenizer.compute_dtype):
            raise ValueError(
                "The keras-nlp tokenizer must return integers. "
                f'Received: dtype={tokenizer.compute_dtype!r}. Build it with dtype="int32".'
            )
        # Some tokenizers make constants when they are first used. If that happens inside a graph, the constants belong
        # to that graph, and the tokenizer fails in all others. Older versions of keras-nlp make the constants at once.
        if hasattr(tokenizer, "_maybe_initialized_tf"):
            tokenizer._maybe_initialized_tf()
        self.tokenizer = tokenizer
        self.vocab_size = NUM_SPECIAL_IDS + tokenizer.vocabulary_size()
        unknown = getattr(tokenizer, "oov_token", None)  # only WordPiece has one
        self.unknown_id = UNKNOWN_ID if unknown is None else NUM_SPECIAL_IDS + tokenizer.token_to_id(unknown)
        # The graphs are also for callers outside of a graph: there, keras-nlp itself would return lists or tensors of
        # the Keras backend.
        self._tokenize, self._detokenize = traced(
            lambda text: self._in_graph(tokenizer.tokenize, text), lambda ids: self._in_graph(tokenizer.detokenize, ids)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "A tokenizer of keras-nlp cannot be pickled. Save it with `save_tokenizer(tokenizer, folder)`, and read it "
            "again with `kformer.tokenizers.load_tokenizer(folder)`."
        )

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        # ByteTokenizer fails if a batch contains no byte at all. So one more text is added, and its ids are dropped.
        text = tf.concat([replace_invalid(as_texts(text)), ["x"]], axis=0)
        return tf.cast(self._tokenize(text)[:-1], tf.int32) + NUM_SPECIAL_IDS

    def detokenize(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """See `Tokenizer.detokenize`. The unknown id, and ids outside the vocabulary, are dropped."""
        content = self._content(ids)
        known = (content >= NUM_SPECIAL_IDS) & (content < self.vocab_size)
        return replace_invalid(self._detokenize(kept(content, known.values) - NUM_SPECIAL_IDS))

    def _in_graph(self, method: Callable[[Any], Any], values: Any) -> Any:
        """Calls a method of the wrapped tokenizer. Its SentencePiece model, if it has one, is loaded inside the graph.

        A model that is loaded outside is lost when tf.random.set_seed empties TensorFlow's cache of eager kernels.
        """
        if not hasattr(self.tokenizer, "_sentence_piece"):
            return method(values)
        outside = self.tokenizer._sentence_piece
        self.tokenizer._sentence_piece = tf_text.SentencepieceTokenizer(self.tokenizer.proto, out_type=tf.int32)
        try:
            return method(values)
        finally:
            self.tokenizer._sentence_piece = outside

    def fallback_ids(self) -> list[int]:
        """The id of WordPiece's unknown token. For other tokenizers the list is empty."""
        return [] if self.unknown_id == UNKNOWN_ID else [self.unknown_id]

    def word_starts(self) -> np.ndarray:
        """See `Tokenizer.word_starts`. WordPiece marks the tokens that begin no word, with "##"."""
        return np.array([False] * NUM_SPECIAL_IDS + [begins_word(token) for token in self._written()])

    def _written(self) -> list[str]:
        """What each id of the wrapped tokenizer adds to a text, with the blank before it."""
        tokenizer = self.tokenizer
        if hasattr(tokenizer, "suffix_indicator"):
            suffix = tokenizer.suffix_indicator
            words = [" " + token for token in tokenizer.get_vocabulary()]
            return [word.removeprefix(" " + suffix) for word in words]
        if hasattr(tokenizer, "proto"):  # detokenizing a piece of SentencePiece drops its blank
            return [piece.replace("\u2581", " ") for piece in tokenizer.get_vocabulary()]
        ids = np.arange(NUM_SPECIAL_IDS, self.vocab_size, dtype=np.int32)
        return [text.decode("utf-8") for text in self.detokenize(ids[:, np.newaxis]).numpy()]

    def write_files(self, directory: pathlib.Path) -> dict[str, Any]:
        config = keras.saving.serialize_keras_object(self.tokenizer)
        (directory / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        has_assets = bool(self.tokenizer.file_assets)
        if has_assets:
            (directory / ASSETS_FOLDER).mkdir()
            self.tokenizer.save_assets(str(directory / ASSETS_FOLDER))
        return {"assets": has_assets}

    @classmethod
    def read_files(cls, directory: pathlib.Path, description: dict[str, Any]) -> Self:
        import keras_nlp  # noqa: F401  (it registers its classes with Keras; not above, because it loads slowly)

        config = json.loads((directory / CONFIG_FILE).read_text(encoding="utf-8"))
        tokenizer = keras.saving.deserialize_keras_object(config)
        if description["assets"]:
            tokenizer.load_assets(str(directory / ASSETS_FOLDER))
        return cls(tokenizer)
