"""The exponential moving average of the weights: what it is, who sees it, and that a run goes on without it."""

import keras
import numpy as np
import pytest
from test_callbacks import IDS, fit, tiny_model, validation

from kformer.training.callbacks import AverageWeights, Checkpoint
from kformer.training.checkpoints import TrainingState, load_checkpoint


def flat(model):
    return np.concatenate([weight.ravel() for weight in model.get_weights()])


class SeeWeights(keras.callbacks.Callback):
    """Notes the model's weights after every batch, and at the end of every epoch."""

    def __init__(self):
        super().__init__()
        self.after_batches, self.at_ends = [], []

    def on_train_batch_end(self, batch, logs=None):
        if keras.backend.backend() == "jax":
            self.model.jax_state_sync()
        self.after_batches.append(flat(self.model))

    def on_epoch_end(self, epoch, logs=None):
        self.at_ends.append(flat(self.model))


def average_of(weights, decay):
    """a_1 = w_1, a_t = d_t a_(t-1) + (1 - d_t) w_t, d_t = min(decay, (t - 1) / (t + 8))."""
    average = weights[0]
    for update, weight in enumerate(weights[1:], 2):
        kept = min(decay, (update - 1) / (update + 8))
        average = kept * average + (1 - kept) * weight
    return average


# With 0.3 the average is exponential from update 5 on.
@pytest.mark.parametrize(
    ("accumulation", "decay", "training"),
    [
        (1, 0.3, {}),
        (3, 0.3, {}),
        (1, 0.999, {}),
        (3, 0.3, {"optimizer": "adamw", "weight_decay": 0.1}),
        (3, 0.3, {"optimizer": "adafactor"}),
    ],
)
def test_validations_see_the_average_over_updates_and_training_goes_on_without_it(accumulation, decay, training):
    model = tiny_model(accumulation, ema_decay=decay, **training)
    seen, kept, state = SeeWeights(), SeeWeights(), TrainingState()
    callbacks = [seen, validation(None, state), kept, Checkpoint(None, state)]
    fit(model, callbacks, epochs=2, steps=4 * accumulation, validation_data=(IDS, IDS))
    after_updates = seen.after_batches[accumulation - 1 :: accumulation]
    np.testing.assert_allclose(kept.at_ends[0], average_of(after_updates[:4], decay), atol=1e-6)
    np.testing.assert_allclose(kept.at_ends[1], average_of(after_updates, decay), atol=1e-6)
    np.testing.assert_array_equal(flat(model), after_updates[-1])


@pytest.mark.slow
@pytest.mark.in_ci
def test_a_run_with_an_average_trains_the_same_weights_as_one_without():
    weights = []
    for decay in (0.0, 0.9):
        keras.utils.set_random_seed(1)
        model, state = tiny_model(ema_decay=decay), TrainingState()
        callbacks = [validation(None, state), Checkpoint(None, state)] if decay else []
        fit(model, callbacks, epochs=2, validation_data=(IDS, IDS))
        weights.append(flat(model))
    np.testing.assert_array_equal(*weights)


class ReadCheckpoint(keras.callbacks.Callback):
    """Notes what is saved when a validation begins: whether it is marked as such, and the weights."""

    def __init__(self, folder):
        super().__init__()
        self.folder, self.found = folder, []

    def on_test_begin(self, logs=None):
        self.found.append(saved(self.folder))


def saved(folder):
    model = tiny_model(ema_decay=0.3)
    return load_checkpoint(folder / "checkpoint.npz", model).validating, flat(model)


def test_a_run_is_saved_with_its_trained_weights_before_a_validation_and_after_it(tmp_path):
    model, state, seen, read = tiny_model(ema_decay=0.3), TrainingState(), SeeWeights(), ReadCheckpoint(tmp_path)
    checkpoint = Checkpoint(tmp_path, state)
    callbacks = [seen, validation(None, state, checkpoint=checkpoint), read, checkpoint]
    fit(model, callbacks, steps=4, validation_data=(IDS, IDS))
    trained = seen.after_batches[-1]
    for validating, (is_marked, weights) in zip((True, False), (*read.found, saved(tmp_path)), strict=True):
        assert is_marked == validating
        np.testing.assert_array_equal(weights, trained)


def test_a_plain_fit_validates_and_leaves_the_averaged_weights():
    model = tiny_model(ema_decay=0.3)
    seen, kept = SeeWeights(), SeeWeights()
    history = fit(model, [seen, AverageWeights(), kept], epochs=2, steps=4, validation_data=(IDS, IDS))
    averages = [average_of(seen.after_batches[:4], 0.3), average_of(seen.after_batches, 0.3)]
    np.testing.assert_allclose(kept.at_ends, averages, atol=1e-6)
    np.testing.assert_allclose(flat(model), averages[1], atol=1e-6)
    assert model.evaluate(IDS, IDS, verbose=0, return_dict=True)["token_loss"] == history["val_token_loss"][1]


def test_averages_at_the_end_of_an_epoch_do_not_change_the_training_of_the_next():
    after_batches = []
    for decay, callbacks in ((0.0, []), (0.3, [AverageWeights()])):
        keras.utils.set_random_seed(1)
        model, seen = tiny_model(ema_decay=decay), SeeWeights()
        fit(model, [seen, *callbacks], epochs=2, steps=4, validation_data=(IDS, IDS))
        after_batches.append(seen.after_batches)
    np.testing.assert_array_equal(*after_batches)


def test_a_plain_fit_without_validation_leaves_the_averaged_weights_too():
    model, seen, kept = tiny_model(ema_decay=0.3), SeeWeights(), SeeWeights()
    fit(model, [seen, AverageWeights(), kept], epochs=2, steps=4)
    averages = [average_of(seen.after_batches[:4], 0.3), average_of(seen.after_batches, 0.3)]
    np.testing.assert_allclose(kept.at_ends, averages, atol=1e-6)
    np.testing.assert_allclose(flat(model), average_of(seen.after_batches, 0.3), atol=1e-6)


def test_averages_work_with_an_optimizer_that_scales_the_loss():
    """As Keras gives a model in mixed_float16."""
    model = tiny_model(ema_decay=0.3)
    scaled = keras.optimizers.LossScaleOptimizer(model.optimizer, initial_scale=1.0)
    model.compile(scaled, model.loss)
    seen = SeeWeights()
    fit(model, [seen, AverageWeights()], epochs=1, steps=4)
    np.testing.assert_allclose(flat(model), average_of(seen.after_batches, 0.3), atol=1e-6)


def test_a_fit_that_is_too_short_for_an_update_leaves_the_weights():
    """Four batches of an update of eight: there is no average yet."""
    model, kept = tiny_model(8, ema_decay=0.3), SeeWeights()
    before = flat(model)
    fit(model, [AverageWeights(), kept], epochs=1, steps=4, validation_data=(IDS, IDS))
    np.testing.assert_array_equal(kept.at_ends[0], before)
    np.testing.assert_array_equal(flat(model), before)


EPOCHS = 3
SHORT = {"steps": 2}  # in an epoch
VALIDATION = {"validation_data": (IDS, IDS), **SHORT}


def model_that_averages():
    keras.utils.set_random_seed(1)
    return tiny_model(ema_decay=0.9)


@pytest.fixture(scope="module", params=[VALIDATION, SHORT], ids=["validated", "not validated"])
def undisturbed(request):
    """The weights and the history of a whole `fit`, and what it was given besides."""
    model = model_that_averages()
    history = fit(model, [AverageWeights()], EPOCHS, **request.param)
    return flat(model), history, request.param


only_validated = pytest.mark.parametrize("undisturbed", [VALIDATION], indirect=True, ids=["validated"])


def goes_on_like(undisturbed, model, done):
    """Whether the epochs after the first ones end with the weights, losses and validations of an undisturbed `fit`."""
    weights, history, arguments = undisturbed
    found = fit(model, [AverageWeights()], EPOCHS, initial_epoch=done, **arguments)
    np.testing.assert_array_equal(flat(model), weights)
    assert found == {name: values[done:] for name, values in history.items()}


@pytest.mark.parametrize(
    ("first", "options"),
    [(True, {}), (False, {}), (True, {"save_freq": 2})],
    ids=["before the averages", "after the averages", "at ends of batches"],
)
def test_a_file_that_was_saved_beside_averages_goes_on_like_an_undisturbed_fit(undisturbed, tmp_path, first, options):
    saved = keras.callbacks.ModelCheckpoint(str(tmp_path / "{epoch}.keras"), **options)
    callbacks = [saved, AverageWeights()] if first else [AverageWeights(), saved]
    fit(model_that_averages(), callbacks, epochs=2, **undisturbed[2])
    goes_on_like(undisturbed, keras.models.load_model(tmp_path / "1.keras"), done=1)


@only_validated
def test_a_file_of_weights_alone_goes_on_too(undisturbed, tmp_path):
    saved = keras.callbacks.ModelCheckpoint(str(tmp_path / "{epoch}.weights.h5"), save_weights_only=True)
    fit(model_that_averages(), [AverageWeights(), saved], epochs=2, **undisturbed[2])
    model = tiny_model(ema_decay=0.9)
    model.optimizer.build(model.trainable_variables)
    model.load_weights(tmp_path / "2.weights.h5")
    goes_on_like(undisturbed, model, done=2)


@pytest.mark.slow
@pytest.mark.parametrize("first", [True, False], ids=["before the averages", "after the averages"])
def test_a_backup_that_was_made_beside_averages_goes_on_like_an_undisturbed_fit(undisturbed, tmp_path, first):
    def callbacks(*more):
        backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
        return [*more, backup, AverageWeights()] if first else [AverageWeights(), backup, *more]

    with pytest.raises(KeyboardInterrupt):
        fit(model_that_averages(), callbacks(Interrupts("on_train_batch_begin", 3)), EPOCHS, **undisturbed[2])
    model = model_that_averages()
    found = fit(model, callbacks(), EPOCHS, **undisturbed[2])
    np.testing.assert_array_equal(flat(model), undisturbed[0])
    assert found["loss"] == undisturbed[1]["loss"][1:]  # the first epoch was whole


class Interrupts(keras.callbacks.Callback):
    """Ctrl-C when `hook` is called for the n-th time, from 0."""

    def __init__(self, hook, number):
        super().__init__()
        setattr(self, hook, self.called)
        self.left = number

    def called(self, number=None, logs=None):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


@pytest.mark.slow
@only_validated
@pytest.mark.parametrize(
    ("hook", "first"),
    [
        ("on_test_begin", True),
        ("on_test_begin", False),
        ("on_test_end", True),
        ("on_epoch_end", True),
        ("on_epoch_end", False),
    ],
)
def test_ctrl_c_in_a_validation_and_another_fit_are_like_an_undisturbed_fit(undisturbed, hook, first):
    model, interrupts = model_that_averages(), Interrupts(hook, 0)
    callbacks = [interrupts, AverageWeights()] if first else [AverageWeights(), interrupts]
    with pytest.raises(KeyboardInterrupt):
        fit(model, callbacks, EPOCHS, **VALIDATION)
    goes_on_like(undisturbed, model, done=1)


@pytest.mark.slow
@pytest.mark.in_ci
def test_the_best_file_holds_the_weights_that_were_validated(tmp_path):
    path = tmp_path / "best.keras"
    best = keras.callbacks.ModelCheckpoint(str(path), monitor="val_token_loss", mode="min", save_best_only=True)
    history = fit(model_that_averages(), [AverageWeights(), best], epochs=4, **VALIDATION)
    model = keras.models.load_model(path)
    found = model.evaluate(IDS, IDS, verbose=0, return_dict=True)["token_loss"]
    assert found == pytest.approx(min(history["val_token_loss"]), rel=1e-6)


def test_a_file_that_is_trained_without_averages_begins_a_new_average(tmp_path):
    saved = keras.callbacks.ModelCheckpoint(str(tmp_path / "m.keras"))
    fit(model_that_averages(), [AverageWeights(), saved], epochs=1, **VALIDATION)
    model, seen = keras.models.load_model(tmp_path / "m.keras"), SeeWeights()
    fit(model, [seen], epochs=1, steps=1)
    fit(model, [AverageWeights()], epochs=1, steps=1)
    assert np.abs(flat(model) - seen.after_batches[0]).max() < 0.1


@pytest.mark.parametrize(
    ("optimizer", "told"), [("sgd", "Received: SGD, ema_decay=0.0"), (None, r"Received: Adam, ema_decay=0.0")]
)
def test_an_optimizer_without_averages_is_refused(optimizer, told):
    model = tiny_model()
    if optimizer:
        model.compile(optimizer, model.loss)
    with pytest.raises(ValueError, match=told + ". Compile the model with build_optimizer"):
        fit(model, [AverageWeights()])
