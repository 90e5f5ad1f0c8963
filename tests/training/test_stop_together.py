"""Two processes stop at the same batch, whichever of them wants to: played here in one."""

import os
import signal

import keras
import pytest

from kformer.training.callbacks import (
    CompareLast,
    EndsRun,
    GracefulInterrupt,
    NoticeStop,
    StopOnNaN,
    StopTogether,
)
from kformer.training.callbacks.stop_together import end_run
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


class StopAt(EndsRun):
    """Wants to stop when a batch begins."""

    reason, wish = "its batch came", 1

    def __init__(self, state, batch, together):
        super().__init__(state, together)
        self.batch = batch

    def on_train_batch_begin(self, batch, logs=None):
        if batch == self.batch:
            self.request_stop()


def stops_at(batch):
    return lambda state, together: StopAt(state, batch, together)


class StopsTraining(keras.callbacks.Callback):
    """A user's callback at the end of a batch or of the epoch: it knows nothing of other processes."""

    def __init__(self, batch=None):
        super().__init__()
        self.batch = batch

    def on_train_batch_end(self, batch, logs=None):
        if batch == self.batch:
            self.model.stop_training = True

    def on_epoch_end(self, epoch, logs=None):
        if self.batch is None:
            self.model.stop_training = True


class Model:
    stop_training = False


class Process:
    """The callbacks of one of several processes, in the order of `kformer.training.callbacks`."""

    def __init__(self, all_reduce_max, make_ending, user_callback=None):
        self.state, self.model = TrainingState(batch=2), Model()
        together = StopTogether(self.state, all_reduce_max)
        ending, loss_check = make_ending(self.state, together), StopOnNaN(self.state, together)
        of_user = [] if user_callback is None else [user_callback, NoticeStop(self.state, user_callback, together)]
        self.callbacks = [loss_check, ending, together, *of_user, CompareLast(together)]
        for callback in self.callbacks:
            callback.set_model(self.model)
            callback.on_train_begin()
            callback.on_epoch_begin(0)

    def begin(self, batch):
        for callback in self.callbacks:
            callback.on_train_batch_begin(batch)

    def end(self, batch, loss=1.0):
        for callback in self.callbacks:
            callback.on_train_batch_end(batch, {"loss": loss})

    def end_epoch(self):
        for callback in self.callbacks:
            callback.on_epoch_end(0, {})


def two_processes(batches, users=(None, None)):
    network = Network()
    return [
        Process(
            network.all_reduce_max(number), lambda state, together, batch=batch: StopAt(state, batch, together), user
        )
        for number, (batch, user) in enumerate(zip(batches, users, strict=True))
    ]


def stopped_at(processes, batches=40):
    """The batch after which each process leaves `fit`."""
    found = [None, None]
    for batch in range(batches):
        for process in processes:
            process.begin(batch)
        for number, process in enumerate(processes):
            process.end(batch)
            if (process.model.stop_training or process.state.interrupted) and found[number] is None:
                found[number] = batch
    return found


@pytest.mark.parametrize("wants", [0, 1])
@pytest.mark.parametrize("batch", [0, 3, 4, 5, 17])
def test_all_stop_at_the_same_batch_soon_after_one_wants_to(wants, batch):
    batches = [None, None]
    batches[wants] = batch
    processes = two_processes(batches)
    first, second = stopped_at(processes)
    assert first == second
    assert batch < first <= batch + 8
    assert [process.state.end_reason for process in processes] == ["its batch came"] * 2


def test_nobody_stops_while_nobody_wants_to():
    processes = two_processes([None, None])
    assert stopped_at(processes) == [None, None]
    assert [process.state.end_reason for process in processes] == [""] * 2


@pytest.mark.parametrize("batch", [0, 3, 4, 5, 17])
def test_all_stop_when_a_callback_of_a_user_in_the_main_process_wants_to(batch):
    processes = two_processes([None, None], [StopsTraining(batch), None])
    first, second = stopped_at(processes)
    assert first == second
    assert batch < first <= batch + 8
    assert [process.state.end_reason for process in processes] == [
        "the callback StopsTraining stopped the training",
        "a callback of process 0 stopped the training",
    ]


def test_a_signal_to_one_process_is_heard_by_all():
    network = Network()
    processes = [
        Process(network.all_reduce_max(number), lambda state, together: GracefulInterrupt(state, together=together))
        for number in range(2)
    ]
    interrupt = processes[1].callbacks[1]
    with interrupt:
        os.kill(os.getpid(), signal.SIGINT)
    assert not processes[1].state.interrupted  # it would leave the first one waiting
    assert stopped_at(processes) == [4, 4]
    assert [process.state.end_reason for process in processes] == ["interrupted"] * 2


def only_process(*arguments):
    """A process that is asked alone, and the values that it gave."""
    heard = []

    def all_reduce_max(value):
        heard.append(value)
        return lambda: value

    return Process(all_reduce_max, *arguments), heard


def test_a_wish_of_the_last_batches_is_heard_when_the_epoch_ends():
    process, heard = only_process(stops_at(2))
    for batch in range(3):
        process.begin(batch)
    assert not process.model.stop_training
    process.end_epoch()
    assert process.model.stop_training
    assert heard[:2] == [0, 1]  # the second one before anything is saved


def test_a_wish_while_the_epoch_ends_is_heard_before_the_next_one():
    process, heard = only_process(stops_at(None), StopsTraining())
    process.begin(0)
    process.end_epoch()
    assert process.model.stop_training
    assert process.state.end_reason == "the callback StopsTraining stopped the training"
    assert heard == [0, 0, NoticeStop.wish]


def test_a_loss_that_is_not_finite_is_an_error_at_the_same_batch_in_all():
    processes = two_processes([None, None])
    # The second process reads the loss later than the first.
    for batch in range(8):
        for process in processes:
            process.begin(batch)
        for number, process in enumerate(processes):
            process.end(batch, float("nan") if batch >= 2 + 100 * number else 1.0)
    with pytest.raises(FloatingPointError, match="The loss is nan after batch 5"):
        processes[0].begin(8)
    with pytest.raises(FloatingPointError, match="The message of another process names the batch"):
        processes[1].begin(8)


def test_the_end_of_the_budget_is_not_taken_for_that_of_a_users_callback():
    """All processes count the updates alike: if the main one asked the others to stop, they would be gone."""
    process, heard = only_process(stops_at(None), StopsTraining(99))
    process.begin(0)
    end_run(process.model, process.state, "the budget of 1 step is spent")
    process.end(0)
    assert (process.model.stop_training, heard) == (True, [0])


class Ending(EndsRun):
    """Notes that it has ended the run."""

    reason = "its wish decided"

    def __init__(self, wish, together, ended):
        self.wish, self.ended = wish, ended
        super().__init__(TrainingState(), together)

    def end(self):
        self.ended.append(self.wish)


@pytest.mark.parametrize("wishes", [(1, 3), (3, 1)])
def test_of_two_reasons_to_end_the_one_with_the_larger_wish_counts_whichever_came_first(wishes):
    """A signal, behind which a run should be resumed, does not become the end of the minutes that came later."""
    network, ended = Network(), []
    together = StopTogether(TrainingState(), network.all_reduce_max(0))
    for wish in wishes:
        Ending(wish, together, ended).request_stop()
    network.asked[1].append(0)  # the other process has no reason
    together.compare()
    assert ended == [3]


def test_of_two_callbacks_of_one_kind_the_one_that_asked_gives_the_reason():
    together, first, second = StopTogether(TrainingState(), lambda value: lambda: value), [], []
    asks, _ = Ending(3, together, first), Ending(3, together, second)
    asks.request_stop()
    together.compare()
    assert (first, second) == ([3], [])
