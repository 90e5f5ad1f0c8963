"""A language model as a `GPT2LMHeadModel` of transformers."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from kformer.export.hugging_face import TOKENIZER_CONFIG, HuggingFaceModel, search_fields
from kformer.files.writing import write_json
from kformer.importing.activations import NAMES
from kformer.importing.byte_vocabulary import ADDED, unused_id
from kformer.importing.gpt2 import places_of_weights
from kformer.importing.imported_model import tensors_of
from kformer.tokenizers import ByteBPETokenizer


class GPT2Model(HuggingFaceModel):
    """See `HuggingFaceModel`."""

    format = "gpt2"
    class_name = "GPT2LMHeadModel"

    def check(self) -> None:
        self.refuse_others(
            {
                "norm_first": (True,),
                "scale_embeddings": (False,),
                "normalize_embeddings": (False,),
                "positional_encoding": ("learned",),
                "softmax_bias": (False,),
            }
        )
        if not isinstance(self.predictor.target_tokenizer, ByteBPETokenizer):
            raise self.tokenizer_error(
                "a byte pair encoding of bytes, as an imported GPT-2 and what is trained from it"
            )

    def fields(self) -> dict[str, Any]:
        config = self.config
        return {
            "vocab_size": config.target_vocab_size,
            "n_positions": config.max_length,
            "n_embd": config.d_model,
            "n_layer": config.num_decoder_layers,
            "n_head": config.num_heads,
            "n_inner": config.d_ff,
            "activation_function": NAMES[config.activation],
            "resid_pdrop": config.dropout_rate,
            "embd_pdrop": config.dropout_rate,
            "attn_pdrop": config.attention_dropout_rate,
            "layer_norm_epsilon": config.layer_norm_epsilon,
            "tie_word_embeddings": config.embedding_tying != "none",
            "pad_token_id": self._pad_id,
            "bos_token_id": config.start_id,
            "eos_token_id": config.end_id,
        }

    def search(self) -> dict[str, Any]:
        decoding = self.predictor.decoding
        whole = decoding.max_length
        # transformers counts the first token, too: the start token, or that of the prompt.
        length = {"max_new_tokens": decoding.max_extra_length} if whole is None else {"max_length": whole + 1}
        fields = search_fields(self.config, decoding)
        if self._pad_id is None:
            fields.pop("bad_words_ids")
        return {**fields, **length, "pad_token_id": self._pad_id, "bos_token_id": self.config.start_id}

    def tensors(self, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return tensors_of(places_of_weights(self.config), weights)

    def write_tokenizer(self, folder: pathlib.Path) -> None:
        tokenizer = self.predictor.target_tokenizer
        ids = {piece: number for number, piece in enumerate(tokenizer.pieces) if piece}
        (folder / "vocab.json").write_text(json.dumps(ids, ensure_ascii=False) + "\n", encoding="utf-8")
        lines = "".join(f"{line}\n" for line in ("#version: 0.2", *tokenizer.merges))
        (folder / "merges.txt").write_text(lines, encoding="utf-8", newline="\n")
        end, start = (tokenizer.pieces[number] for number in (tokenizer.end_id, tokenizer.start_id))
        write_json(
            folder / TOKENIZER_CONFIG,
            {
                "tokenizer_class": "GPT2Tokenizer",
                "model_max_length": self.longest,
                "add_prefix_space": False,
                "add_bos_token": tokenizer.has_start,
                "bos_token": start,
                "eos_token": end,
                "unk_token": end,
                **({} if self._pad_id is None else {"pad_token": tokenizer.pieces[self._pad_id]}),
                ADDED: [tokenizer.pieces[number] for number in tokenizer.hidden_ids],
            },
        )

    @property
    def _pad_id(self) -> int | None:
        """The id of padding; None if an import finds it by itself: most models have no such token."""
        tokenizer = self.predictor.target_tokenizer
        return None if tokenizer.pad_id == unused_id(tokenizer.pieces) else tokenizer.pad_id
