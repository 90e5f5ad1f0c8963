"""Does an export to CTranslate2 find the translations that kformer finds?

    pip install -e '.[ctranslate2]'
    python -m benchmarks.bridges.ctranslate2 --output bridges.json

The first table: exports of the presets `bible-en-es` and `cmudict` answer the first 1,000 sources of their test part.
It counts how many answers are the same string as that of kformer's float32 export with the same search, each different
source once, and has the scores of `kformer evaluate EXPORT --corpus NAME --limit 1000`.

The second table: for every value of the fields that `docs/variants.md` describes, a small translator with random
weights, which are large enough that its translations differ, and with the tokenizers of `bible-en-es`. It counts how
many of its greedy translations of the verses are the same as those of its export in float32. A variant that CTranslate2
lacks is refused; such a line says so.

How fast CTranslate2 is beside kformer's exports: `python -m benchmarks.decoding.whole_files`.
"""

import argparse
import json
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

import kformer
from kformer.cli.startup import start_tensorflow
from kformer.config.transformer import ACTIVATIONS, DEPTHS, EMBEDDING_TYINGS, NORMALIZATIONS, POSITIONAL_ENCODINGS
from kformer.data import load_corpus
from kformer.evaluation.evaluate import score, sentences
from kformer.inference import Model
from kformer.text.batches import Hypothesis, answer_all

PRESETS = {"bible-en-es": False, "cmudict": True}  # whether targets are symbols
KFORMER = ("float32", "int8")
CTRANSLATE2 = ("float32", "float16", "int16", "int8")
SEARCHES = {"greedy": 1, "beam 4": 4}
SMALL = {"d_model": 24, "d_ff": 40, "num_heads": 4, "num_encoder_layers": 2, "num_decoder_layers": 2}
EXTRA_LENGTH = 10  # tokens that a translation may have more than its source
# The values of each field, each in a model of its own. The other fields are the paper's.
VALUES: dict[str, Iterable[Any]] = {
    "positional_encoding": POSITIONAL_ENCODINGS,
    "activation": ACTIVATIONS[1:],
    "normalization": NORMALIZATIONS[1:],
    "norm_first": [True],
    "use_bias": [False],
    "scale_embeddings": [False],
    "normalize_embeddings": [True],
    "softmax_bias": [True],
    "embedding_tying": EMBEDDING_TYINGS[1:],
    "num_key_value_heads": [2, 1],
    "head_dim": [8],
    "embedding_dim": [10],
    "attention_window": [8],
    "depth": list(DEPTHS)[1:],
}
TOGETHER: list[dict[str, Any]] = [
    {
        "positional_encoding": "rotary",
        "activation": "swiglu",
        "normalization": "rms_norm",
        "norm_first": True,
        "use_bias": False,
        "num_key_value_heads": 2,
    },
    {
        "positional_encoding": "learned",
        "activation": "gelu",
        "normalize_embeddings": True,
        "scale_embeddings": False,
        "softmax_bias": True,
    },
]


class Noting:
    """Answers as a model does, and keeps the answers, so that scoring and counting need one translation.

    Args:
        model: An export.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self.found: dict[bytes, str] = {}

    def __call__(self, texts: Sequence[bytes]) -> list[list[Hypothesis]]:
        answers = self._model(texts)
        self.found |= {text: hypotheses[0].text for text, hypotheses in zip(texts, answers, strict=True)}
        return answers


def measure_presets(folder: pathlib.Path, limit: int, precisions: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of the first table."""
    rows = []
    for preset, symbols in PRESETS.items():
        pairs = load_corpus(preset).test
        for search, beam_size in SEARCHES.items():
            decoding = kformer.DecodingConfig(beam_size=beam_size)
            translator = kformer.Translator.from_preset(preset, decoding)
            expected: dict[bytes, str] = {}
            systems = [("kformer", precision) for precision in KFORMER]
            for system, precision in [*systems, *(("CTranslate2", precision) for precision in precisions)]:
                target = folder / f"{preset}-{beam_size}-{system}-{precision}"
                write = kformer.export_saved_model if system == "kformer" else kformer.export_ctranslate2
                write(translator, target, precision=precision)
                answers = Noting(Model(target, threads_per_operation=1))
                scores = score(answers, pairs, symbols, limit)
                expected = expected or answers.found
                same = sum(answers.found[text] == right for text, right in expected.items())
                row = {"model": preset, "search": search, "system": f"{system} {precision}", **scores}
                rows.append({**row, "identical": same, "texts": len(expected)})
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def random_translator(fields: dict[str, Any], like: kformer.Translator, samples: list[str]) -> kformer.Translator:
    """A translator with random weights and the tokenizers of another one, which searches as CTranslate2 does."""
    size = like.config.source_vocab_size
    config = kformer.TransformerConfig(source_vocab_size=size, target_vocab_size=size, **{**SMALL, **fields})
    model = kformer.models.build_transformer(config)
    generator = np.random.default_rng(3)
    for weight in model.weights:
        near = 1.0 if weight.path.endswith(("gamma", "scale")) else 0.0
        weight.assign(near + 0.3 * generator.standard_normal(weight.shape))
    decoding = kformer.DecodingConfig(beam_size=1, max_extra_length=EXTRA_LENGTH, renormalize=True)
    tokenizers = (like.source_tokenizer, like.target_tokenizer)
    return kformer.Translator(model, config, *tokenizers, decoding, samples=samples)


def measure_variants(folder: pathlib.Path, limit: int) -> list[dict[str, Any]]:
    """The rows of the second table."""
    like = kformer.Translator.from_preset("bible-en-es")
    texts = [source.encode() for source, _ in sentences(load_corpus("bible-en-es").test)[:limit]]
    alone = [{field: value} for field, values in VALUES.items() for value in values]
    rows = []
    for number, fields in enumerate([*alone, *TOGETHER]):
        translator = random_translator(fields, like, [text.decode() for text in texts[:8]])
        target = folder / f"variant-{number}"
        row: dict[str, Any] = {"fields": fields, "texts": len(texts)}
        try:
            kformer.export_ctranslate2(translator, target)
        except ValueError as error:
            row |= {"identical": None, "error": str(error)}
        else:
            expected = [
                text for start in range(0, len(texts), 100) for text in _answers(translator, texts[start:][:100])
            ]
            answers = answer_all(Model(target, threads_per_operation=1), texts)
            found = [hypotheses[0].text for hypotheses in answers]
            same = sum(one == other for one, other in zip(found, expected, strict=True))
            row |= {"identical": same, "different_texts": len({*expected})}
        rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
    return rows


def _answers(translator: kformer.Translator, texts: list[bytes]) -> list[str]:
    return translator([text.decode() for text in texts])


def report(presets: list[dict[str, Any]], variants: list[dict[str, Any]]) -> None:
    """Prints the tables."""
    if presets:
        print("| model | search | system | same as kformer float32 | scores |", "| --- " * 5 + "|", sep="\n")
    for row in presets:
        scores = f"BLEU {row['bleu']:.2f}" if "bleu" in row else f"word error rate {row['word_error_rate']:.3f}"
        cells = [row["model"], row["search"], row["system"], f"{row['identical']:,} of {row['texts']:,}", scores]
        print(f"| {' | '.join(cells)} |")
    if variants:
        print("\n| fields | the same greedy translations |", "| --- " * 2 + "|", sep="\n")
    for row in variants:
        fields = ", ".join(f"`{field}: {json.dumps(value)}`" for field, value in row["fields"].items())
        same = "refused" if row["identical"] is None else f"{row['identical']:,} of {row['texts']:,}"
        print(f"| {fields} | {same} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=1000, help="sources of each test part")
    parser.add_argument("--precisions", nargs="+", default=CTRANSLATE2, choices=CTRANSLATE2, help="of CTranslate2")
    parser.add_argument("--only", choices=["presets", "variants"], help="one of the tables")
    parser.add_argument("--output", type=pathlib.Path, help="JSON of everything that was measured")
    arguments = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="kformer-bridges-"))
    try:
        presets = []
        if arguments.only != "variants":
            presets = measure_presets(folder, arguments.limit, arguments.precisions)
        variants = measure_variants(folder, arguments.limit) if arguments.only != "presets" else []
    finally:
        shutil.rmtree(folder)
    if arguments.output:
        arguments.output.write_text(json.dumps({"presets": presets, "variants": variants}, indent=2) + "\n")
    report(presets, variants)


if __name__ == "__main__":
    start_tensorflow()
    main()
