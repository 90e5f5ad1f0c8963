import dataclasses
import os

import keras
import numpy as np
import pytest

from kformer.config import TrainingConfig
from kformer.files import writing
from kformer.losses import LabelSmoothedCrossEntropy
from kformer.metrics import TokenLoss
from kformer.training import checkpoints
from kformer.training.callbacks import Budget, Checkpoint, KeepBest, TrackState, Validation
from kformer.training.checkpoints import (
    DamagedCheckpointError,
    TrainingState,
    load_checkpoint,
    load_last_checkpoint,
    previous_checkpoint,
    save_checkpoint,
    saved_state,
)
from kformer.training.optimizers import build_optimizer


def tiny_model(seed=1, d_model=3, accumulation=3):
    """Embedding, dropout (a random seed to restore) and logits over 7 classes, accumulating 3 micro-batches."""
    keras.utils.set_random_seed(seed)
    ids = keras.Input((None,), dtype="int32")
    hidden = keras.layers.Dropout(0.3)(keras.layers.Embedding(7, d_model)(ids))
    model = keras.Model(ids, keras.layers.Dense(7)(hidden))
    config = TrainingConfig(warmup_steps=5, gradient_accumulation_steps=accumulation)
    by_xla = "auto" if keras.backend.backend() == "jax" else False  # as in kformer's own trainings
    optimizer, loss = build_optimizer(d_model, config), LabelSmoothedCrossEntropy()
    model.compile(optimizer, loss, metrics=[TokenLoss()], jit_compile=by_xla)
    return model


def stream(start):
    """An endless stream: batch k is a function of k."""
    step = start
    while True:
        ids = np.random.default_rng(step).integers(0, 7, (5, 3)).astype("int32")
        yield ids, ids
        step += 1


def values(model):
    return [np.array(keras.ops.convert_to_numpy(v.value)) for v in model.variables + model.optimizer.variables]


def train(model, state, directory, epochs, callbacks=(), batches=5):
    """`epochs` validation intervals of 5 batches each: 5 is no multiple of the 3 accumulated."""
    checkpoint = Checkpoint(directory, state, minutes=1e-9)
    keep_best = KeepBest(directory / "best.weights.h5", state)
    callbacks = [TrackState(state), Validation(state, checkpoint, keep_best, Budget()), *callbacks, checkpoint]
    validation = next(stream(10**6))
    model.fit(
        stream(state.batch),
        steps_per_epoch=batches,
        initial_epoch=state.epoch,
        epochs=state.epoch + epochs,
        validation_data=validation,
        callbacks=callbacks,
        shuffle=False,
        verbose=0,
    )


@pytest.mark.slow
@pytest.mark.in_ci
def test_resumed_run_equals_the_uninterrupted_one_bit_for_bit(tmp_path):
    whole, whole_state = tiny_model(), TrainingState()
    train(whole, whole_state, tmp_path / "whole", epochs=4)

    train(tiny_model(), TrainingState(), tmp_path / "parts", epochs=2)
    resumed = tiny_model(seed=99)  # other weights and seeds, which the checkpoint must replace
    state = load_checkpoint(tmp_path / "parts" / "checkpoint.npz", resumed)
    assert (state.batch, state.step, state.epoch) == (10, 3, 2)
    train(resumed, state, tmp_path / "parts", epochs=2)

    assert dataclasses.replace(state, epoch_seconds=0) == dataclasses.replace(whole_state, epoch_seconds=0)
    assert (state.batch, state.step, state.epoch) == (20, 6, 4)
    for ours, theirs in zip(values(resumed), values(whole), strict=True):
        np.testing.assert_array_equal(ours, theirs)


class Recorder(keras.callbacks.Callback):
    """Keeps the metrics of every epoch; dies before a batch of epoch 1, if told to."""

    def __init__(self, dies_before=None):
        super().__init__()
        self.logs, self.dies_before, self.epoch = [], dies_before, 0

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        if (self.epoch, batch) == (1, self.dies_before):
            raise KeyboardInterrupt

    def on_epoch_end(self, epoch, logs=None):
        self.logs.append({name: value for name, value in logs.items() if name not in ("minutes", "tokens_per_second")})


@pytest.mark.parametrize("dies_before", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_a_run_killed_within_an_epoch_goes_on_bit_for_bit(tmp_path, dies_before):
    whole, whole_state, undisturbed = tiny_model(), TrainingState(), Recorder()
    train(whole, whole_state, tmp_path / "whole", 3, [undisturbed])

    with pytest.raises(KeyboardInterrupt):
        train(tiny_model(), TrainingState(), tmp_path / "parts", 3, [Recorder(dies_before)])
    resumed, recorder = tiny_model(seed=99), Recorder()
    state = load_checkpoint(tmp_path / "parts" / "checkpoint.npz", resumed)
    assert (state.epoch, state.epoch_batch, state.batch) == (1, dies_before - 1, 5 + dies_before - 1)
    resumed.evaluate(*next(stream(0)), verbose=0)  # makes the metrics
    if dies_before == 2:  # once more, in the same epoch
        with pytest.raises(KeyboardInterrupt):
            train(resumed, state, tmp_path / "parts", 1, [Recorder(2)], batches=4)
        resumed = tiny_model(seed=98)
        state = load_checkpoint(tmp_path / "parts" / "checkpoint.npz", resumed)
        assert (state.epoch, state.epoch_batch, state.batch) == (1, 2, 7)
        resumed.evaluate(*next(stream(0)), verbose=0)
    train(resumed, state, tmp_path / "parts", 1, [recorder], batches=5 - state.epoch_batch)
    train(resumed, state, tmp_path / "parts", 1, [recorder])

    assert recorder.logs == undisturbed.logs[1:]
    for ours, theirs in zip(values(resumed), values(whole), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_damaged_checkpoint_is_told_and_the_one_before_is_read(tmp_path):
    model, path = tiny_model(), tmp_path / "checkpoint.npz"
    for step in (1, 2):
        save_checkpoint(path, model, TrainingState(step=step))
    state, damage = load_last_checkpoint(path, model)
    assert (state.step, damage) == (2, None)
    content = bytearray(path.read_bytes())
    content[content.index(model.get_weights()[0].tobytes())] ^= 1  # one bit of the weights
    path.write_bytes(content)
    state, damage = load_last_checkpoint(path, model)
    assert state.step == 1
    assert "checkpoint.npz is not a kformer checkpoint: Bad CRC-32" in damage
    path.unlink()  # killed between two renamings
    assert load_last_checkpoint(path, model)[0].step == 1
    previous_checkpoint(path).write_bytes(b"")
    with pytest.raises(DamagedCheckpointError, match=r"previous-checkpoint.npz is not"):
        load_last_checkpoint(path, model)


def test_wherever_a_bit_is_wrong_it_is_noticed_or_does_not_matter(tmp_path):
    model, path, generator = tiny_model(), tmp_path / "checkpoint.npz", np.random.default_rng(1)
    save_checkpoint(path, model, TrainingState(step=5))
    whole, before, noticed = path.read_bytes(), values(model), 0
    for place in generator.integers(len(whole), size=500):
        content = bytearray(whole)
        content[place] ^= 1 << int(generator.integers(8))
        path.write_bytes(content)
        try:
            assert load_checkpoint(path, model).step == 5
        except DamagedCheckpointError:
            noticed += 1
        for ours, theirs in zip(values(model), before, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert noticed > 250


def test_weights_that_are_not_finite_are_not_written(tmp_path):
    model, path = tiny_model(), tmp_path / "checkpoint.npz"
    save_checkpoint(path, model, TrainingState(step=1))
    model.variables[0].assign(np.full(model.variables[0].shape, np.nan))
    with pytest.raises(FloatingPointError, match=r"not finite after update 2: the training has diverged"):
        save_checkpoint(path, model, TrainingState(step=2))
    assert load_checkpoint(path, tiny_model()).step == 1


def test_every_kind_of_variable_is_restored(tmp_path):
    model = tiny_model()
    train(model, TrainingState(), tmp_path, epochs=1)
    before = values(model)
    assert any("seed" in variable.path for variable in model.variables)
    for variable in model.variables + model.optimizer.variables:
        variable.assign(np.zeros(variable.shape))
    load_checkpoint(tmp_path / "checkpoint.npz", model)
    for restored, saved in zip(values(model), before, strict=True):
        np.testing.assert_array_equal(restored, saved)


def test_the_state_of_a_damaged_checkpoint_is_that_of_the_one_before(tmp_path):
    model, path = tiny_model(), tmp_path / "a.npz"
    for seed in (1, 2):
        save_checkpoint(path, model, TrainingState(step=seed, training={"seed": seed}))
    assert (saved_state(path).step, saved_state(path).training) == (2, {"seed": 2})
    path.write_bytes(path.read_bytes()[:-100])
    assert (saved_state(path).step, saved_state(path).training) == (1, {"seed": 1})
    previous_checkpoint(path).unlink()
    assert saved_state(path) is None


def test_state_survives(tmp_path):
    state = TrainingState(11, 37, 2, epoch_batch=3, epoch_seconds=1.5, best=1.25, waited=1, metrics=[np.arange(3)])
    state.seconds = 61.5
    model = tiny_model()
    save_checkpoint(tmp_path / "a.npz", model, state)
    found = load_checkpoint(tmp_path / "a.npz", model)
    assert (found, found.seconds) == (state, 61.5)
    np.testing.assert_array_equal(found.metrics, state.metrics)
    save_checkpoint(tmp_path / "a.npz", model, dataclasses.replace(state, best=None))
    assert load_checkpoint(tmp_path / "a.npz", model).best is None


def test_failure_in_the_middle_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    model, path = tiny_model(), tmp_path / "checkpoint.npz"
    save_checkpoint(path, model, TrainingState(step=1))
    before = path.read_bytes()

    def full_disk(file, **arrays):
        file.write(b"half a check")
        raise OSError("No space left on device")

    monkeypatch.setattr(checkpoints.np, "savez", full_disk)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(path, model, TrainingState(step=2))
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["checkpoint.npz"]


def test_the_file_appears_only_when_whole(tmp_path):
    path = tmp_path / "new" / "a.weights.h5"
    with writing.replacing(path) as partial:
        assert path.parent in partial.parents  # on the same disk
        assert partial.name == path.name
        partial.write_bytes(b"whole")
        assert not path.exists()
    assert path.read_bytes() == b"whole"
    assert os.listdir(path.parent) == ["a.weights.h5"]


def test_half_a_file_is_no_checkpoint(tmp_path):
    model, path = tiny_model(), tmp_path / "checkpoint.npz"
    save_checkpoint(path, model, TrainingState())
    whole = path.read_bytes()
    before = values(model)
    for content in (whole[: len(whole) // 2], b"", b"something else"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"checkpoint.npz is not a kformer checkpoint"):
            load_checkpoint(path, model)
    np.savez(path, weights=np.zeros(3))
    with pytest.raises(ValueError, match="is not a kformer checkpoint"):
        load_checkpoint(path, model)
    for ours, theirs in zip(values(model), before, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_another_model_or_optimizer_is_refused(tmp_path):
    path = tmp_path / "checkpoint.npz"
    save_checkpoint(path, tiny_model(), TrainingState())
    with pytest.raises(ValueError, match=r"holds shape \(7, 3\) for .*embeddings, but its shape is \(7, 5\)"):
        load_checkpoint(path, tiny_model(d_model=5))
    with pytest.raises(ValueError, match=r"holds 11 optimizer variables, but this optimizer has 8"):
        load_checkpoint(path, tiny_model(accumulation=1))
    with pytest.raises(FileNotFoundError):
        load_checkpoint(tmp_path / "none.npz", tiny_model())


def test_a_model_must_be_compiled(tmp_path):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    with pytest.raises(ValueError, match=r"Call model.compile\(optimizer, ...\) first"):
        save_checkpoint(tmp_path / "a.npz", model, TrainingState())


def test_bfloat16_variables_survive(tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, dtype="bfloat16")])
    model.compile("sgd", "mse")
    before = [keras.ops.convert_to_numpy(keras.ops.cast(v.value, "float32")) for v in model.variables]
    save_checkpoint(tmp_path / "a.npz", model, TrainingState())
    for variable in model.variables:
        variable.assign(np.ones(variable.shape))
    load_checkpoint(tmp_path / "a.npz", model)
    for variable, saved in zip(model.variables, before, strict=True):
        assert variable.dtype == "bfloat16"
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(keras.ops.cast(variable.value, "float32")), saved)
