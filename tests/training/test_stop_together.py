"""Two processes stop at the same batch, whichever of them wants to: played here in one."""

import os
import signal

import keras
import pytest

from kformer.training.callbacks import GracefulInterrupt, StopOnNaN, StopTogether
from kformer.training.checkpoints import TrainingState


class Network:
    """Brings the values of two processes together, question by question."""

    def __init__(self):
        self.asked = [[], []]

    def all_reduce_max(self, process):
        def ask(value):
            number = len(self.asked[process])
            self.asked[process].append(value)
            return lambda: max(values[number] for values in self.asked)

        return ask


class StopAt(keras.callbacks.Callback):
    """Wants to stop when a batch begins."""

    def __init__(self, batch):
        super().__init__()
        self.batch = batch

    def on_train_batch_begin(self, batch, logs=None):
        if batch == self.batch:
            self.model.stop_training = True


class Model:
    stop_training = False


def process(network, number, *callbacks):
    together = StopTogether(callbacks, network.all_reduce_max(number))
    together.set_model(Model())
    together.on_train_begin()
    together.on_epoch_begin(0)
    return together


def stopped_at(processes, batches=40, losses=((), ())):
    """The batch after which each process leaves `fit`; `losses` are read at the ends of the batches."""
    found = [None, None]
    for batch in range(batches):
        for together in processes:
            together.on_train_batch_begin(batch)
        for number, together in enumerate(processes):
            loss = dict(losses[number]).get(batch, 1.0)
            together.on_train_batch_end(batch, {"loss": loss})
            if together.model.stop_training and found[number] is None:
                found[number] = batch
    return found


@pytest.mark.parametrize("wants", [0, 1])
@pytest.mark.parametrize("batch", [0, 3, 4, 5, 17])
def test_all_stop_at_the_same_batch_soon_after_one_wants_to(wants, batch):
    network = Network()
    callbacks = [StopAt(None), StopAt(None)]
    callbacks[wants] = StopAt(batch)
    processes = [process(network, number, callback) for number, callback in enumerate(callbacks)]
    first, second = stopped_at(processes)
    assert first == second
    assert batch < first <= batch + 8
    assert [together.followed for together in processes] == callbacks


def test_nobody_stops_while_nobody_wants_to():
    network = Network()
    processes = [process(network, number, StopAt(None)) for number in range(2)]
    assert stopped_at(processes) == [None, None]


def test_a_signal_to_one_process_is_followed_by_all():
    network = Network()
    interrupts = [GracefulInterrupt(), GracefulInterrupt()]
    processes = [process(network, number, interrupt) for number, interrupt in enumerate(interrupts)]
    interrupts[0].close()
    interrupts[1].on_train_begin()  # the signals of this process go to the second one
    try:
        os.kill(os.getpid(), signal.SIGINT)
        assert not processes[1].model.stop_training  # it would leave the first one waiting
        assert stopped_at(processes) == [4, 4]
    finally:
        interrupts[1].close()
    assert processes[0].followed is interrupts[0]


def test_a_wish_of_the_last_batches_is_heard_at_the_end_of_the_epoch():
    heard = []

    def all_reduce_max(value):
        heard.append(value)
        return lambda: value

    together = StopTogether([StopAt(2)], all_reduce_max)
    together.set_model(Model())
    together.on_epoch_begin(0)
    for batch in range(3):
        together.on_train_batch_begin(batch)
    assert not together.model.stop_training
    together.on_epoch_end(0, {})
    assert together.model.stop_training
    assert heard == [0, 1]


def test_a_loss_that_is_not_finite_is_an_error_at_the_same_batch_in_all():
    network = Network()
    state = TrainingState(batch=2)
    processes = [process(network, number, StopOnNaN(state)) for number in range(2)]
    # The second process reads the loss later than the first.
    for batch in range(8):
        for number, together in enumerate(processes):
            together.on_train_batch_begin(batch)
            together.on_train_batch_end(batch, {"loss": float("nan") if batch >= 2 + 100 * number else 1.0})
    with pytest.raises(FloatingPointError, match="The loss is nan after batch 5"):
        processes[0].on_train_batch_begin(8)
    with pytest.raises(FloatingPointError, match="Another process says since when"):
        processes[1].on_train_batch_begin(8)
