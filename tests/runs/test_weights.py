"""Weights go into a model of their own architecture alone."""

import tracemalloc
import types

import keras
import numpy as np
import pytest
import toy

from kformer.models import build_transformer
from kformer.runs.weights import load_weights_file, save_weights


def built(**changes):
    return build_transformer(toy.TRANSFORMER.replace(**changes))


def test_a_file_with_more_layers_is_refused_and_changes_nothing(tmp_path):
    save_weights(tmp_path / "two.weights.h5", built(num_decoder_layers=2))
    model = built(num_decoder_layers=1)
    before = model.get_weights()
    with pytest.raises(
        ValueError, match=r"two.weights.h5 holds the weights of another model: \d+ arrays, and this mod"
    ):
        load_weights_file(tmp_path / "two.weights.h5", model)
    for found, kept in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(found, kept)


def test_a_model_without_dropout_takes_the_weights_of_one_with_dropout(tmp_path):
    dropping, plain = built(dropout_rate=0.1), built(dropout_rate=0.0)
    save_weights(tmp_path / "a.weights.h5", dropping)
    load_weights_file(tmp_path / "a.weights.h5", plain)
    for found, expected in zip(plain.get_weights(), dropping.get_weights(), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_where_the_disk_has_too_little_room_nothing_is_written(tmp_path, monkeypatch):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(5)])  # 20 numbers of 4 bytes
    for free, fits in ((79, False), (80, True)):
        monkeypatch.setattr("shutil.disk_usage", lambda folder, free=free: types.SimpleNamespace(free=free))
        if fits:
            save_weights(tmp_path / "best.weights.h5", model)
        else:
            with pytest.raises(OSError, match="No space left on device for 80 bytes of weights"):
                save_weights(tmp_path / "best.weights.h5", model)
            assert list(tmp_path.iterdir()) == []


@pytest.mark.tensorflow_only  # whose variables are copied to NumPy's memory
def test_one_copy_of_the_largest_matrix_is_in_memory_while_it_is_saved(tmp_path):
    model = built(source_vocab_size=50_021, target_vocab_size=50_021)
    matrix = 50_021 * toy.TRANSFORMER.d_model * 4  # bytes of the embeddings, which all share
    save_weights(tmp_path / "first.weights.h5", model)  # what is only made once is made here
    tracemalloc.start()
    try:
        save_weights(tmp_path / "best.weights.h5", model)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert matrix < peak < 1.5 * matrix
