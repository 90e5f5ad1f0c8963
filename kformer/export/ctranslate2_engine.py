"""Runs a translator that was exported to CTranslate2, with kformer's own tokenizers and division of long texts."""

import importlib.util
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from kformer.config import DecodingConfig, TransformerConfig
from kformer.decoding import SearchResult
from kformer.text.codec import TextCodec
from kformer.text.translate_texts import translate_texts
from kformer.tokenizers import load_tokenizers

# What kformer adds to a folder of CTranslate2.
TOKENIZER_FOLDER = "kformer/tokenizer"
TRANSFORMER_FILE, DECODING_FILE = "kformer/transformer.json", "kformer/decoding.json"


def check_package() -> None:
    """Tells how to install ctranslate2 if it is missing.

    Raises:
        ModuleNotFoundError: It is.
    """
    if importlib.util.find_spec("ctranslate2") is None:
        raise ModuleNotFoundError("This needs the package ctranslate2: pip install 'kformer[ctranslate2]'.")


class CTranslate2Engine:
    """A folder of `export_ctranslate2` as a function that translates batches, with the outputs of a SavedModel.

    Its greedy search finds what kformer's finds. In beam search, CTranslate2 divides a log probability by length **
    length_penalty, which is another penalty than the paper's.

    Args:
        folder: The folder.
        decoding: How to search; None: as the folder says.
        n_best: Hypotheses per text, at most the beam size.
        threads: That share one batch; None: CTranslate2 decides.
        compute_type: The number format of the products, by CTranslate2's names; "default": that of the weights, where
            the processor has it.

    Raises:
        ModuleNotFoundError: The package ctranslate2 is missing.
        ValueError: CTranslate2 cannot load the folder.
    """

    signatures: tuple[str, ...] = ()  # none beside the call

    def __init__(
        self,
        folder: pathlib.Path,
        decoding: DecodingConfig | None = None,
        n_best: int = 1,
        threads: int | None = None,
        compute_type: str = "default",
    ) -> None:
        check_package()
        import ctranslate2

        own = DecodingConfig.load(folder / DECODING_FILE)
        self._decoding = own if decoding is None else decoding.completed(own)
        self._n_best = n_best
        self._config = TransformerConfig.load(folder / TRANSFORMER_FILE)
        source, target = load_tokenizers(folder / TOKENIZER_FOLDER)
        # CTranslate2 divides scores as transformers does.
        rules = self._decoding.replace(beam_rules="transformers")
        self._codec = TextCodec(source, target, self._config, rules)
        self._source_tokens, self._target_tokens = source.tokens(), target.tokens()
        self._target_ids = {name: number for number, name in enumerate(self._target_tokens)}
        try:
            self._engine: Any = ctranslate2.Translator(
                str(folder), device="cpu", intra_threads=threads or 0, compute_type=compute_type
            )
        except (RuntimeError, ValueError) as error:
            if self._config.task == "language-model":
                raise ValueError(
                    f"{folder} is a language model, of which only CTranslate2 itself makes texts, by "
                    "ctranslate2.Generator. kformer generate takes the run folder, or a SavedModel."
                ) from error
            raise ValueError(f"CTranslate2 cannot load {folder}: {error}. Export the model again.") from error

    def __call__(self, texts: Sequence[bytes]) -> dict[str, np.ndarray]:
        """The best translations of B texts: `translation` (B, n_best), strings, and `score` (B, n_best), float32."""
        found = translate_texts(self._codec, self._find, tf.constant(list(texts), tf.string), self._n_best)
        return {name: tensor.numpy() for name, tensor in found.items()}

    def run(self, name: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Refuses every name: the folder has no signatures.

        Raises:
            ValueError: Always.
        """
        raise ValueError(f"A folder of CTranslate2 has no signature {name}. Export the model as a SavedModel.")

    def _find(self, source: tf.Tensor, limits: tf.Tensor, starts: tf.Tensor) -> SearchResult:
        """As `Searcher.find`. CTranslate2 adds the end id to a source itself, and every translation begins alike."""
        special = (self._config.pad_id, self._config.end_id)
        tokens = [[self._source_tokens[i] for i in row if i not in special] for row in source.numpy().tolist()]
        most = limits.numpy().tolist()
        results = self._search(tokens, max(most, default=0))
        for row, (result, limit) in enumerate(zip(results, most, strict=True)):
            if any(len(names) > limit for names in result.hypotheses):  # seldom: CTranslate2 has one limit for a batch
                (results[row],) = self._search([tokens[row]], limit)
        return self._result(results, max(most, default=0))

    def _search(self, tokens: list[list[str]], longest: int) -> list[Any]:
        """The hypotheses of CTranslate2 for some sources."""
        config, decoding = self._config, self._decoding
        never = {config.pad_id, config.start_id} - {config.end_id}
        return self._engine.translate_batch(
            tokens,
            beam_size=decoding.beam_size,
            num_hypotheses=self._n_best,
            length_penalty=decoding.length_penalty if decoding.beam_size > 1 else 0,
            max_decoding_length=longest,
            max_input_length=0,
            min_decoding_length=max(0, min(decoding.min_length, longest - 1)),
            no_repeat_ngram_size=decoding.no_repeat_ngram_size,
            suppress_sequences=[[self._target_tokens[number]] for number in sorted(never)],
            return_scores=True,
            return_end_token=True,
        )

    def _result(self, results: list[Any], longest: int) -> SearchResult:
        """Their ids, scores and lengths."""
        shape = (len(results), self._n_best)
        ids = np.full((*shape, longest), self._config.pad_id, "int32")
        scores, lengths = np.full(shape, -np.inf, "float32"), np.zeros(shape, "int32")
        for row, result in enumerate(results):
            for rank, (names, score) in enumerate(zip(result.hypotheses, result.scores, strict=True)):
                ids[row, rank, : len(names)] = [self._target_ids[name] for name in names]
                scores[row, rank], lengths[row, rank] = score, len(names)
        return SearchResult(tf.constant(ids), tf.constant(scores), tf.constant(lengths))
