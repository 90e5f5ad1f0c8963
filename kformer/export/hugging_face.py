"""What the classes of Hugging Face's transformers have in common as forms of an export: what they cannot be is refused.

Shape letters: D model size.
"""

import abc
import pathlib
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from kformer.config import DecodingConfig, TransformerConfig, task_kind
from kformer.importing.activations import NAMES
from kformer.tasks.predictor import Predictor
from kformer.text.codec import longest_source

TOKENIZER_CONFIG = "tokenizer_config.json"


class HuggingFaceModel(abc.ABC):
    """A trained model as a class of transformers: its files beside the weights, and the weights by its names.

    Args:
        predictor: What is exported.
    """

    format: ClassVar[str]  # of `kformer.importing`, by which the folder is read back

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor
        self.config = predictor.config

    @property
    @abc.abstractmethod
    def class_name(self) -> str:
        """The class of transformers."""

    @abc.abstractmethod
    def check(self) -> None:
        """Refuses what the class cannot represent.

        Raises:
            ValueError: There is something. The message names the field of the configuration.
        """

    @abc.abstractmethod
    def fields(self) -> dict[str, Any]:
        """The fields of config.json, without those that all classes have."""

    def search(self) -> dict[str, Any] | None:
        """The fields of generation_config.json; None for a model that does not search."""
        return None

    def arranged(self, weights: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """The weights, by kformer's paths, as an import of the folder gives them."""
        return weights

    @abc.abstractmethod
    def tensors(self, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The tensors by transformers' names, of weights from `arranged`."""

    @abc.abstractmethod
    def write_tokenizer(self, folder: pathlib.Path) -> None:
        """Writes the files of the tokenizer."""

    @property
    def longest(self) -> int:
        """The largest number of tokens of a text, with the special ones."""
        return longest_source(self.config, self.predictor.decoding)

    def refuse_others(self, expected: Mapping[str, tuple[Any, ...]]) -> None:
        """Refuses other values of some fields of the configuration, and what none of the classes has.

        Args:
            expected: The possible values of fields, by their names.

        Raises:
            ValueError: A field has another value.
        """
        for field, values in {**_of_all(self.config), **expected}.items():
            found = getattr(self.config, field)
            if found not in values:
                possible = " or ".join(f"{field}={value!r}" for value in values if value is not None)
                remedy = f"train one with {possible or f'no {field}'}"
                if task_kind(self.predictor.task).outputs is not None:
                    remedy = f"export it as a SavedModel, or {remedy}"
                raise ValueError(
                    f"{self.class_name} of transformers has no {field}={found!r}, so this model cannot be exported as "
                    f"one. {remedy[0].upper()}{remedy[1:]}."
                )

    def tokenizer_error(self, expected: str) -> ValueError:
        """The error for a tokenizer that the class does not have."""
        source, target = (one.kind for one in (self.predictor.source_tokenizer, self.predictor.target_tokenizer))
        return ValueError(
            f"{self.class_name} of transformers reads texts by {expected}. Received: tokenizers of the kinds {source} "
            f"and {target}. Train a model that begins with an imported one of that class, or choose another format."
        )


def _of_all(config: TransformerConfig) -> dict[str, tuple[Any, ...]]:
    """What each of the classes has."""
    size = None if config.d_model % config.num_heads else config.d_model // config.num_heads
    return {
        "depth": ("stacked",),
        "attention_window": (None,),
        "num_key_value_heads": (None, config.num_heads),
        "head_dim": (None, size),
        "embedding_dim": (None, config.d_model),
        "normalization": ("layer_norm",),
        "activation": tuple(NAMES),
        "use_bias": (True,),
    }


def search_fields(config: TransformerConfig, decoding: DecodingConfig) -> dict[str, Any]:
    """The fields of generation_config.json that all searches have, but for their lengths.

    A search of kformer finds neither padding nor start tokens.
    """
    never = [one for one in dict.fromkeys((config.pad_id, config.start_id)) if one != config.end_id]
    return {
        "num_beams": decoding.beam_size,
        "length_penalty": decoding.length_penalty,
        "early_stopping": decoding.early_stopping,
        "renormalize_logits": decoding.renormalize,
        "min_length": decoding.min_length + 1 if decoding.min_length else 0,  # which counts the start token
        "no_repeat_ngram_size": decoding.no_repeat_ngram_size,
        "bad_words_ids": [[one] for one in never],
        "eos_token_id": config.end_id,
    }
