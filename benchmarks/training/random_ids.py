"""A run over a prepared corpus of random ids, for `large_corpus`. The corpus has no texts: they were read before.

    python -m benchmarks.training.random_ids write FOLDER PAIRS
    python -m benchmarks.training.random_ids train FOLDER PAIRS UPDATES

`write` fills the cache in FOLDER with ids, by the package's own writer. The lengths of both sides are drawn from a
gamma distribution with a mean of 30 tokens, and are at most 128. `train` trains size `tiny` up to so many updates in
FOLDER, or goes on if there is a run, with a validation at each hundredth. It prints a line after each update.
"""

import argparse
import pathlib
from collections import Counter
from collections.abc import Iterator

import keras
import numpy as np

import kformer
from kformer.data import Pair, PreparedCorpus, load_corpus, train_tokenizers
from kformer.data.corpus_facts import CorpusFacts
from kformer.data.encoded_ids import EncodedChunk, Sequences, id_type
from kformer.data.pairs import SelectedPairs
from kformer.tokenizers import Tokenizer

VALIDATED = 100  # pairs
VALIDATION_STEPS = 100
CHUNK = 1 << 17  # pairs that are made at once


class Unread:
    """Texts of which nothing is left but their number."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __iter__(self) -> Iterator[Pair]:
        raise RuntimeError("The texts of a prepared corpus were read again.")

    def __len__(self) -> int:
        return self._number


class Printed(keras.callbacks.Callback):
    """Prints a line after each update."""

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        print("update", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("write", "train"))
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("pairs", type=int)
    parser.add_argument("updates", type=int, nargs="?", default=100)
    arguments = parser.parse_args()
    corpus = corpus_of_ids(arguments.folder / "cache", arguments.pairs)
    training = kformer.TrainingConfig.of_size("tiny", max_steps=arguments.updates, validation_steps=VALIDATION_STEPS)
    if arguments.action == "write":
        write(corpus, training)
    else:
        run = arguments.folder / "run"
        transformer = kformer.TransformerConfig.of_size("tiny")
        kformer.train(corpus, run, transformer, training, resume="auto", callbacks=[Printed()])


def corpus_of_ids(cache: pathlib.Path, number: int) -> PreparedCorpus:
    """The corpus as `prepare_corpus` gives it when all is known."""
    learned = SelectedPairs(Unread(number), b"\1" * number)  # a file, without what is held out of it
    valid = load_corpus("bible-en-es").valid[:VALIDATED]
    facts = CorpusFacts(number, len(valid), tabs_in_sources=False, short_ratio=0.5, overlap=0, sha256=f"{number:064x}")
    return PreparedCorpus("random ids", learned, valid, test=[], cache=cache, key=f"random {number}", known=facts)


def write(corpus: PreparedCorpus, training: kformer.TrainingConfig) -> None:
    """Keeps a vocabulary and the ids in the cache."""
    texts = load_corpus("bible-en-es").train
    tokenizers = corpus.learned_tokenizers("translate", training, lambda: train_tokenizers(texts, training))
    draw = np.random.default_rng(1)
    with corpus.kept_ids("translate", training, tokenizers) as store:
        begin = store.open(*(tokenizer.vocab_size for tokenizer in tokenizers)) or 0
        for start in range(begin, len(corpus.train), CHUNK):
            count = min(CHUNK, len(corpus.train) - start)
            sides = [random_sequences(draw, tokenizer, count, training.max_length) for tokenizer in tokenizers]
            store.add(EncodedChunk(*sides, Counter(read=count)))
        store.close()


def random_sequences(draw: np.random.Generator, tokenizer: Tokenizer, count: int, longest: int) -> Sequences:
    """So many sequences of random tokens, each with its end id."""
    counts = draw.gamma(3, 10, count).astype(np.int64).clip(2, longest)
    special = 1 + max(tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id, tokenizer.unknown_id)
    ids = draw.integers(special, tokenizer.vocab_size, counts.sum(), id_type(tokenizer.vocab_size))
    ids[np.cumsum(counts) - 1] = tokenizer.end_id
    return Sequences(ids, counts)


if __name__ == "__main__":
    main()
