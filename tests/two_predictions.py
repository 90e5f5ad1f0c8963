"""Examples for losses of two predictions of each token: R-Drop, and a student beside its teacher."""

import math

import numpy as np


def example(rows=3, length=5, classes=7):
    """Labels, of which 0 is padding, and two predictions of each."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, classes, (rows, length)).astype("int32")
    return labels, rng.normal(0, 2, (rows, 2, length, classes)).astype("float32")


def log_probabilities(logits):
    return [float(value) - math.log(sum(math.exp(other) for other in logits)) for value in logits]


def batch(rows=3):
    """Ids from 3 to 10."""
    rng = np.random.default_rng(2)
    inputs = {"source": rng.integers(3, 11, (rows, 5)), "target_in": rng.integers(3, 11, (rows, 7))}
    return {name: ids.astype("int32") for name, ids in inputs.items()}
