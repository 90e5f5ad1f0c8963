"""A model of the paper's base size that translates as the shipped preset does, made without training.

Speed depends on how long translations become, and random weights say nothing about that. So the preset's weights are
grown to the larger sizes:

- Width (256 to 512), inner width and heads: every feature is stored twice. A layer norm over doubled features gives the
  same, and so does a product with weights that are repeated and halved. Positions are a doubled table of the preset's
  sinusoids.
- Depth (3 to 6): three more layers after the others, whose sublayers add almost nothing. The scale and the shift of the
  last norm move from the third layer to the sixth one. Between them norms have the scale 1 and the shift 0, and return
  their inputs, which are normalized already.
- Vocabulary (4,000 to 37,000): pieces that no text holds, whose logits are far below those of the others.

So the result translates almost as the preset does, and its translations have real lengths.
"""

from typing import Any

import numpy as np

from benchmarks.common.peers import MAX_POSITIONS

PIECES = 37000
ALMOST_ZERO = 1e-3  # standard deviation of weights that add almost nothing
FAR_BELOW = -30.0  # the mean logit of unused pieces


def grow(translator: Any) -> Any:
    """A `Translator` of base size; `translator` is one with a post-norm model of half the width and depth."""
    import keras

    from kformer.config import TransformerConfig
    from kformer.models import build_transformer
    from kformer.tasks.translator import Translator

    config = TransformerConfig.of_size(
        "base",
        source_vocab_size=PIECES,
        target_vocab_size=PIECES,
        positional_encoding="learned",
        max_length=MAX_POSITIONS,
    )
    keras.utils.set_random_seed(1)
    model = build_transformer(config, dtype="float32")
    old = {variable.path: np.asarray(variable) for variable in translator.model.variables}
    outputs = _decoder_outputs(translator)
    layers = translator.config.num_encoder_layers
    for variable in model.variables:
        if "seed" not in variable.path:
            variable.assign(_grown(variable, old, layers, outputs))
    tokenizer = filled_tokenizer(translator.source_tokenizer, PIECES)
    return Translator(model, config, tokenizer, tokenizer, translator.decoding, translator.samples)


def _grown(variable: Any, old: dict[str, np.ndarray], layers: int, outputs: np.ndarray) -> np.ndarray:
    """The value of a variable of the grown model.

    Args:
        variable: The variable.
        old: The preset's variables by their paths.
        layers: How many layers the preset's encoder and decoder have.
        outputs: (N, D) outputs of the preset's decoder.
    """
    path, rng = variable.path, np.random.default_rng(1)
    if path.endswith("embeddings") and "shared_embedding" in path:
        mean = outputs.mean(axis=0)
        unused = np.tile(FAR_BELOW * mean / (mean @ mean), (PIECES - len(old[path]), 1))
        return _twice(np.concatenate([old[path], unused])) / np.sqrt(2)  # Embeddings are scaled by sqrt(D).
    if len(variable.shape) == 2 and not path.endswith("kernel"):
        return _twice(_sinusoids(variable.shape[0], variable.shape[1] // 2))
    number = int(path.split("layer_")[1].split("/")[0])
    if number >= layers - 1 and "norm" in path:
        return _grown_norm(path, old, layers, variable.shape[0])
    if number < layers:
        value = old[path]
        return _twice(value) if value.ndim == 1 else np.tile(value / 2, (2, 2))
    return rng.normal(0, ALMOST_ZERO, variable.shape) if path.endswith("kernel") else np.zeros(variable.shape)


def _grown_norm(path: str, old: dict[str, np.ndarray], layers: int, width: int) -> np.ndarray:
    """The scale or the shift of a norm in the preset's last layer, and in the layers after it."""
    side, layer, place, _, name = path.split("/")
    after_feed_forward = place == "feed_forward_residual"
    if layer == f"layer_{layers - 1}" and not after_feed_forward:
        return _twice(old[path])
    if layer == f"layer_{2 * layers - 1}" and after_feed_forward:
        last = _twice(old[f"{side}/layer_{layers - 1}/{place}/norm/{name}"])
        return last / np.sqrt(2) if side == "decoder" else last  # Logits are sums over twice as many features.
    return np.full(width, 1.0 if name == "gamma" else 0.0)


def _twice(values: np.ndarray) -> np.ndarray:
    return np.concatenate([values, values], axis=-1)


def _sinusoids(length: int, width: int) -> np.ndarray:
    from kformer.layers.positional_encoding import sinusoids

    return np.asarray(sinusoids(np.arange(length), width))


def _decoder_outputs(translator: Any) -> np.ndarray:
    """(N, D) outputs for the translations of the samples."""
    import keras
    import tensorflow as tf

    model, config = translator.model, translator.config
    source, _ = translator.codec.encode(tf.constant(list(translator.samples)))
    target = translator.target_tokenizer.tokenize(tf.constant(translator(list(translator.samples)))).to_tensor()
    target = np.pad(target.numpy(), [[0, 0], [1, 0]], constant_values=config.start_id)
    last = keras.Model(model.inputs, model.get_layer("decoder").output)
    outputs = np.asarray(last({"source": source, "target_in": tf.constant(target, tf.int32)}))
    return outputs[target != config.pad_id]


def filled_tokenizer(learned: Any, vocab_size: int) -> Any:
    """A `SentencePieceTokenizer` with more pieces, which no text holds."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    from kformer.tokenizers import SentencePieceTokenizer

    proto = sentencepiece_model_pb2.ModelProto.FromString(learned.model_bytes)
    for index in range(learned.vocab_size, vocab_size):
        piece = proto.pieces.add()
        piece.piece, piece.score = f"\u2581unused{index}\u2581", -1e6
    filled = SentencePieceTokenizer(proto.SerializeToString())
    assert sentencepiece.SentencePieceProcessor(model_proto=filled.model_bytes).vocab_size() == vocab_size
    return filled
