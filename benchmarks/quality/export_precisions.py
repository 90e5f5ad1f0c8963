"""What do an export's precision and variant change? BLEU and identical sentences, beside the float32 translator.

    python -m benchmarks.quality.export_precisions runs/bible-en-es --corpus bible-en-es --precisions float32 int8

Translates the test part of the corpus with the run's own float32 translator and with every export of it.
"""

import argparse
import json
import pathlib
import tempfile
import time

from kformer.cli.startup import start_tensorflow
from kformer.config import DecodingConfig
from kformer.data import load_corpus
from kformer.evaluation.metrics import bleu_and_chrf
from kformer.export.saved_model import export_saved_model
from kformer.inference import Model
from kformer.tasks.translator import Translator
from kformer.text.batches import AnswerBatch, Hypothesis, answer_all


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("--corpus", default="bible-en-es")
    parser.add_argument("--precisions", nargs="+", default=["float32", "bfloat16", "int8"])
    parser.add_argument("--variants", nargs="+", default=["portable"])
    parser.add_argument("--beam-size", type=int, default=4)
    parser.add_argument("--limit", type=int)
    arguments = parser.parse_args()

    pairs = load_corpus(arguments.corpus).test[: arguments.limit]
    sources = [source.encode() for source, _ in pairs]
    references = [[target] for _, target in pairs]
    decoding = DecodingConfig(beam_size=arguments.beam_size)
    translator = Translator.from_run(arguments.run, decoding)
    expected = _translate("in memory", _reference(translator), sources, references, None)
    for variant in arguments.variants:
        for precision in arguments.precisions:
            if variant == "xla" and precision != "float32":
                continue  # it computes in float32 only
            with tempfile.TemporaryDirectory() as folder:
                path = export_saved_model(translator, folder, precision=precision, variant=variant)
                _translate(f"{variant} {precision}", Model(path).load(), sources, references, expected)


def _reference(translator: Translator) -> AnswerBatch:
    """The Keras layers, as they are trained."""
    return lambda texts: [[Hypothesis(text, 0.0)] for text in translator([text.decode() for text in texts])]


def _translate(
    name: str, translate: AnswerBatch, sources: list[bytes], references: list[list[str]], expected: list[str] | None
) -> list[str]:
    began = time.perf_counter()
    found = [hypotheses[0].text for hypotheses in answer_all(translate, sources)]
    row = {"system": name, "seconds": round(time.perf_counter() - began, 1), **bleu_and_chrf(found, references)}
    if expected is not None:
        row["identical"] = sum(a == b for a, b in zip(expected, found, strict=True)) / len(found)
    print(json.dumps(row), flush=True)
    return found


if __name__ == "__main__":
    start_tensorflow()
    main()
