"""Where the weights of a BERT lie in a file of Hugging Face: one table, by which files are read and written."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kformer.config import TransformerConfig
from kformer.importing.imported_model import Source, as_it_is, dense, same
from kformer.tokenizers.base import NUM_SPECIAL_IDS

HEAD = "cls.predictions"
TRANSFORM = f"{HEAD}.transform"
BIAS = f"{HEAD}.bias"
_ATTENTION = {"query": "self.query", "key": "self.key", "value": "self.value", "output": "output.dense"}
# What the ids without a label have as their bias: they have almost no part in the probabilities.
_NO_LABEL = -10.0


class Names(NamedTuple):
    """How a file names what is in all of them; by default as transformers writes it.

    Attributes:
        prefix: Before the names of embeddings and layers. An encoder alone has none.
        scale, shift: The two vectors of a norm, "gamma" and "beta" in the oldest files.
    """

    prefix: str = "bert."
    scale: str = "weight"
    shift: str = "bias"

    @property
    def words(self) -> str:
        """The name of the embeddings."""
        return f"{self.prefix}embeddings.word_embeddings.weight"

    def norm(self, path: str, name: str) -> dict[str, Source]:
        """The weights of a layer norm."""
        return {f"{path}/gamma": same(f"{name}.{self.scale}"), f"{path}/beta": same(f"{name}.{self.shift}")}


def find_weights(
    transformer: TransformerConfig, names: Names | None = None, has_transform: bool = True
) -> dict[str, Source]:
    """Where each weight of a BERT comes from.

    Args:
        transformer: The configuration.
        names: Those of the file; None: as transformers writes them.
        has_transform: Whether there are the layers before the softmax. An encoder alone has none.
    """
    names = names or Names()
    return {**dict(_encoder(transformer, names)), **dict(_head(transformer, names, has_transform))}


def _encoder(transformer: TransformerConfig, names: Names) -> Iterator[tuple[str, Source]]:
    """The weights of embeddings and layers."""
    bert = names.prefix
    yield "source_embedding/embeddings", same(names.words)
    yield "encoder/positions/embeddings", same(f"{bert}embeddings.position_embeddings.weight")
    yield "segments/vectors", Source((f"{bert}embeddings.token_type_embeddings.weight",), _two_rows, as_it_is)
    yield from names.norm("encoder/embedding_norm", f"{bert}embeddings.LayerNorm").items()
    for index in range(transformer.num_encoder_layers):
        path, name = f"encoder/layer_{index}", f"{bert}encoder.layer.{index}"
        for ours, theirs in _ATTENTION.items():
            yield from dense(f"{path}/self_attention/{ours}", f"{name}.attention.{theirs}").items()
        yield from names.norm(f"{path}/self_attention_residual/norm", f"{name}.attention.output.LayerNorm").items()
        yield from dense(f"{path}/feed_forward/inner", f"{name}.intermediate.dense").items()
        yield from dense(f"{path}/feed_forward/outer", f"{name}.output.dense").items()
        yield from names.norm(f"{path}/feed_forward_residual/norm", f"{name}.output.LayerNorm").items()


def _head(transformer: TransformerConfig, names: Names, has_transform: bool) -> Iterator[tuple[str, Source]]:
    """The weights behind the encoder."""
    if transformer.task == "classify" or transformer.keep_pooler:
        yield from dense("pooler", f"{names.prefix}pooler.dense").items()
    if transformer.task != "masked-language-model":
        yield "classes/kernel", Source(("classifier.weight",), _with_special_columns, _without_special_columns)
        yield "classes/bias", Source(("classifier.bias",), _with_special_biases, _without_special_biases)
        return
    if has_transform:
        yield from dense("transform", f"{TRANSFORM}.dense").items()
        yield from names.norm("transform_norm", f"{TRANSFORM}.LayerNorm").items()
    else:
        yield from _new_transform(transformer.d_model)
    if transformer.softmax_bias:
        yield "logits/bias", same(BIAS)


def _new_transform(d_model: int) -> Iterator[tuple[str, Source]]:
    """The layers before the softmax of an encoder alone: they begin as those of a new model."""
    yield "transform/kernel", Source((), lambda: np.random.default_rng(0).normal(0, 0.02, (d_model, d_model)))
    yield "transform/bias", Source((), lambda: np.zeros(d_model))
    yield "transform_norm/gamma", Source((), lambda: np.ones(d_model))
    yield "transform_norm/beta", Source((), lambda: np.zeros(d_model))


def _two_rows(vectors: np.ndarray) -> np.ndarray:
    """The vectors of the first and the second text: a model that knows only one kind of text has one."""
    return np.concatenate([vectors, vectors])[:2] if len(vectors) == 1 else vectors[:2]


def _with_special_columns(matrix: np.ndarray) -> np.ndarray:
    """(N, D) weights of labels to (D, N + 4), with the special ids, which are no labels, before them."""
    return np.pad(matrix.T, [(0, 0), (NUM_SPECIAL_IDS, 0)])


def _without_special_columns(kernel: np.ndarray) -> np.ndarray:
    """The way back. No answer looks at the logits of the special ids, so their weights may get lost."""
    return kernel[:, NUM_SPECIAL_IDS:].T


def _with_special_biases(biases: np.ndarray) -> np.ndarray:
    return np.pad(biases, [(NUM_SPECIAL_IDS, 0)], constant_values=_NO_LABEL)


def _without_special_biases(biases: np.ndarray) -> np.ndarray:
    return biases[NUM_SPECIAL_IDS:]
