"""BERT (Devlin et al. 2019) as Hugging Face keeps it: masked language models, encoders, classifiers and taggers."""

import pathlib

import numpy as np

from kformer.config import DecodingConfig, TransformerConfig
from kformer.importing.activations import ACTIVATIONS
from kformer.importing.bert_tokenizer import read_tokenizer
from kformer.importing.bert_weights import BIAS, HEAD, TRANSFORM, Names, find_weights
from kformer.importing.checkpoint import Checkpoint
from kformer.importing.checkpoint_folder import open_checkpoint
from kformer.importing.fields import Fields
from kformer.importing.imported_model import ImportedModel
from kformer.tokenizers import SymbolTokenizer, Tokenizer

_TASKS = {
    "BertModel": "masked-language-model",
    "BertForMaskedLM": "masked-language-model",
    "BertForPreTraining": "masked-language-model",
    "BertForSequenceClassification": "classify",
    "BertForTokenClassification": "tag",
}
# The head of a masked language model has the activation of the encoder, which in kformer is a GELU.
GELUS = {theirs: ours for theirs, ours in ACTIVATIONS.items() if ours.startswith("gelu")}
_SOFTMAX = f"{HEAD}.decoder.weight"
_UNUSED = frozenset(
    {f"{HEAD}.decoder.bias", BIAS, _SOFTMAX, "cls.seq_relationship.weight", "cls.seq_relationship.bias"}
)


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
        num_encoder_layers=fields.layers("num_hidden_layers"),
        num_decoder_layers=0,
        d_model=fields.number("hidden_size"),
        d_ff=fields.number("intermediate_size"),
        num_heads=fields.number("num_attention_heads"),
        dropout_rate=float(fields.get("hidden_dropout_prob", 0.1)),
        attention_dropout_rate=float(fields.get("attention_probs_dropout_prob", 0.1)),
        activation=fields.choice("hidden_act", GELUS if target is source else ACTIVATIONS, default="gelu"),
        layer_norm_epsilon=float(fields.get("layer_norm_eps", 1e-12)),
        positional_encoding="learned",
        max_length=max_length,
        embedding_tying="all" if target is source else "none",
        scale_embeddings=False,
        normalize_embeddings=True,
        softmax_bias=target is source and BIAS in tensors.checkpoint,
        keep_pooler=target is source and tensors.has_pooler,
        pad_id=source.pad_id,
        start_id=source.start_id,
        end_id=source.end_id,
        task=task,
    )
    weights = find_weights(transformer, tensors.names, tensors.has_transform)
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
        names: How the file names what is in all of them.
        has_transform: Whether there are the layers before a softmax.
        has_pooler: Whether there is the first layer of a classifier's head.
        unused: Names of tensors that kformer does not need.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        prefix = "bert." if "bert.embeddings.word_embeddings.weight" in checkpoint else ""
        is_old = f"{prefix}embeddings.LayerNorm.gamma" in checkpoint
        self.names = Names(prefix, "gamma", "beta") if is_old else Names(prefix)
        self.has_transform = f"{TRANSFORM}.dense.weight" in checkpoint
        self.has_pooler = f"{prefix}pooler.dense.weight" in checkpoint
        # A tagger's file may hold the pooler of the encoder from which it began.
        pooler = {f"{prefix}pooler.dense.{name}" for name in ("weight", "bias")}
        self.unused = _UNUSED | {f"{prefix}embeddings.position_ids"} | pooler

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, (0,) if there is none: the check of the whole model tells."""
        return self.checkpoint.shape(name) if name in self.checkpoint else (0,)

    def check_tied(self) -> None:
        """Refuses a softmax with another matrix than the embeddings. The tensors say so, not the configuration.

        Raises:
            ValueError: It has a matrix of its own.
        """
        words = self.names.words
        if not {_SOFTMAX, words} <= {*self.checkpoint.names()}:
            return
        if not np.array_equal(self.checkpoint.read(_SOFTMAX), self.checkpoint.read(words)):
            raise ValueError(
                f"The tensor {_SOFTMAX} differs from {words}. kformer's masked language models have one matrix "
                "for both. To begin a classifier with the rest, save the encoder alone, as a BertModel."
            )
