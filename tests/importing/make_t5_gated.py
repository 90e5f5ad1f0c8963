"""A small T5 of version 1.1: a softmax of its own, and a feed-forward network with a gate."""

import pathlib

import make_t5


def make(folder: pathlib.Path) -> None:
    make_t5.write(folder, "gated-gelu", 13, tie_word_embeddings=False)
