"""What do pretrained embeddings change? BLEU after equally many updates, with random, pretrained and frozen ones.

    pip install -e '.[embeddings]'
    python -m benchmarks.variants.pretrained_embeddings --size small --steps 3000

Nothing is downloaded: gensim trains word2vec (skip-gram) on the training part of `bible-en-es` itself, on each side
alone. Then the same model is trained on the same batches, with words as tokens: from random embeddings, from the
vectors, and with the vectors frozen. The softmax has a matrix of its own (`embedding_tying` is "none"), so that it is
trained in all three. A model with subwords is trained for comparison; its batches are others. The weights after the
last update translate the test part.

A line of JSON for each system is appended to `results.jsonl` in the folder, and the table is printed. What is there
already is not done again, and a training that was cut off goes on from its last checkpoint.
"""

import argparse
import json
import pathlib
import time
from collections.abc import Iterable, Iterator
from typing import Any

import rich.console
import tensorflow as tf

from benchmarks.common.results import missing
from kformer.cli.startup import start_tensorflow
from kformer.config import DecodingConfig, TrainingConfig, TransformerConfig
from kformer.data import Corpus, load_corpus
from kformer.evaluation.evaluate import score
from kformer.files.writing import replacing
from kformer.inference import Model
from kformer.runs.folder import RunFolder
from kformer.tokenizers import WordTokenizer
from kformer.training.train import train

FILES = {"source_embeddings": "source.vec", "target_embeddings": "target.vec"}
SYSTEMS: dict[str, dict[str, Any]] = {
    "random": {},
    "pretrained": FILES,
    "pretrained, frozen": {**FILES, "train_embeddings": False},
    "subwords, random": {"tokenizer": "bpe"},
}
_TEXTS_PER_CALL = 2000


def sentences(texts: list[str]) -> Iterator[list[str]]:
    """The words and marks of each text."""
    tokenizer = WordTokenizer.train(texts)
    words = ("", "", "", "⁇", *tokenizer.symbols)
    for first in range(0, len(texts), _TEXTS_PER_CALL):
        for ids in tokenizer.tokenize(tf.constant(texts[first : first + _TEXTS_PER_CALL])).to_list():
            yield [words[token_id] for token_id in ids]


def write_vectors(file: pathlib.Path, texts: list[str], dim: int, epochs: int, seed: int) -> None:
    """Trains word2vec on the texts, unless the file is there. One thread, so that it is the same each time."""
    from gensim.models import Word2Vec

    if file.is_file():
        return
    options = {"sg": 1, "window": 5, "min_count": 3, "workers": 1}
    model = Word2Vec(list(sentences(texts)), vector_size=dim, epochs=epochs, seed=seed, **options)
    with replacing(file) as partial:
        model.wv.save_word2vec_format(str(partial))


def run_system(name: str, corpus: Corpus, folder: pathlib.Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Trains one system, or goes on with it, and scores it."""
    options = dict(SYSTEMS[name])
    options |= {name: str(folder / file) for name, file in FILES.items() if name in options}
    training = TrainingConfig.of_size(arguments.size, **{"tokenizer": "words", **options}).replace(
        vocab_size=arguments.vocab_size,
        shared_vocabulary=False,
        max_steps=arguments.steps,
        fit_warmup=False,  # the warm-up of the size, whatever the number of steps
        validation_steps=arguments.steps,  # one validation, at the end: the last weights are used
        keep_weights=0,
        seed=arguments.seed,
    )
    transformer = TransformerConfig.of_size(arguments.size, embedding_tying="none", embedding_dim=arguments.dim)
    run = RunFolder(folder / name.replace(", ", "-"))
    console = rich.console.Console(stderr=True, soft_wrap=True, highlight=False)
    train(corpus, run.path, transformer, training, resume="auto", console=console)
    scores = score(Model(run.path, DecodingConfig(beam_size=1)), corpus.test, limit=arguments.limit)
    return {**{name: run.corpus().get(name, "-") for name in FILES}, **scores}


def table(lines: Iterable[dict[str, Any]]) -> str:
    """The results as a table in Markdown."""
    rows = [
        "| embeddings | words of the source | words of the target | BLEU | chrF |",
        "| --- | --- | --- | --- | --- |",
    ]
    for line in lines:
        words = " | ".join(line[name] for name in FILES)
        rows.append(f"| {line['system']} | {words} | {line['bleu']:.1f} | {line['chrf']:.1f} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="small", help="of the model: tiny, small, base or big")
    parser.add_argument("--steps", type=int, default=3000, help="updates of each model")
    parser.add_argument("--vocab-size", type=int, default=8000, help="words, or subwords, a side")
    parser.add_argument(
        "--dim", type=int, help="size of the vectors; by default the model's, so that none is projected"
    )
    parser.add_argument("--epochs", type=int, default=20, help="passes of word2vec over the text")
    parser.add_argument("--limit", type=int, help="only the first sentences of the test part")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=list(SYSTEMS))
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("runs/embeddings"))
    arguments = parser.parse_args()
    arguments.dim = arguments.dim or TransformerConfig.of_size(arguments.size).d_model

    corpus = load_corpus("bible-en-es")
    made = {
        name: getattr(arguments, name) for name in ("size", "steps", "vocab_size", "dim", "epochs", "seed", "limit")
    }
    folder = arguments.folder / "-".join(str(made[name]) for name in made if name != "limit")
    folder.mkdir(parents=True, exist_ok=True)
    for number, side in enumerate(("source", "target")):
        texts = [pair[number] for pair in corpus.train]
        write_vectors(folder / f"{side}.vec", texts, arguments.dim, arguments.epochs, arguments.seed)
    results = arguments.folder / "results.jsonl"
    for row in missing(results, [{**made, "system": name} for name in arguments.systems]):
        line = {**row, **run_system(row["system"], corpus, folder, arguments), "date": time.strftime("%Y-%m-%d")}
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    lines = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    print(table(line for line in lines if made.items() <= line.items() and line["system"] in arguments.systems))


if __name__ == "__main__":
    start_tensorflow()
    main()
