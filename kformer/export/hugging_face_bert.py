"""A masked language model, classifier or tagger as a BERT of transformers."""

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from kformer.export.hugging_face import TOKENIZER_CONFIG, HuggingFaceModel
from kformer.files.writing import write_json
from kformer.importing.activations import NAMES
from kformer.importing.bert import GELUS
from kformer.importing.bert_tokenizer import SPECIAL
from kformer.importing.bert_weights import BIAS, find_weights
from kformer.importing.imported_model import tensors_of
from kformer.tokenizers import WordPieceTokenizer

_CLASSES = {
    "masked-language-model": "BertForMaskedLM",
    "classify": "BertForSequenceClassification",
    "tag": "BertForTokenClassification",
}


class BertModel(HuggingFaceModel):
    """See `HuggingFaceModel`. The pooler of a masked language model is for `BertModel` of transformers."""

    format = "bert"

    @property
    def class_name(self) -> str:
        return _CLASSES[self.predictor.task]

    def check(self) -> None:
        is_masked = self.predictor.task == "masked-language-model"
        self.refuse_others(
            {
                "norm_first": (False,),
                "scale_embeddings": (False,),
                "normalize_embeddings": (True,),
                "positional_encoding": ("learned",),
                "activation": tuple(dict.fromkeys(GELUS.values())) if is_masked else tuple(NAMES),
            }
        )
        if not isinstance(self.predictor.source_tokenizer, WordPieceTokenizer):
            raise self.tokenizer_error("WordPiece, as an imported BERT and what is trained from it")
        if len(self.predictor.labels) == 1:
            raise ValueError(
                f"{self.class_name} of transformers gives a number, if there is one label. Received: only the label "
                f"{self.predictor.labels[0]}. Train one with two labels."
            )

    def fields(self) -> dict[str, Any]:
        config = self.config
        labels = {str(number): label for number, label in enumerate(self.predictor.labels)}
        of_labels = {
            "id2label": labels,
            "label2id": {label: int(number) for number, label in labels.items()},
            "problem_type": "single_label_classification" if self.predictor.task == "classify" else None,
        }
        return {
            "vocab_size": config.source_vocab_size,
            "hidden_size": config.d_model,
            "num_hidden_layers": config.num_encoder_layers,
            "num_attention_heads": config.num_heads,
            "intermediate_size": config.d_ff,
            "hidden_act": NAMES[config.activation],
            "hidden_dropout_prob": config.dropout_rate,
            "attention_probs_dropout_prob": config.attention_dropout_rate,
            "max_position_embeddings": config.max_length,
            "type_vocab_size": 2,
            "layer_norm_eps": config.layer_norm_epsilon,
            "pad_token_id": config.pad_id,
            "tie_word_embeddings": True,
            **(of_labels if labels else {}),
        }

    def tensors(self, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        tensors = tensors_of(find_weights(self.config), weights)
        if self.predictor.task == "masked-language-model":
            tensors.setdefault(BIAS, np.zeros(self.config.source_vocab_size, "float32"))
        return tensors

    def write_tokenizer(self, folder: pathlib.Path) -> None:
        tokenizer = self.predictor.source_tokenizer
        pieces = list(tokenizer.pieces)
        while not pieces[-1]:  # ids behind the vocabulary
            pieces.pop()
        (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8", newline="\n")
        write_json(
            folder / TOKENIZER_CONFIG,
            {
                "tokenizer_class": "BertTokenizer",
                "model_max_length": self.longest,
                "do_lower_case": tokenizer.lowercase,
                "strip_accents": tokenizer.strip_accents,
                "tokenize_chinese_chars": tokenizer.split_chinese,
                **{name: pieces[getattr(tokenizer, argument)] for argument, (name, _) in SPECIAL.items()},
            },
        )
