"""The exponential moving average of the weights: what it is, who sees it, and that a run goes on without it."""

import keras
import numpy as np
import pytest
from test_callbacks import IDS, fit, tiny_model

from kformer.training.callbacks import AverageWeights, UseEMA, UseTrained


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
@pytest.mark.parametrize(("accumulation", "decay"), [(1, 0.3), (3, 0.3), (1, 0.999)])
def test_validations_see_the_average_over_updates_and_training_goes_on_without_it(accumulation, decay):
    model = tiny_model(accumulation, ema_decay=decay)
    seen, kept = SeeWeights(), SeeWeights()
    callbacks = [seen, UseEMA(), kept, UseTrained()]
    fit(model, callbacks, epochs=2, steps=4 * accumulation, validation_data=(IDS, IDS))
    after_updates = seen.after_batches[accumulation - 1 :: accumulation]
    np.testing.assert_allclose(kept.at_ends[0], average_of(after_updates[:4], decay), atol=1e-6)
    np.testing.assert_allclose(kept.at_ends[1], average_of(after_updates, decay), atol=1e-6)
    np.testing.assert_array_equal(flat(model), after_updates[-1])


def test_a_run_with_an_average_trains_the_same_weights_as_one_without():
    weights = []
    for decay in (0.0, 0.9):
        keras.utils.set_random_seed(1)
        model = tiny_model(ema_decay=decay)
        callbacks = [UseEMA(), UseTrained()] if decay else []
        fit(model, callbacks, epochs=2, validation_data=(IDS, IDS))
        weights.append(flat(model))
    np.testing.assert_array_equal(*weights)


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
    model, seen = tiny_model(ema_decay=0.3), SeeWeights()
    fit(model, [seen, AverageWeights()], epochs=2, steps=4)
    np.testing.assert_allclose(flat(model), average_of(seen.after_batches, 0.3), atol=1e-6)


@pytest.mark.parametrize(
    ("optimizer", "told"), [("sgd", "Received: SGD, ema_decay=0.0"), (None, r"Received: Adam, ema_decay=0.0")]
)
def test_an_optimizer_without_averages_is_refused(optimizer, told):
    model = tiny_model()
    if optimizer:
        model.compile(optimizer, model.loss)
    with pytest.raises(ValueError, match=told + ". Compile the model with build_adam"):
        fit(model, [AverageWeights()])
