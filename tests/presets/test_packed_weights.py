"""Weights in bytes, on every backend: what is kept, what is lost, and what is refused."""

import keras
import numpy as np
import pytest

from kformer.config import TransformerConfig
from kformer.models import build_transformer
from kformer.runs.packed_weights import load_packed_weights, save_packed_weights

CONFIG = TransformerConfig.of_size("tiny", source_vocab_size=50, target_vocab_size=50)


def dense(kernel):
    """A model that has this matrix as its only weight."""
    inputs = keras.Input((len(kernel),))
    model = keras.Model(inputs, keras.layers.Dense(len(kernel[0]), use_bias=False, name="dense")(inputs))
    model.set_weights([np.array(kernel, "float32")])
    return model


def through_a_file(kernel, path):
    """The matrix as it comes back, and the error that was told."""
    error = save_packed_weights(path, dense(kernel))
    again = dense(np.zeros(np.shape(kernel)))
    load_packed_weights(path, again)
    return again.get_weights()[0], error


@pytest.mark.parametrize("config", [CONFIG, CONFIG.replace(embedding_tying="none", positional_encoding="learned")])
def test_a_transformers_matrices_are_off_by_half_a_step_at_most_and_its_vectors_not_at_all(config, tmp_path):
    model, again = build_transformer(config), build_transformer(config)
    for weight in model.weights:
        weight.assign(np.random.default_rng(len(weight.path)).normal(size=weight.shape))
    save_packed_weights(tmp_path / "weights.npz", model)
    load_packed_weights(tmp_path / "weights.npz", again)
    assert len({weight.path for weight in model.weights}) == len(model.weights)
    for before, after in zip(model.get_weights(), again.get_weights(), strict=True):
        assert after.dtype == np.float32
        if before.ndim == 1:
            np.testing.assert_array_equal(after, before)
            continue
        distance = np.abs(after - before)
        half_steps = [np.abs(before).max(axis=axis, keepdims=True) / 127 / 2 for axis in (0, 1)]
        assert any(np.all(distance <= half_step * 1.0001) for half_step in half_steps)
        assert distance.max() > 0


def test_a_weight_may_be_called_scale(tmp_path):
    inputs = keras.Input((3,))
    model, again = (
        keras.Model(inputs, keras.layers.RMSNormalization(name="norm", dtype="float32")(inputs)) for _ in range(2)
    )
    model.set_weights([np.array([1.0, 2.0, 3.0])])
    save_packed_weights(tmp_path / "weights.npz", model)
    load_packed_weights(tmp_path / "weights.npz", again)
    np.testing.assert_array_equal(again.get_weights()[0], [1.0, 2.0, 3.0])


def test_a_scale_for_each_row_or_each_column_whichever_loses_less(tmp_path):
    # Whole steps of 1 in the first row and of 0.001 in the second: nothing is lost. By columns 0.064 would be.
    rows = [[127, 64, -3], [0.127, 0.064, -0.127]]
    columns = [list(column) for column in zip(*rows, strict=True)]
    for kernel in (rows, columns):
        found, error = through_a_file(kernel, tmp_path / "weights.npz")
        np.testing.assert_allclose(found, kernel, rtol=1e-6)
        assert error < 1e-6


def test_the_error_is_told_as_a_share_of_the_weights(tmp_path):
    # The steps are 1 along rows and columns alike: both 0.4 become 0.
    found, error = through_a_file([[127, 0.4], [0.4, 127]], tmp_path / "weights.npz")
    assert found.tolist() == [[127, 0], [0, 127]]
    assert error == pytest.approx(((0.4**2 + 0.4**2) / (127**2 + 127**2 + 0.4**2 + 0.4**2)) ** 0.5, rel=1e-5)


def test_fewer_steps_make_a_smaller_file_and_a_larger_error(tmp_path):
    model = build_transformer(CONFIG)
    errors = [save_packed_weights(tmp_path / f"{steps}.npz", model, steps) for steps in (127, 31)]
    assert errors[1] == pytest.approx(errors[0] * 127 / 31, rel=0.05)
    assert (tmp_path / "31.npz").stat().st_size < 0.8 * (tmp_path / "127.npz").stat().st_size
    for steps in (0, 128):
        with pytest.raises(ValueError, match=f"steps must be from 1 to 127. Received: steps={steps}."):
            save_packed_weights(tmp_path / "none.npz", model, steps)


def test_rows_of_zeros_stay_zeros(tmp_path):
    found, error = through_a_file([[0, 0], [1, -1]], tmp_path / "weights.npz")
    assert found.tolist() == [[0, 0], [1, -1]]
    assert error == 0


def test_a_packed_file_is_a_quarter_of_float32_and_the_same_every_time(tmp_path):
    model = build_transformer(CONFIG)
    for name in ("first.npz", "second.npz"):
        save_packed_weights(tmp_path / name, model)
    assert (tmp_path / "first.npz").read_bytes() == (tmp_path / "second.npz").read_bytes()
    assert (tmp_path / "first.npz").stat().st_size < 0.26 * 4 * model.count_params()


def test_the_weights_of_another_model_are_refused_and_nothing_is_assigned(tmp_path):
    save_packed_weights(tmp_path / "weights.npz", dense([[1, 2, 3]]))
    other = dense([[5, 6]])
    with pytest.raises(ValueError, match=r"dense/kernel has the shape \(1, 3\) there, \(1, 2\) in this model. Build"):
        load_packed_weights(tmp_path / "weights.npz", other)
    assert other.get_weights()[0].tolist() == [[5, 6]]
    with pytest.raises(ValueError, match=r"decoder/\S+ has the shape None there, \(128,\) in this model"):
        load_packed_weights(tmp_path / "weights.npz", build_transformer(CONFIG))


@pytest.mark.parametrize("keep", [0, 100, -30])
def test_a_damaged_file_is_told(keep, tmp_path):
    path = tmp_path / "weights.npz"
    save_packed_weights(path, dense(np.ones((20, 20))))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match="weights.npz is damaged: .* Pack the run again"):
        load_packed_weights(path, dense(np.ones((20, 20))))


class Surprise:
    """Python code in a file of arrays."""

    def __reduce__(self):
        return pytest.fail, ("The code in the file was run.",)


def test_code_in_a_file_is_not_run(tmp_path):
    np.savez(tmp_path / "weights.npz", **{"dense/kernel": np.array([[Surprise()]], object)})
    with pytest.raises(ValueError, match="weights.npz is damaged"):
        load_packed_weights(tmp_path / "weights.npz", dense([[1]]))


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused_and_nothing_is_written(number, tmp_path):
    with pytest.raises(ValueError, match="dense/kernel holds numbers that are not finite"):
        save_packed_weights(tmp_path / "weights.npz", dense([[1, number]]))
    assert list(tmp_path.iterdir()) == []
