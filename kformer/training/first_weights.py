"""The weights that a run begins with: those of an earlier run, of the same or of another task."""

import keras

from kformer.models import build_model
from kformer.models.encoder_only import CLASSES
from kformer.runs.folder import RunFolder
from kformer.runs.weights import load_weights
from kformer.tokenizers import SymbolTokenizer, Tokenizer, load_tokenizers


def load_first_weights(origin: RunFolder, model: keras.Model, task: str, target_tokenizer: Tokenizer) -> None:
    """Reads the weights of an earlier run into a model.

    If the earlier run had another task or other labels, only the layers that both models have are read, such as the
    encoder: those of the same name whose weights have the same shapes. The others keep their random weights, and so
    does the projection to other labels.

    Args:
        origin: The earlier run.
        model: The model of the new run.
        task: The task of the new run.
        target_tokenizer: Its vocabulary of what is predicted.
    """
    earlier = origin.transformer_config()
    is_known = _have_same_symbols(load_tokenizers(origin.tokenizer_folder)[1], target_tokenizer)
    if earlier.task == task and is_known:
        load_weights(origin, model)
        return
    other = build_model(earlier)
    load_weights(origin, other)
    layers = {layer.name: layer for layer in other.layers if layer.weights and (is_known or layer.name != CLASSES)}
    common = [layer for layer in model.layers if layer.name in layers and _same_shapes(layer, layers[layer.name])]
    for layer in common:
        layer.set_weights(layers[layer.name].get_weights())


def _have_same_symbols(first: Tokenizer, second: Tokenizer) -> bool:
    """Whether two vocabularies of symbols, such as labels, are the same. Those of other kinds are never changed."""
    if isinstance(first, SymbolTokenizer) and isinstance(second, SymbolTokenizer):
        return first.symbols == second.symbols
    return True


def _same_shapes(layer: keras.layers.Layer, other: keras.layers.Layer) -> bool:
    return [tuple(one.shape) for one in layer.weights] == [tuple(one.shape) for one in other.weights]
