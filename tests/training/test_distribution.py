"""Training on several devices and in several processes is training on one; real processes, real signals."""

import contextlib
import io
import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap
import time
import types
import zipfile

import numpy as np
import processes
import pytest
import small_shards
import toy

from kformer.export.saved_model import export_saved_model
from kformer.inference import Model
from kformer.runs.folder import RunFolder
from kformer.tasks.translator import Translator
from kformer.training.distributed import ProcessGroup, initialize, lost_processes_explained, process_group
from kformer.training.distributed.broadcast import pack
from kformer.training.train import train

pytestmark = pytest.mark.tensorflow_only  # the processes choose their backends themselves
RESTART = "start all processes again with resume (`--resume`)"


def arrays(run: pathlib.Path) -> dict[str, np.ndarray]:
    with np.load(run / "checkpoint.npz") as file:
        return {name: file[name] for name in file.files if name != "state.json"}


def same_course(ours: pathlib.Path, theirs: pathlib.Path, but: tuple[str, ...] = ()) -> None:
    rows, others = processes.course(ours), processes.course(theirs)
    assert len(rows) == len(others) == 2
    for row, other in zip(rows, others, strict=True):
        assert row.pop("tokens") == other.pop("tokens")
        assert row.pop("val_tokens") == other.pop("val_tokens")
        for name in row.keys() - set(but):
            # A perplexity is the exponential of a loss.
            assert row[name] == pytest.approx(other[name], abs=1e-4, rel=1e-4 if "perplexity" in name else 0), name


def same_weights(ours: pathlib.Path, theirs: pathlib.Path) -> None:
    """The sums of the gradients have another order, so that last digits differ; the updates moved biases by 1e-3."""
    found, others = arrays(ours), arrays(theirs)
    names = [name for name in found if name.startswith("model")]
    for name in names:
        np.testing.assert_allclose(found[name], others[name], rtol=0, atol=1e-5, err_msg=name)
    assert len(names) > 20


def wait_for(path: pathlib.Path, group: list[subprocess.Popen]) -> None:
    deadline = time.monotonic() + 300
    while not path.exists():
        if time.monotonic() > deadline:
            processes.finish(*group, timeout=0)
        assert all(process.poll() is None for process in group), "\n\n".join(processes.finish(*group))
        time.sleep(0.05)


def test_several_processes_need_jax():
    with pytest.raises(ValueError, match="The backend is tensorflow. Set the environment variable KERAS_BACKEND=jax"):
        initialize("127.0.0.1:1", 2, 0)


def test_what_a_process_is_not_told_of_its_group_it_reads_from_keras_variables(monkeypatch):
    """Of the addresses of all processes, the first is that of process 0."""
    calls, ignored = [], types.SimpleNamespace(sync_global_devices=lambda name: None)
    distributed = types.SimpleNamespace(initialize=lambda *group, **seconds: calls.append(group))
    monkeypatch.setitem(sys.modules, "jax", types.SimpleNamespace(distributed=distributed))
    monkeypatch.setitem(sys.modules, "jax.experimental", types.SimpleNamespace(multihost_utils=ignored))
    monkeypatch.setattr("keras.backend.backend", lambda: "jax")
    monkeypatch.setattr("atexit.register", lambda function: None)
    for name, value in {"JOB_ADDRESSES": "first:9,second:9", "NUM_PROCESSES": "2", "PROCESS_ID": "1"}.items():
        monkeypatch.setenv(f"KERAS_DISTRIBUTION_{name}", value)
    initialize()
    initialize("other:7", 3, 0)
    assert calls == [("first:9", 2, 1), ("other:7", 3, 0)]


@pytest.mark.parametrize("number", [0, 99])
def test_more_devices_than_there_are_or_none_is_refused(number):
    with pytest.raises(ValueError, match=rf"devices must be from 1 to \d+, .* Received: devices={number}\."):
        process_group(number)


@pytest.mark.parametrize(
    ("number", "devices", "told"), [(1, 1, ""), (1, 4, ", 4 devices"), (2, 4, ", 4 devices in 2 processes")]
)
def test_devices_and_processes_are_told_where_there_are_several(number, devices, told):
    assert ProcessGroup(0, number, devices, contextlib.nullcontext).describe() == told


def test_the_others_get_what_a_resumed_run_reads_and_no_more(tmp_path):
    read = [
        *("SHA256SUMS", "checkpoint.npz", "corpus.json", "initial-embeddings.npz", "initial/best.weights.h5"),
        *("initial/tokenizer/shared/model.spm", "previous-checkpoint.npz", "tokenizer/source/tokenizer.json"),
        "training.json",
        "word-level-teacher/packed-weights.npz",
    ]
    for name in (*read, "lock", "log.csv", "best.weights.h5", "weights/step-000000002.weights.h5", "tensorboard/train"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    archive = io.BytesIO()
    pack(RunFolder(tmp_path), archive)
    with zipfile.ZipFile(archive) as packed:
        assert sorted(packed.namelist()) == read
        assert [packed.read(name).decode() for name in read] == read


def test_one_device_is_a_group_of_its_own():
    group = process_group(1)
    assert (group.rank, group.world_size, group.replicas, group.is_main) == (0, 1, 1, True)


@pytest.mark.slow
@pytest.mark.in_ci
@pytest.mark.usefixtures("untraced")
def test_a_run_keeps_the_multiple_of_rows_of_the_devices_that_it_began_on(tmp_path, monkeypatch):
    def on_devices(number):
        monkeypatch.setattr(
            "kformer.training.train.process_group", lambda devices: ProcessGroup(0, 1, number, contextlib.nullcontext)
        )

    corpus, training = toy.corpus(), processes.TRAINING.replace(max_steps=1, validation_steps=1)
    on_devices(2)
    run = train(corpus, tmp_path / "run", toy.TRANSFORMER, training.replace(batch_size_multiple=3)).run
    assert run.training_config().batch_size_multiple == 6
    on_devices(3)
    train(corpus, run.path, training=training.replace(max_steps=2), resume=True)
    assert run.training_config().batch_size_multiple == 6
    on_devices(4)
    with pytest.raises(ValueError, match="rows of a batch is a multiple of 6, .* Received: 4 devices.* divides 6"):
        train(corpus, run.path, resume=True)


TWO = """
    import sys
    from kformer.training.distributed import process_group, initialize
    from kformer.runs.folder import RunFolder

    initialize(sys.argv[1], 2, int(sys.argv[2]))
    group = process_group()
    assert (group.world_size, group.replicas) == (2, 2)

    run = RunFolder(sys.argv[3])
    if group.is_main:
        with group.failure_told():
            run.tokenizer_folder.mkdir(parents=True)
            (run.tokenizer_folder / "source.spm").write_text("pieces")
            run.transformer_file.write_text("sizes")
            run.checkpoint_file.write_bytes(bytes(range(256)) * 10)
            (run.path / "best.weights.h5").write_text("of no use to the others")
        group.send_run(run)
        print("made", group.all_reduce_max(10)(), group.all_reduce_max(0)())
    else:
        with group.received_run() as run:
            names = sorted(path.name for path in run.path.iterdir())
            assert names == ["checkpoint.npz", "tokenizer", "transformer.json"]
            assert run.checkpoint_file.read_bytes() == bytes(range(256)) * 10
            assert (run.tokenizer_folder / "source.spm").read_text() == "pieces"
            print("copied", group.all_reduce_max(9)(), group.all_reduce_max(-1)())
        assert not run.path.exists()
    try:
        if group.is_main:
            with group.failure_told():
                raise FileExistsError("there is a run already")
        with group.received_run():
            print("it was opened")
    except OSError as error:
        print(error)
"""


def test_the_others_get_the_run_from_process_0(tmp_path):
    # A part of the files at once.
    script = "from kformer.training.distributed import broadcast\nbroadcast._BYTES_AT_ONCE = 1000\n" + textwrap.dedent(
        TWO
    )
    address = processes.free_address()
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    group = [
        subprocess.Popen(
            [sys.executable, "-c", script, address, str(number), tmp_path / f"run-{number}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        for number in range(2)
    ]
    outputs = processes.finish(*group)
    assert "made 10 0\nthere is a run already" in outputs[0]
    assert "copied 10 0\nProcess 0 could not open the run. Its own output says why." in outputs[1]
    assert not (tmp_path / "run-1").exists()


LOGITS = """
    import sys
    import numpy as np
    from kformer.models import build_transformer
    from kformer.runs.folder import RunFolder
    from kformer.runs.weights import load_weights

    run = RunFolder(sys.argv[1])
    model = build_transformer(run.transformer_config())
    load_weights(run, model)
    np.save(sys.argv[3], model(dict(np.load(sys.argv[2]))))
"""


def logits_on_jax(run, folder, ids):
    """Of a run's best weights."""
    np.savez(folder / "ids.npz", **ids)
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    arguments = [run, folder / "ids.npz", folder / "logits.npy"]
    subprocess.run([sys.executable, "-c", textwrap.dedent(LOGITS), *map(str, arguments)], env=environment, check=True)
    return np.load(folder / "logits.npy")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "settings"),
    [
        pytest.param(2, {"ema_decay": 0.5, "monitor": "bleu", "scored_sources": 5}, marks=pytest.mark.in_ci),
        (4, {"gradient_accumulation_steps": 2}),
    ],
)
def test_processes_together_learn_what_one_learns(tmp_path, count, settings):
    """Dropout is on: its random numbers do not depend on who computes them. The corpus has many shards."""
    longest, program = small_shards.LONGEST, processes.SMALL_SHARDS
    files = processes.write_files(tmp_path / "files", longest, batch_size_multiple=count, **settings)
    processes.finish(processes.start(files, tmp_path / "one", program=program))  # it also prepares the corpus
    outputs = processes.finish(*processes.start_group(files, tmp_path / "group", count, program=program))
    assert f"{count} devices in {count} processes" in outputs[0]
    assert "8 steps: the budget of 8 steps is spent." in outputs[0]
    for number, output in enumerate(outputs[1:], start=1):
        assert not [line for line in output.splitlines() if "Gloo" not in line and line.strip()]
        assert not (tmp_path / f"group-of-{number}").exists()  # they write nothing
    same_course(tmp_path / "group", tmp_path / "one")
    same_weights(tmp_path / "group", tmp_path / "one")
    translator = Translator.from_run(tmp_path / "group")  # on TensorFlow
    source, target_in = np.random.default_rng(1).integers(3, 300, (2, 5, 7), "int32")
    ids = {"source": source, "target_in": target_in}
    logits = translator.model(ids)
    assert logits.numpy().std() > 0.01
    np.testing.assert_allclose(logits_on_jax(tmp_path / "group", tmp_path, ids), logits, atol=1e-4)
    exported = Model(export_saved_model(translator, tmp_path / "exported"))
    assert exported([b"one two"])[0][0].text == translator("one two")


def test_the_loss_of_a_process_is_told_though_another_error_hides_it(tmp_path, monkeypatch):
    leavings = []  # what the process would do at its end; this one is to live on
    monkeypatch.setattr("atexit.register", lambda function, status: leavings.append(status))
    group = ProcessGroup(rank=1, world_size=2, replicas=2, scope=contextlib.nullcontext)

    def step():
        try:
            raise ValueError("UNKNOWN: Gloo AllReduce failed: Connection reset by peer")
        finally:
            raise ValueError("Buffer has been deleted or donated.")

    told = r"Process 1 of 2 could not .* \(JAX says: UNKNOWN: Gloo AllReduce failed"
    with pytest.raises(ConnectionError, match=told), lost_processes_explained(group, tmp_path):
        step()
    with pytest.raises(ValueError, match="vocabulary"), lost_processes_explained(group, tmp_path):
        raise ValueError("The vocabulary is empty.")
    assert leavings == [75, 1]  # start again with resume; an error


@pytest.fixture(scope="module")
def files_of_60_steps(tmp_path_factory):
    training = {"max_steps": 60, "validation_steps": 20, "checkpoint_minutes": 0.0005}
    return processes.write_files(tmp_path_factory.mktemp("steps") / "files", **training)


@pytest.fixture(scope="module")
def whole(made_once, files_of_60_steps):
    """What two processes have learned that nothing stops."""
    return made_once("whole-of-two", lambda run: processes.finish(*processes.start_group(files_of_60_steps, run, 2)))


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_process_ends_the_others_and_the_run_goes_on_exactly(whole, files_of_60_steps, tmp_path, victim):
    files, run = files_of_60_steps, tmp_path / "killed"
    group = processes.start_group(files, run, 2)
    wait_for(run / "previous-checkpoint.npz", group)
    group[victim].send_signal(signal.SIGKILL)
    killed_at = time.monotonic()
    outputs = processes.finish(*group, code=None)
    assert time.monotonic() - killed_at < 60
    assert group[victim].returncode == -signal.SIGKILL
    assert group[1 - victim].returncode in (75, -signal.SIGABRT)  # JAX itself may end it
    assert all(RESTART in output for output in outputs)
    assert str(run) in outputs[0]
    finished = processes.finish(*processes.start_group(files, run, 2, "--resume"))
    assert "Going on from update" in finished[0]
    ours, theirs = arrays(run), arrays(whole)
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    assert processes.course(run) == processes.course(whole)


@pytest.mark.slow
def test_ctrl_c_in_one_process_saves_and_ends_all(tmp_path):
    files = processes.write_files(tmp_path / "files", max_steps=10**6)
    group = processes.start_group(files, tmp_path / "run", 2)
    wait_for(tmp_path / "run" / "checkpoint.npz", group)
    group[1].send_signal(signal.SIGINT)
    outputs = processes.finish(*group, code=75)
    assert "steps: interrupted." in outputs[0]
    steps = re.search(r"([0-9,]+) steps: interrupted", outputs[0])[1]
    last = ("--max-steps", int(steps.replace(",", "")) + 2)
    resumed = processes.finish(*processes.start_group(files, tmp_path / "run", 2, "--resume", *last))
    assert f"Going on from update {steps}." in resumed[0]
    processes.finish(*processes.start_group(files, tmp_path / "whole", 2, *last))
    ours, theirs = arrays(tmp_path / "run"), arrays(tmp_path / "whole")
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    assert processes.course(tmp_path / "run") == processes.course(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("receiver", [0, 1])
def test_sigterm_in_one_process_saves_and_ends_all(tmp_path, receiver):
    files = processes.write_files(tmp_path / "files", max_steps=10**6)
    group = processes.start_group(files, tmp_path / "run", 2)
    wait_for(tmp_path / "run" / "checkpoint.npz", group)
    group[receiver].send_signal(signal.SIGTERM)
    processes.finish(*group, code=None)
    assert (group[receiver].returncode, group[1 - receiver].returncode) == (-signal.SIGTERM, 75)


STOPS = """
    import sys
    import keras, processes, toy
    from kformer.training.distributed import initialize
    from kformer.training.train import train

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training |= batch == 2

    initialize(sys.argv[1], 2, int(sys.argv[2]))
    training = processes.TRAINING.replace(max_steps=10**6, validation_steps=100)
    report = train(toy.corpus(), sys.argv[3], processes.TRANSFORMER, training, callbacks=[Stop()])
    print(report.steps, report.reason)
"""


@pytest.mark.slow
def test_a_callback_of_a_user_in_process_0_ends_all_together(tmp_path):
    address, environment = processes.free_address(), {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    environment["PYTHONPATH"] = os.pathsep.join(["tests", *sys.path])
    group = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(STOPS), address, str(number), tmp_path / f"run-{number}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        for number in range(2)
    ]
    outputs = processes.finish(*group)
    # The third batch wants to stop; the fifth asks, the ninth reads the answer.
    assert outputs[0].splitlines()[-1] == "9 the callback Stop stopped the training"
    assert outputs[1].splitlines()[-1] == "9 a callback of process 0 stopped the training"


@pytest.mark.slow
def test_the_budget_of_minutes_ends_all_together(tmp_path):
    files = processes.write_files(tmp_path / "files", max_steps=None, max_minutes=0.01)
    outputs = processes.finish(*processes.start_group(files, tmp_path / "run", 2))
    assert "the budget of 0.01 minutes is spent" in outputs[0]


@pytest.mark.slow
def test_a_run_that_diverges_says_so_in_all_processes(tmp_path):
    files = processes.write_files(tmp_path / "files", max_steps=400, learning_rate_scale=1e30, validation_steps=200)
    for output in processes.finish(*processes.start_group(files, tmp_path / "run", 2), code=3):
        assert "kformer: " in output
        assert "finite" in output or "The loss is nan" in output
        assert "Traceback" not in output


@pytest.mark.slow
def test_two_devices_of_jax_learn_what_one_learns(tmp_path):
    files = processes.write_files(tmp_path / "files", batch_size_multiple=2)
    (output,) = processes.finish(processes.start(files, tmp_path / "two", devices=2))
    assert "jax, 2 devices" in output
    (output,) = processes.finish(processes.start(files, tmp_path / "one", "--devices", 1, devices=2))
    assert "jax, " not in output
    same_course(tmp_path / "two", tmp_path / "one")


COUNTS = """
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    import keras
    import numpy as np
    from kformer.training.distributed import process_group
    from kformer.training.callbacks import Checkpoint
    from kformer.training.checkpoints import TrainingState
    from kformer.metrics import TokenCount

    with process_group().scope():
        model = keras.Sequential([keras.Input((1,), dtype="int32"), keras.layers.Embedding(3, 3)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=[TokenCount()])
        batch = np.array([[1], [0]], "int32")  # one token to one replica, none to the other
        model.evaluate(batch, batch, verbose=0)
        metrics = [np.full(variable.shape, 7, variable.dtype) for variable in model.metrics_variables]
        checkpoint = Checkpoint(None, TrainingState(metrics=metrics))
        checkpoint.set_model(model)
        checkpoint.on_epoch_begin(0)
        print([variable.numpy().tolist() for variable in model.metrics_variables])
"""


def test_metrics_of_two_replicas_go_on_from_odd_numbers():
    (output,) = processes.finish(
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(COUNTS)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    )
    assert output.splitlines()[-1] == "[7.0, 7.0, 7]"


MIRRORED = """
    import pathlib, sys
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    import processes, toy
    from kformer.training.train import train

    folder, steps = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    training = processes.TRAINING.replace(batch_size_multiple=2, gradient_accumulation_steps=steps)
    transformer = processes.TRANSFORMER.replace(dropout_rate=0.0)  # every replica draws its own
    train(toy.corpus(), folder / "one", transformer, training, devices=1)
    train(toy.corpus(), folder / "two", transformer, training.replace(max_steps=4))
    train(toy.corpus(), folder / "two", training=training, resume=True, samples=["one two"])
"""


@pytest.mark.slow  # in CI, those of test_optimizers.py stand for it
@pytest.mark.parametrize("accumulation", [1, 3])
def test_two_devices_of_tensorflow_learn_what_one_learns(tmp_path, accumulation):
    command = [sys.executable, "-c", textwrap.dedent(MIRRORED), tmp_path, str(accumulation)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(["tests", *sys.path]), "KERAS_BACKEND": "tensorflow"}
    (output,) = processes.finish(
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    )
    assert output.count("tensorflow, 2 devices") == 2
    same_course(tmp_path / "two", tmp_path / "one", but=("gradient_norm",))  # of one replica's share
