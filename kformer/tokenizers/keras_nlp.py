"""Any tokenizer of keras-nlp (keras-hub) as a kformer tokenizer.

Shapes: B batch, T tokens.
"""

import json
import pathlib
from collections.abc import Callable
from typing import Any, ClassVar, Self

import keras
import tensorflow as tf

from kformer.tokenizers.base import NUM_SPECIAL_IDS, Tokenizer
from kformer.tokenizers.text_ops import replace_invalid, tf_text, traced

CONFIG_FILE = "keras.json"
ASSETS_FOLDER = "assets"


class KerasNLPTokenizer(Tokenizer):
    """Wraps a tokenizer of keras-nlp. Its ids are shifted by 4, so that none meets pad, start, end or unknown.

    `normalize` is what the wrapped tokenizer gives back: many change case, blanks or punctuation.

    Args:
        tokenizer: a `keras_nlp.tokenizers.Tokenizer` with integer output and without `sequence_length`.

    Raises:
        ValueError: The tokenizer gives strings, or pads or cuts its output.
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
                "The keras-nlp tokenizer must give integers. "
                f'Received: dtype={tokenizer.compute_dtype!r}. Build it with dtype="int32".'
            )
        # Some tokenizers make their constants at first use; inside a graph those would belong to that graph alone.
        if hasattr(tokenizer, "_maybe_initialized_tf"):
            tokenizer._maybe_initialized_tf()
        self.tokenizer = tokenizer
        self.vocab_size = NUM_SPECIAL_IDS + tokenizer.vocabulary_size()
        # Outside a graph, keras-nlp runs in Python and gives tensors of the Keras backend or lists.
        self._tokenize, self._detokenize = traced(
            lambda text: self._in_graph(tokenizer.tokenize, text), lambda ids: self._in_graph(tokenizer.detokenize, ids)
        )

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        # ByteTokenizer fails on a batch without a single byte: one more text, dropped again, prevents that.
        text = tf.concat([replace_invalid(text), ["x"]], axis=0)
        return tf.cast(self._tokenize(text)[:-1], tf.int32) + NUM_SPECIAL_IDS

    def detokenize(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """See `Tokenizer.detokenize`. The unknown id, and ids outside the vocabulary, are dropped."""
        content = self._content(ids)
        known = (content >= NUM_SPECIAL_IDS) & (content < self.vocab_size)
        return replace_invalid(self._detokenize(tf.ragged.boolean_mask(content, known) - NUM_SPECIAL_IDS))

    def _in_graph(self, method: Callable[[Any], Any], values: Any) -> Any:
        """Calls the wrapped tokenizer with its SentencePiece model, if it has one, loaded inside the current graph.

        A model loaded outside is lost when tf.random.set_seed empties TensorFlow's cache of eager kernels.
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
        """The unknown token of WordPiece; of other tokenizers none is known."""
        unknown = getattr(self.tokenizer, "oov_token", None)
        return [] if unknown is None else [NUM_SPECIAL_IDS + self.tokenizer.token_to_id(unknown)]

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
        import keras_nlp  # noqa: F401  (registers its classes with Keras; heavy, so only here)

        config = json.loads((directory / CONFIG_FILE).read_text(encoding="utf-8"))
        tokenizer = keras.saving.deserialize_keras_object(config)
        if description["assets"]:
            tokenizer.load_assets(str(directory / ASSETS_FOLDER))
        return cls(tokenizer)
