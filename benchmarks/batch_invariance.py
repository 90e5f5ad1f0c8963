"""Does a sentence's translation depend on the sentences beside it?

Translates sentences of a corpus one by one and in batches, in the order of the file, and compares the strings.

    python benchmarks/batch_invariance.py runs/bible-en-es --corpus bible-en-es --sentences 1000

Padding does not change what a row computes, but it changes the shapes of matrix products, and with them the order
in which a kernel sums. Where two hypotheses differ by less than that rounding, either may come first. Every
sentence whose strings differ is printed with both scores; it counts as a tie when the scores agree to 1e-4.
The exit status is 1 if one differs that is no tie.
"""

import argparse
import json
import pathlib
import sys
import time

from kformer.cli.startup import start_tensorflow
from kformer.config import DecodingConfig
from kformer.data import load_corpus
from kformer.inference.load import load_model
from kformer.translation.batches import Hypothesis, TranslateBatch

TIE = 1e-4  # nats, of scores that float32 sums of some fifty tokens give


def translate_in_batches(translate: TranslateBatch, texts: list[bytes], batch_size: int) -> list[Hypothesis]:
    """The best hypothesis of each text; batches are taken as they come, short and long sentences mixed."""
    batches = [texts[start : start + batch_size] for start in range(0, len(texts), batch_size)]
    return [found[0] for batch in batches for found in translate(batch)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path, help="a run folder")
    parser.add_argument("--corpus", default="bible-en-es")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--beam-size", type=int, default=4)
    arguments = parser.parse_args()

    translate = load_model(arguments.model, DecodingConfig(beam_size=arguments.beam_size))
    texts = [source.encode("utf-8") for source, _ in load_corpus(arguments.corpus).test[: arguments.sentences]]
    began = time.monotonic()
    batched = translate_in_batches(translate, texts, arguments.batch_size)
    seconds_batched = time.monotonic() - began
    alone = translate_in_batches(translate, texts, 1)
    differing = [
        {"source": text.decode("utf-8"), "alone": one._asdict(), "in_batch": other._asdict()}
        for text, one, other in zip(texts, alone, batched, strict=True)
        if one.text != other.text
    ]
    ties = [row for row in differing if abs(row["alone"]["score"] - row["in_batch"]["score"]) < TIE]
    for row in differing:
        print(json.dumps(row, ensure_ascii=False))
    print(
        json.dumps(
            {
                "sentences": len(texts),
                "batch_size": arguments.batch_size,
                "beam_size": arguments.beam_size,
                "different": len(differing),
                "of_these_ties": len(ties),
                "largest_score_difference": max(
                    abs(one.score - other.score) for one, other in zip(alone, batched, strict=True)
                ),
                "seconds_batched": round(seconds_batched, 1),
                "seconds_one_by_one": round(time.monotonic() - began - seconds_batched, 1),
            }
        )
    )
    sys.exit(len(differing) > len(ties))


if __name__ == "__main__":
    start_tensorflow()
    main()
