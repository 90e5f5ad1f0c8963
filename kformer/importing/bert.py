"""BERT (Devlin et al. 2019) as Hugging Face keeps it: masked language models, encoders, classifiers and taggers."""

import pathlib
from collections.abc import Iterator

import numpy as np

from kformer.config import DecodingConfig, TransformerConfig
from kformer.importing.bert_tokenizer import read_tokenizer
from kformer.importing.checkpoint import Checkpoint, open_checkpoint
from kformer.importing.fields import Fields
from kformer.importing.imported import ImportedModel, Source, dense, same
from kformer.tokenizers import SymbolTokenizer, Tokenizer
from kformer.tokenizers.base import NUM_SPECIAL_IDS

_TASKS = {
    "BertModel": "masked-language-model",
    "BertForMaskedLM": "masked-language-model",
    "BertForPreTraining": "masked-language-model",
    "BertForSequenceClassification": "classify",
    "BertForTokenClassification": "tag",
}
# The head of a masked language model has the activation of the encoder, which in kformer is a GELU.
_ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}
_HEAD = "cls.predictions"
_BIAS = f"{_HEAD}.bias"
_SOFTMAX = f"{_HEAD}.decoder.weight"
_UNUSED = frozenset(
    {f"{_HEAD}.decoder.bias", _BIAS, _SOFTMAX, "cls.seq_relationship.weight", "cls.seq_relationship.bias"}
)
_ATTENTION = {"query": "self.query", "key": "self.key", "value": "self.value", "output": "output.dense"}
# What the ids without a label have as their bias: they have almost no part in the probabilities.
_NO_LABEL = -10.0


def read(folder: pathlib.Path) -> ImportedModel:
    """Reads a folder with config.json, vocab.txt or tokenizer.json, and weights.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file is damaged, or asks for what kformer cannot represent.
    """
    fields = Fields(folder / "config.json")
    task = _task(fields)
    for name, value in (("position_embedding_type", "absolute"), ("is_decoder", False), ("add_cross_attention", False)):
        fields.expect(name, value, default=value)
    tensors = _Tensors(open_checkpoint(folder))
    source = read_tokenizer(folder, fields)
    target: Tokenizer = source
    tensors.check_tied()
    if task != "masked-language-model":
        target = SymbolTokenizer(_labels(fields, tensors.shape("classifier.weight")[0]))
    max_length = fields.number("max_position_embeddings")
    transformer = TransformerConfig(
        source_vocab_size=source.vocab_size,
        target_vocab_size=target.vocab_size,
        num_encoder_layers=fields.number("num_hidden_layers"),
        num_decoder_layers=0,
        d_model=fields.number("hidden_size"),
        d_ff=fields.number("intermediate_size"),
        num_heads=fields.number("num_attention_heads"),
        dropout_rate=float(fields.get("hidden_dropout_prob", 0.1)),
        attention_dropout_rate=float(fields.get("attention_probs_dropout_prob", 0.1)),
        activation=fields.choice("hidden_act", _ACTIVATIONS, default="gelu"),
        layer_norm_epsilon=float(fields.get("layer_norm_eps", 1e-12)),
        positional_encoding="learned",
        max_length=max_length,
        embedding_tying="all" if target is source else "none",
        scale_embeddings=False,
        normalize_embeddings=True,
        softmax_bias=target is source and _BIAS in tensors.checkpoint,
        keep_pooler=target is source and tensors.has_pooler,
        pad_id=source.pad_id,
        start_id=source.start_id,
        end_id=source.end_id,
        task=task,
    )
    weights = {**dict(tensors.encoder(transformer)), **dict(tensors.head(transformer))}
    decoding = DecodingConfig(max_source_length=max_length)
    return ImportedModel(transformer, (source, target), decoding, tensors.checkpoint, weights, tensors.unused)


def _task(fields: Fields) -> str:
    """The task of the class by which transformers reads the model; without a name of one, it is an encoder alone."""
    names = fields.get("architectures", ["BertModel"])
    if len(names) != 1 or names[0] not in _TASKS:
        raise ValueError(
            f"architectures in {fields.path} is {names!r}, which kformer cannot represent. Known: {', '.join(_TASKS)}."
        )
    return _TASKS[names[0]]


def _labels(fields: Fields, number: int) -> list[str]:
    """The labels of a classifier or tagger, in the order of its outputs. Their blanks become "_".

    Raises:
        ValueError: The model gives numbers, or several labels at once; or the labels are not those of its outputs.
    """
    fields.expect("problem_type", "single_label_classification", default="single_label_classification")
    if number == 1:
        raise ValueError(
            f"The model of {fields.path} has one output: it gives a number (problem_type=regression), and kformer's "
            "classifiers choose from labels."
        )
    given = fields.get("id2label", {str(index): f"LABEL_{index}" for index in range(number)})
    labels = ["_".join(str(given.get(str(index), "")).split()) for index in range(number)]
    if len(given) != number or "" in labels or len({*labels}) < number:
        raise ValueError(
            f"id2label in {fields.path} must name a label of its own for each of the {number} outputs. "
            f"Received: {given!r:.200}."
        )
    return labels


class _Tensors:
    """The tensors of a BERT, by their names in files of any age: with or without "bert.", "gamma" or "weight".

    Args:
        checkpoint: The tensors.

    Attributes:
        checkpoint: The same.
        has_pooler: Whether there is the first layer of a classifier's head.
        unused: Names of tensors that kformer does not need.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self._bert = "bert." if "bert.embeddings.word_embeddings.weight" in checkpoint else ""
        is_old = f"{self._bert}embeddings.LayerNorm.gamma" in checkpoint
        self._scale, self._shift = ("gamma", "beta") if is_old else ("weight", "bias")
        self._words = f"{self._bert}embeddings.word_embeddings.weight"
        self.has_pooler = f"{self._bert}pooler.dense.weight" in checkpoint
        self.unused = _UNUSED | {f"{self._bert}embeddings.position_ids"}

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, (0,) if there is none: the check of the whole model tells."""
        return self.checkpoint.shape(name) if name in self.checkpoint else (0,)

    def check_tied(self) -> None:
        """Refuses a softmax with another matrix than the embeddings. The tensors say so, not the configuration.

        Raises:
            ValueError: It has a matrix of its own.
        """
        if not {_SOFTMAX, self._words} <= {*self.checkpoint.names()}:
            return
        if not np.array_equal(self.checkpoint.read(_SOFTMAX), self.checkpoint.read(self._words)):
            raise ValueError(
                f"The tensor {_SOFTMAX} differs from {self._words}. kformer's masked language models have one matrix "
                "for both. To begin a classifier with the rest, save the encoder alone, as a BertModel."
            )

    def encoder(self, transformer: TransformerConfig) -> Iterator[tuple[str, Source]]:
        """The weights of embeddings and layers."""
        bert = self._bert
        yield "source_embedding/embeddings", same(self._words)
        yield "encoder/positions/embeddings", same(f"{bert}embeddings.position_embeddings.weight")
        yield "segments/vectors", Source((f"{bert}embeddings.token_type_embeddings.weight",), _two_rows)
        yield from self._norm("encoder/embedding_norm", f"{bert}embeddings.LayerNorm")
        for index in range(transformer.num_encoder_layers):
            path, name = f"encoder/layer_{index}", f"{bert}encoder.layer.{index}"
            for ours, theirs in _ATTENTION.items():
                yield from dense(f"{path}/self_attention/{ours}", f"{name}.attention.{theirs}").items()
            yield from self._norm(f"{path}/self_attention_residual/norm", f"{name}.attention.output.LayerNorm")
            yield from dense(f"{path}/feed_forward/inner", f"{name}.intermediate.dense").items()
            yield from dense(f"{path}/feed_forward/outer", f"{name}.output.dense").items()
            yield from self._norm(f"{path}/feed_forward_residual/norm", f"{name}.output.LayerNorm")

    def head(self, transformer: TransformerConfig) -> Iterator[tuple[str, Source]]:
        """The weights behind the encoder."""
        if transformer.task == "classify" or transformer.keep_pooler:
            yield from dense("pooler", f"{self._bert}pooler.dense").items()
        if transformer.task != "masked-language-model":
            yield "classes/kernel", Source(("classifier.weight",), _with_special_columns)
            yield "classes/bias", Source(("classifier.bias",), _with_special_biases)
            return
        yield from self._transform(transformer.d_model)
        if transformer.softmax_bias:
            yield "logits/bias", same(_BIAS)

    def _transform(self, d_model: int) -> Iterator[tuple[str, Source]]:
        """The layers before the softmax. An encoder alone has none: they begin as those of a new model."""
        if f"{_HEAD}.transform.dense.weight" in self.checkpoint:
            yield from dense("transform", f"{_HEAD}.transform.dense").items()
            yield from self._norm("transform_norm", f"{_HEAD}.transform.LayerNorm")
            return
        yield "transform/kernel", Source((), lambda: np.random.default_rng(0).normal(0, 0.02, (d_model, d_model)))
        yield "transform/bias", Source((), lambda: np.zeros(d_model))
        yield "transform_norm/gamma", Source((), lambda: np.ones(d_model))
        yield "transform_norm/beta", Source((), lambda: np.zeros(d_model))

    def _norm(self, path: str, name: str) -> Iterator[tuple[str, Source]]:
        yield f"{path}/gamma", same(f"{name}.{self._scale}")
        yield f"{path}/beta", same(f"{name}.{self._shift}")


def _two_rows(vectors: np.ndarray) -> np.ndarray:
    """The vectors of the first and the second text: a model that knows only one kind of text has one."""
    return np.concatenate([vectors, vectors])[:2] if len(vectors) == 1 else vectors[:2]


def _with_special_columns(matrix: np.ndarray) -> np.ndarray:
    """(N, D) weights of labels to (D, N + 4), with the special ids, which are no labels, before them."""
    return np.pad(matrix.T, [(0, 0), (NUM_SPECIAL_IDS, 0)])


def _with_special_biases(biases: np.ndarray) -> np.ndarray:
    return np.pad(biases, [(NUM_SPECIAL_IDS, 0)], constant_values=_NO_LABEL)
