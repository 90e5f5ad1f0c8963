"""Corpora, and the `tf.data` pipeline from pairs of texts to batches of ids."""

from kformer.data.batching import BatchPlan
from kformer.data.corpus import Corpus, Pair, corpus_from_pairs, hold_out, references
from kformer.data.dataset import make_dataset
from kformer.data.encoding import EncodedPairs, encode_pairs
from kformer.data.files import read_parallel, read_tsv
from kformer.data.loading import load_corpus
from kformer.data.tfds_corpus import load_tfds

__all__ = [
    "BatchPlan",
    "Corpus",
    "EncodedPairs",
    "Pair",
    "corpus_from_pairs",
    "encode_pairs",
    "hold_out",
    "load_corpus",
    "load_tfds",
    "make_dataset",
    "read_parallel",
    "read_tsv",
    "references",
]
