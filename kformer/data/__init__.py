"""Corpora, and the `tf.data` pipeline from pairs of texts to batches of ids.

Reading a corpus needs no TensorFlow. The pipeline needs it: its parts, such as `make_dataset`, load when they are first
used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from kformer.data.cleaning import Cleaning
from kformer.data.corpus import Corpus, corpus_from_pairs, hold_out, references
from kformer.data.joined import JoinedFiles, join_corpora
from kformer.data.overlap import Unseen
from kformer.data.pairs import AlignedPair, Pair, Pairs
from kformer.data.prepared.corpus import PreparedCorpus, prepare_corpus
from kformer.data.sources.alignments import AlignedFile
from kformer.data.sources.json_lines import JsonLinesFile
from kformer.data.sources.parallel import ParallelFiles, read_parallel
from kformer.data.sources.parquet import ColumnarFile
from kformer.data.sources.plain_text import TextFile, read_texts
from kformer.data.sources.registry import load_corpus, open_pairs
from kformer.data.sources.tables import TableFile
from kformer.data.sources.tfds import load_tfds
from kformer.data.sources.tmx import TmxFile
from kformer.data.sources.tsv import TsvFile, read_tsv

if TYPE_CHECKING:
    from kformer.data.batching import BatchPlan
    from kformer.data.dataset import make_dataset
    from kformer.data.encoding import EncodedPairs, encode_pairs
    from kformer.data.vocabularies import train_tokenizers
    from kformer.data.word_vectors import FoundVectors, WordVectors, find_vectors, read_word_vectors

# Name of an object: its module.
_PIPELINE = {
    "BatchPlan": "kformer.data.batching",
    "EncodedPairs": "kformer.data.encoding",
    "FoundVectors": "kformer.data.word_vectors",
    "WordVectors": "kformer.data.word_vectors",
    "encode_pairs": "kformer.data.encoding",
    "find_vectors": "kformer.data.word_vectors",
    "make_dataset": "kformer.data.dataset",
    "read_word_vectors": "kformer.data.word_vectors",
    "train_tokenizers": "kformer.data.vocabularies",
}

__all__ = [
    "AlignedFile",
    "AlignedPair",
    "BatchPlan",
    "Cleaning",
    "ColumnarFile",
    "Corpus",
    "EncodedPairs",
    "FoundVectors",
    "JoinedFiles",
    "JsonLinesFile",
    "Pair",
    "Pairs",
    "ParallelFiles",
    "PreparedCorpus",
    "TableFile",
    "TextFile",
    "TmxFile",
    "TsvFile",
    "Unseen",
    "WordVectors",
    "corpus_from_pairs",
    "encode_pairs",
    "find_vectors",
    "hold_out",
    "join_corpora",
    "load_corpus",
    "load_tfds",
    "make_dataset",
    "open_pairs",
    "prepare_corpus",
    "read_parallel",
    "read_texts",
    "read_tsv",
    "read_word_vectors",
    "references",
    "train_tokenizers",
]


def __getattr__(name: str) -> Any:
    if name not in _PIPELINE:
        raise AttributeError(f"module 'kformer.data' has no attribute {name!r}; it has: {', '.join(__all__)}")
    return getattr(importlib.import_module(_PIPELINE[name]), name)
