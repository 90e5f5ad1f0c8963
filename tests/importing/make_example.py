"""Makes the small models of `tests/importing/examples` with the toolkits that they stand for, and notes their answers.

    pip install torch==2.13.0 "transformers>=5.23,<6" "safetensors>=0.4.5"
    python tests/importing/make_example.py marian

Their weights are random, but large enough that the answers to 200 lines differ. kformer's tests import these folders,
and compare what it answers with the notes, `expected.json`. So the tests need none of these toolkits.
"""

import argparse
import importlib
import json
import pathlib
import shutil

import numpy as np

HERE = pathlib.Path(__file__).parent
EXAMPLES = HERE / "examples"
LINES = 200
LOGIT_ROWS, LOGIT_POSITIONS = 2, 4


def lines() -> list[str]:
    """Lines of text that the models answer: verses, and some that tokenizers may stumble over."""
    from kformer.data import load_corpus

    verses = [source for source, _ in load_corpus("bible-en-es").test]
    short = [verse for verse in verses if 20 < len(verse) < 90]
    odd = ["naïve ☃ café", "two  blanks", "1,024.5%", "ÑANDÚ", "...", "𝒳y", "“quoted” – dash"]
    return [*odd, *short[:: len(short) // LINES]][:LINES]


def sentencepiece_model(path: pathlib.Path, vocab_size: int, **options: object) -> None:
    """Trains a SentencePiece model of verses, normalized as by default (nmt_nfkc)."""
    import sentencepiece

    from kformer.data import load_corpus

    verses = [text for pair in load_corpus("bible-en-es").train for text in pair]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(verses[::10]),
        model_prefix=str(path.with_suffix("")),
        vocab_size=vocab_size,
        minloglevel=2,
        **options,
    )
    path.with_suffix(".vocab").unlink()
    path.with_suffix(".model").rename(path)


def note(folder: pathlib.Path, expected: dict) -> None:
    """Writes `expected.json`."""
    (folder / "expected.json").write_text(json.dumps(expected, ensure_ascii=False) + "\n", encoding="utf-8")


def sample_logits(logits: np.ndarray) -> list:
    """Logits (B, T, V) with five digits behind the point."""
    return np.round(logits, 5).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="of an example: the module make_NAME makes it")
    name = parser.parse_args().name
    folder = EXAMPLES / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    importlib.import_module(f"make_{name}").make(folder)
    print(f"{folder}: {sum(file.stat().st_size for file in folder.iterdir()) / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
