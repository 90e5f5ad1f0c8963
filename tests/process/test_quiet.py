"""TensorFlow starts without messages where kformer is imported first, and nothing else is lost.

Most tests import a module that only plays TensorFlow: what the real one writes depends on version and machine.
"""

import logging
import os
import pathlib
import signal
import subprocess
import sys
import threading
import types

import pytest

import kformer

LINES = {
    "I": "I0000 00:00:1795410798.477801   28888 port.cc:153] oneDNN custom operations are on.",
    "I, older form": "2026-11-23 05:13:57.522249: I external/local_xla/cudart_stub.cc:31] Could not find cuda drivers.",
    "W": "W0000 00:00:1795410798.477801   28888 computation_placer.cc:177] computation placer already registered.",
    "E": "E0000 00:00:1795410798.477801   28888 cuda_dnn.cc:8579] Unable to register cuDNN factory.",
    "E, older form": "2026-11-23 05:14:06.888599: E external/local_xla/cuda_platform.cc:51] failed call to cuInit.",
    "absl": "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
    "CPU": "To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow.",
    "F": "F0000 00:00:1795410798.477801   28888 cpu_feature_guard.cc:42] TensorFlow needs AVX instructions.",
    "anything": "Illustrations: I0000 and an I at a line's begin are no message.",
}
FAKE = f"""
import os, sys
for line in {list(LINES.values())!r}:
    os.write(2, line.encode() + b"\\n")  # as C++ code does
print("from Python", file=sys.stderr)
"""


WITHOUT_A_MODULE = """
import importlib.util, sys
from kformer.process.import_hooks import ImportHook
ImportHook("absent", None).install()
assert importlib.util.find_spec("absent") is None
try:
    import absent
except ImportError:
    print("told")
"""


def test_a_module_that_is_not_there_is_told_as_without_a_hook():
    done = subprocess.run([sys.executable, "-c", WITHOUT_A_MODULE], capture_output=True, text=True, check=True)
    assert done.stdout == "told\n"


def start(folder: pathlib.Path, program: str, fake: str, **environment: str) -> subprocess.Popen[str]:
    """Begins a program in a process in which `import tensorflow` executes `fake`."""
    (folder / "tensorflow.py").write_text(fake)
    paths = [str(folder), str(pathlib.Path(kformer.__file__).parents[1])]
    inherited = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env={**inherited, "PYTHONPATH": os.pathsep.join(paths), **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(folder: pathlib.Path, program: str, fake: str = FAKE, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the program of `start` to its end."""
    with start(folder, program, fake, **environment) as process:
        written, errors = process.communicate()
    return subprocess.CompletedProcess(program, process.returncode, written, errors)


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        (None, {"F", "anything"}),
        ("3", {"F", "anything"}),
        ("2", {"E", "E, older form", "F", "anything"}),
        ("1", {"W", "E", "E, older form", "F", "anything"}),
        ("0", set(LINES)),
        ("", set(LINES)),
        ("high", set(LINES)),
    ],
)
def test_the_log_level_holds_during_the_import_too(level: str | None, shown: set[str], tmp_path: pathlib.Path) -> None:
    environment = {} if level is None else {"TF_CPP_MIN_LOG_LEVEL": level}
    result = run(tmp_path, "import kformer, tensorflow", **environment)
    expected = [line for name, line in LINES.items() if name in shown]
    assert result.stderr.splitlines() == [*expected, "from Python"]
    assert result.returncode == 0


def test_after_the_import_everything_is_written(tmp_path: pathlib.Path) -> None:
    program = f"import os, kformer, tensorflow\nos.write(2, {LINES['E'].encode()!r})"
    assert run(tmp_path, program, fake="").stderr == LINES["E"]


def test_a_crash_of_the_process_does_not_hide_its_reason(tmp_path: pathlib.Path) -> None:
    result = run(tmp_path, "import kformer, tensorflow", fake=f"{FAKE}\nos.abort()")
    assert result.returncode == -signal.SIGABRT
    assert result.stderr.splitlines() == [LINES["F"], LINES["anything"], "from Python"]


def test_a_failed_import_is_told(tmp_path: pathlib.Path) -> None:
    result = run(tmp_path, "import kformer, tensorflow", fake="raise ImportError('undefined symbol')")
    assert result.returncode == 1
    assert result.stderr.startswith("Traceback")
    assert result.stderr.endswith("ImportError: undefined symbol\n")


def test_the_module_is_found_as_ever(tmp_path: pathlib.Path) -> None:
    program = "import kformer, tensorflow\nprint(tensorflow.__name__, tensorflow.__file__, tensorflow.__loader__.name)"
    assert run(tmp_path, program, fake="").stdout.split() == [
        "tensorflow",
        str(tmp_path / "tensorflow.py"),
        "tensorflow",
    ]


def test_lines_are_written_at_once(tmp_path: pathlib.Path) -> None:
    fake = f"import os, sys\nos.write(2, {LINES['F'].encode()!r} + b'\\n')\nsys.stdin.read()"
    with start(tmp_path, "import kformer, tensorflow", fake) as process:
        timer = threading.Timer(20, process.kill)
        timer.start()
        assert process.stderr.readline() == LINES["F"] + "\n"
        assert process.poll() is None  # it waits for its input, still within the import
        process.communicate("")
        timer.cancel()
    assert process.returncode == 0


def test_without_grep_everything_is_written(tmp_path: pathlib.Path) -> None:
    result = run(tmp_path, "import kformer, tensorflow", PATH="")
    assert result.stderr.splitlines() == [*LINES.values(), "from Python"]
    assert result.returncode == 0


def test_the_environment_stays_where_tensorflow_is_there_already(tmp_path: pathlib.Path) -> None:
    program = "import {}, {}, os; print(os.environ.get('TF_CPP_MIN_LOG_LEVEL'))"
    assert run(tmp_path, program.format("tensorflow", "kformer"), fake="").stdout == "None\n"
    assert run(tmp_path, program.format("kformer", "tensorflow"), fake="").stdout == "3\n"


SCRIPT = """
import kformer
from kformer.data import encode_pairs
from kformer.tokenizers import SentencePieceTokenizer, SymbolTokenizer

translator = kformer.Translator.from_preset("cmudict")
assert translator(["h e l l o", "w o r l d"]) == [translator("h e l l o"), translator("w o r l d")]
texts = [f"{n} foxes, {n} dogs" for n in range(50)]
model = SentencePieceTokenizer.train(texts, 280).model_bytes
for n in range(6):
    pieces, symbols = SentencePieceTokenizer(model), SymbolTokenizer(["a", "b"])
    for _ in range(2):
        assert encode_pairs([(texts[n], "a b")], pieces, symbols, max_length=40).kept == 1
    assert pieces.normalize([texts[n]]).numpy()[0].decode() == texts[n]
"""


@pytest.mark.slow
@pytest.mark.tensorflow_only
def test_a_script_with_the_real_tensorflow_writes_nothing_to_standard_error(tmp_path: pathlib.Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(kformer.__file__).parents[1])}
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
    command = [sys.executable, str(tmp_path / "script.py")]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.tensorflow_only
@pytest.mark.parametrize(("of_kformer", "warnings"), [(True, 0), (False, 2)])
def test_tensorflow_warns_of_functions_that_are_traced_too_often_but_not_of_those_of_predictors(of_kformer, warnings):
    import tensorflow as tf

    from kformer.text.model_function import model_function

    class Predictor:
        model = types.SimpleNamespace(weights=[])

        @model_function([tf.TensorSpec([], tf.string)])
        def function(self, text):
            return text

    class Mine:
        def answer(self, text):
            return text

    told = []
    handler = logging.Handler()
    handler.emit = told.append
    tf.get_logger().addHandler(handler)
    try:
        for _ in range(6):
            (Predictor().function if of_kformer else tf.function(Mine().answer))(tf.constant("one"))
    finally:
        tf.get_logger().removeHandler(handler)
    assert len(told) == warnings
