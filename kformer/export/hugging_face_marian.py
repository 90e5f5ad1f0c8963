"""A translator as a `MarianMTModel` of transformers."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from kformer.export.halved_positions import with_halved_positions
from kformer.export.hugging_face import TOKENIZER_CONFIG, HuggingFaceModel, search_fields
from kformer.export.target import refuse_tags_before_targets
from kformer.files.writing import write_json
from kformer.importing.activations import NAMES
from kformer.importing.bart_family import EPSILON
from kformer.importing.bart_weights import BIAS, places_of_weights
from kformer.importing.imported_model import tensors_of
from kformer.text.codec import longest_translation
from kformer.tokenizers import PieceVocabularyTokenizer, SentencePieceTokenizer, Tokenizer

# What MarianTokenizer calls the special ids.
_PAD, _START, _END, _UNKNOWN = "<pad>", "<s>", "</s>", "<unk>"


class MarianModel(HuggingFaceModel):
    """See `HuggingFaceModel`. Sinusoids in the order of the paper are brought into that of Marian."""

    format = "marian"
    class_name = "MarianMTModel"

    def check(self) -> None:
        refuse_tags_before_targets(self.predictor, self.class_name)
        self.refuse_others(
            {
                "norm_first": (False,),
                "normalize_embeddings": (False,),
                "positional_encoding": ("sinusoidal", "sinusoidal_halves"),
                "first_position": (0,),
                "max_wavelength": (10000.0,),
                # That of Marian is fixed. A smaller one hardly changes logits: `SafetensorsTarget.check` compares them.
                "layer_norm_epsilon": (min(self.config.layer_norm_epsilon, EPSILON),),
            }
        )
        for tokenizer in (self.predictor.source_tokenizer, self.predictor.target_tokenizer):
            if not _is_known(tokenizer):
                raise self.tokenizer_error("SentencePiece, and puts no other token before a text, nor behind its end")
        for vocabulary in self._vocabularies():
            if len({*vocabulary.values()}) < len(vocabulary):
                raise self.tokenizer_error("SentencePiece with an id of its own for each piece")

    def fields(self) -> dict[str, Any]:
        config = self.config
        sides = {
            f"{side}_{name}": value
            for side, layers in (("encoder", config.num_encoder_layers), ("decoder", config.num_decoder_layers))
            for name, value in (("layers", layers), ("ffn_dim", config.d_ff), ("attention_heads", config.num_heads))
        }
        return {
            **sides,
            "vocab_size": config.source_vocab_size,
            "decoder_vocab_size": config.target_vocab_size,
            "d_model": config.d_model,
            "activation_function": NAMES[config.activation],
            "dropout": config.dropout_rate,
            "attention_dropout": config.attention_dropout_rate,
            "max_position_embeddings": max(self.longest, self._longest_translation + 1),
            "scale_embedding": config.scale_embeddings,
            "share_encoder_decoder_embeddings": config.embedding_tying == "all",
            "tie_word_embeddings": config.embedding_tying != "none",
            "is_encoder_decoder": True,
            "pad_token_id": config.pad_id,
            "decoder_start_token_id": config.start_id,
            "eos_token_id": config.end_id,
            "forced_eos_token_id": None,  # generation_config.json says so
        }

    def search(self) -> dict[str, Any]:
        config, decoding = self.config, self.predictor.decoding
        return {
            **search_fields(config, decoding),
            "max_length": self._longest_translation + 1,  # which counts the start token
            "forced_bos_token_id": decoding.first_id,
            "forced_eos_token_id": config.end_id if decoding.forced_end else None,
            "pad_token_id": config.pad_id,
            "decoder_start_token_id": config.start_id,
        }

    def arranged(self, weights: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        if self.config.positional_encoding == "sinusoidal_halves":
            return weights
        return with_halved_positions(weights, self.config.d_model)

    def tensors(self, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        without_bias = {BIAS: np.zeros((1, self.config.target_vocab_size), "float32")}
        return {**without_bias, **tensors_of(places_of_weights(self.config), weights)}

    def write_tokenizer(self, folder: pathlib.Path) -> None:
        source, target = self._vocabularies()
        for side, tokenizer in (
            ("source", self.predictor.source_tokenizer),
            ("target", self.predictor.target_tokenizer),
        ):
            (folder / f"{side}.spm").write_bytes(tokenizer.model_bytes)
        _write_vocabulary(folder / "vocab.json", source)
        if target != source:
            _write_vocabulary(folder / "target_vocab.json", target)
        write_json(
            folder / TOKENIZER_CONFIG,
            {
                "tokenizer_class": "MarianTokenizer",
                "model_max_length": self.longest,
                "separate_vocabs": target != source,
                "pad_token": _PAD,
                "eos_token": _END,
                "unk_token": _UNKNOWN,
            },
        )

    @property
    def _longest_translation(self) -> int:
        decoding = self.predictor.decoding
        return longest_translation(self.config, decoding) or self.longest + decoding.max_extra_length

    def _vocabularies(self) -> list[dict[int, str]]:
        """The pieces of source and target by their ids, under the names that MarianTokenizer gives the special ones."""
        config = self.config
        found = []
        for tokenizer in (self.predictor.source_tokenizer, self.predictor.target_tokenizer):
            pieces = dict(enumerate(_pieces(tokenizer)))
            special = {
                config.start_id: _START,
                config.pad_id: _PAD,
                config.end_id: _END,
                tokenizer.unknown_id: _UNKNOWN,
            }
            found.append({number: piece for number, piece in {**pieces, **special}.items() if piece})
        return found


def _is_known(tokenizer: Tokenizer) -> bool:
    if isinstance(tokenizer, SentencePieceTokenizer):
        return True
    return type(tokenizer) is PieceVocabularyTokenizer and not (
        tokenizer.first_ids or tokenizer.hidden_ids or tokenizer.closing_ids != (tokenizer.end_id,)
    )


def _pieces(tokenizer: Any) -> list[str]:
    return list(tokenizer.pieces) if isinstance(tokenizer, PieceVocabularyTokenizer) else tokenizer.tokens()


def _write_vocabulary(path: pathlib.Path, pieces: Mapping[int, str]) -> None:
    text = json.dumps({piece: number for number, piece in pieces.items()}, ensure_ascii=False, indent=0)
    path.write_text(text + "\n", encoding="utf-8")
