"""A translator or language model as a folder for CTranslate2, an engine without TensorFlow."""

import dataclasses
import math
import pathlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from kformer.export.check import SCORE_TOLERANCE, check_scores, score_difference
from kformer.export.ctranslate2_engine import (
    DECODING_FILE,
    TOKENIZER_FOLDER,
    TRANSFORMER_FILE,
    CTranslate2Engine,
    check_package,
)
from kformer.export.ctranslate2_spec import check_variant, language_model_spec, translator_spec
from kformer.export.formats import check_format
from kformer.export.target import ExportTarget, Trial, export, refuse_tags_before_targets, write_errors_explained
from kformer.export.variables import copy_weights
from kformer.tasks.predictor import Predictor
from kformer.tokenizers import SentencePieceTokenizer, save_tokenizers

_SPECS = {"translate": translator_spec, "language-model": language_model_spec}
SOURCE_MODEL, TARGET_MODEL, README_FILE = "source.model", "target.model", "README.md"
_README = """# A translator for CTranslate2

Made by kformer. Texts are cut into pieces by SentencePiece:

```python
import unicodedata, ctranslate2, sentencepiece
source, target = (sentencepiece.SentencePieceProcessor(model_file=f"{name}.model") for name in ("source", "target"))
engine = ctranslate2.Translator(".")
pieces = source.encode(unicodedata.normalize("NFC", " ".join("Your text.".split())), out_type=str)
print(target.decode(engine.translate_batch([pieces], SEARCH)[0].hypotheses[0]))
```

`kformer translate` and `kformer evaluate` take this folder, too. They also divide long lines into sentences.
"""


def export_ctranslate2(
    predictor: Predictor, directory: str | pathlib.Path, precision: str = "float32", samples: Sequence[str] = ()
) -> pathlib.Path:
    """Writes a folder for CTranslate2, and tries it out. It needs the package ctranslate2.

    Args:
        predictor: A `Translator` or a `LanguageModel`.
        directory: The folder to make.
        precision: "float32", "float16", "int16" or "int8".
        samples: Texts that the engine answers when it is tried; by default as in `export_saved_model`.

    Returns:
        The folder.

    Raises:
        FileExistsError: The folder exists.
        ModuleNotFoundError: The package ctranslate2 is missing.
        ValueError: The engine lacks a part of the model, `precision` is unknown, or the engine computes something else
            than the predictor.

    Examples:
        >>> export_ctranslate2(translator, "exported/cmudict-ct2", "int8")  # doctest: +SKIP
        PosixPath('exported/cmudict-ct2')
    """
    return export(predictor, directory, CTranslate2Target(precision), samples=samples)


@dataclasses.dataclass(frozen=True)
class CTranslate2Target(ExportTarget):
    """A folder for CTranslate2; the fields are those of `export_ctranslate2`.

    Examples:
        >>> CTranslate2Target("int8").name
        'ctranslate2'
    """

    name = "ctranslate2"
    versioned = False
    precision: str = "float32"

    def check_options(self, predictor: Predictor) -> None:
        """See `ExportTarget.check_options`."""
        check_package()
        check_format(self.name, self.precision)
        if predictor.task not in _SPECS:
            raise ValueError(
                f"CTranslate2 runs translators and language models. Received: a model of the task {predictor.task}. "
                "Export it as a SavedModel."
            )
        refuse_tags_before_targets(predictor, "CTranslate2")
        check_variant(predictor.config)
        if predictor.decoding.first_id is not None:
            raise ValueError(
                "CTranslate2's search chooses the first token itself. Received: a model whose translations begin with "
                f"first_id={predictor.decoding.first_id}, such as a language. Export it as a SavedModel."
            )
        for tokenizer in (predictor.source_tokenizer, predictor.target_tokenizer):
            tokenizer.tokens()

    def write(self, predictor: Predictor, folder: pathlib.Path, texts: Sequence[str], base: pathlib.Path) -> None:
        """See `ExportTarget.write`."""
        model = predictor.build("float32")
        copy_weights(predictor.model, model)
        spec = _SPECS[predictor.task](model, predictor.config)
        _name_tokens(spec, predictor)
        spec.validate()
        spec.optimize(quantization=None if self.precision == "float32" else self.precision)
        with write_errors_explained(base):
            spec.save(str(folder))
            _add_tokenizers(predictor, folder)

    def check(self, predictor: Predictor, folder: pathlib.Path, texts: Sequence[str], base: pathlib.Path) -> Trial:
        """See `ExportTarget.check`. Greedy searches are compared: those of beams have other length penalties.

        CTranslate2 gives the probability of forbidden tokens to the others. Of a language model, the probabilities of
        texts are compared.

        What was written is judged by products in float32. Those in int8 round the inputs of each product too, by as
        much as the processor and CTranslate2's library for it decide; that is told, and no fault of the export.
        """
        expected, answer = (_translated if predictor.task == "translate" else _scored)(predictor, folder, texts)
        found = answer("float32")
        check_scores(expected["score"], found["score"], self.precision)
        if self.precision != "float32":
            found = answer("default")
        facts: dict[str, Any] = {
            "precision": self.precision,
            "score_difference": score_difference(expected["score"], found["score"]),
        }
        self._tell_rounding(facts["score_difference"], len(texts))
        if "translation" in expected:
            same = expected["translation"] == found["translation"]
            facts |= {"samples": len(texts), "identical_answers": float(np.mean(same))}
        return Trial(facts, 0.0)

    def _tell_rounding(self, difference: float, number: int) -> None:
        if not math.isfinite(difference):
            raise ValueError(
                f"CTranslate2's {self.precision} products give scores that are no numbers on this processor. Export in "
                "float32."
            )
        if difference > SCORE_TOLERANCE[self.precision]:
            warnings.warn(
                f"The export is right, but on this processor CTranslate2 rounds its {self.precision} products so much "
                f"that the scores of {number} texts differ by {difference:.2%} of their mean. Measure what that costs "
                "by kformer evaluate, or export in float32.",
                stacklevel=2,
            )


# What the engine finds, with products in a number format that CTranslate2 names.
_Answer = Callable[[str], dict[str, np.ndarray]]


def _translated(
    predictor: Predictor, folder: pathlib.Path, texts: Sequence[str]
) -> tuple[dict[str, np.ndarray], _Answer]:
    """`translation` and `score` (B,) of a translator, and of its export."""
    greedy = predictor.decoding.replace(beam_size=1, renormalize=True)
    expected = predictor.with_decoding(greedy).answer(tf.constant(list(texts)))

    def answer(compute_type: str) -> dict[str, np.ndarray]:
        engine = CTranslate2Engine(folder, greedy, compute_type=compute_type)
        return {name: best[:, 0] for name, best in engine([text.encode() for text in texts]).items()}

    return {name: expected[name].numpy() for name in ("translation", "score")}, answer


def _scored(model: Any, folder: pathlib.Path, texts: Sequence[str]) -> tuple[dict[str, np.ndarray], _Answer]:
    """`score` (B,): log probabilities by a language model and by its export; of long texts, of the beginnings."""
    tokenizer = model.source_tokenizer
    shorter = tokenizer.tokenize(texts)[:, : model.codec.longest_part // 2]  # cut between two letters, they may grow
    texts = [text.decode() for text in tokenizer.detokenize(shorter).numpy()]
    names, rows = tokenizer.tokens(), tokenizer.begun(tokenizer.tokenize(texts)).to_list()

    def answer(compute_type: str) -> dict[str, np.ndarray]:
        import ctranslate2

        engine = ctranslate2.Generator(str(folder), device="cpu", compute_type=compute_type)
        found = engine.score_batch([[names[id] for id in (*row, tokenizer.end_id)] for row in rows])
        return {"score": np.array([sum(result.log_probs) for result in found])}

    return {"score": np.asarray(model.score(texts)["log_probability"])}, answer


def _name_tokens(spec: Any, predictor: Predictor) -> None:
    """Tells the engine the names of ids, and what the special ones are."""
    source, target = predictor.source_tokenizer.tokens(), predictor.target_tokenizer.tokens()
    config = predictor.config
    if predictor.task == "translate":
        spec.register_source_vocabulary(source)
        spec.register_target_vocabulary(target)
        spec.config.add_source_eos = True
        spec.config.decoder_start_token = target[config.start_id]
    else:
        spec.register_vocabulary(target)
    spec.config.layer_norm_epsilon = config.layer_norm_epsilon
    spec.config.bos_token, spec.config.eos_token = target[config.start_id], target[config.end_id]
    spec.config.unk_token = target[predictor.target_tokenizer.fallback_ids()[0]]


def _add_tokenizers(predictor: Predictor, folder: pathlib.Path) -> None:
    """kformer's tokenizers and configurations, and the SentencePiece models for those who do not use kformer."""
    tokenizers = (predictor.source_tokenizer, predictor.target_tokenizer)
    (folder / TOKENIZER_FOLDER).parent.mkdir()
    save_tokenizers(folder / TOKENIZER_FOLDER, *tokenizers)
    predictor.config.save(folder / TRANSFORMER_FILE)
    predictor.decoding.save(folder / DECODING_FILE)
    if all(isinstance(tokenizer, SentencePieceTokenizer) for tokenizer in tokenizers) and predictor.task == "translate":
        for name, tokenizer in zip((SOURCE_MODEL, TARGET_MODEL), tokenizers, strict=True):
            (folder / name).write_bytes(tokenizer.model_bytes)
        search = f"beam_size={predictor.decoding.beam_size}, length_penalty={predictor.decoding.length_penalty:g}"
        readme = _README.replace("SEARCH", search)
        (folder / README_FILE).write_text(readme, encoding="utf-8")
