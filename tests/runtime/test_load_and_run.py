"""An export in a program of C, which loads it as TensorFlow Serving does and runs it from several threads."""

import json
import pathlib
import shutil
import subprocess

import hostile
import pytest
import tensorflow as tf
import tensorflow_text
import toy

from kformer.export.operations import read
from kformer.export.saved_model import save_for_this_machine
from kformer.models import build_transformer
from kformer.tasks.translator import Translator
from kformer.tokenizers import SymbolTokenizer, WordTokenizer

SOURCE = pathlib.Path(__file__).parents[1] / "serving" / "load_and_run.c"
TENSORFLOW = pathlib.Path(tf.__file__).parent
OPERATIONS = sorted(map(str, (pathlib.Path(tensorflow_text.__file__).parent / "python").glob("*/*.so")))
THREADS, REQUESTS = 4, 1000
# By tokenizer, the libraries of tensorflow-text that docs/exporting.md names.
LIBRARIES = {
    "sentencepiece": ["_sentencepiece_tokenizer.so", "_normalize_ops.so"],
    "words": ["_normalize_ops.so", "_regex_split_ops.so"],
    "symbols": [],
}
GROWTH_KIB = 12 * 1024  # the allocator keeps some memory for each thread; a leak of 16 KiB a request would be 12 MiB
OPTIONS = {
    "target_prefix": tf.constant(["dos"]),
    "tag": tf.constant([""]),
    "length_penalty": tf.constant(1.5),
    "max_length": tf.constant(4),
    "min_length": tf.constant(2),
    "temperature": tf.constant(0.5),
    "top_k": tf.constant(3),
    "top_p": tf.constant(0.75),
    "seed": tf.constant(2**40 + 7, tf.int64),
}

pytestmark = [
    pytest.mark.tensorflow_only,
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("program") / "load_and_run"
    libraries = ["-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2", "-lpthread", "-lm"]
    places = [f"-I{TENSORFLOW / 'include'}", f"-L{TENSORFLOW}", f"-Wl,-rpath,{TENSORFLOW}"]
    subprocess.run(
        ["cc", "-O1", "-D_GNU_SOURCE", "-Wall", str(SOURCE), *places, *libraries, "-o", str(path)], check=True
    )
    return path


@pytest.fixture(scope="module")
def exported(numbers_export):
    return numbers_export / "1"


def word(value) -> str:
    return f"x{value.hex()}" if isinstance(value, bytes) else f"{float(value):.9g}"


def words_of_input(tensor) -> list[str]:
    if tensor.dtype == tf.string:
        return ["string", str(len(tensor)), *map(word, tensor.numpy().tolist())]
    return ["float" if tensor.dtype == tf.float32 else tensor.dtype.name, repr(tensor.numpy().item())]


def write_cases(
    path: pathlib.Path, saved_model: pathlib.Path, batches: list[list[bytes]], signatures: set[str] | None = None
) -> None:
    """What Python's TensorFlow answers to every batch, for these signatures or all."""
    (meta_graph,) = read(saved_model).meta_graphs
    loaded = tf.saved_model.load(str(saved_model))
    lines = []
    chosen = {name: function for name, function in loaded.signatures.items() if name in (signatures or {name})}
    for number, (name, function) in enumerate(chosen.items()):
        described = meta_graph.signature_def[name]
        inputs, outputs = dict(sorted(described.inputs.items())), dict(sorted(described.outputs.items()))
        tensors = [tensor.name.replace(":", " ") for tensor in (*inputs.values(), *outputs.values())]
        lines.append(f"signature {name} {len(inputs)} {len(outputs)} {' '.join(tensors)}")
        for texts in batches:
            text = tf.constant(texts, tf.string, shape=[len(texts)])
            given = {"text": text, "translation": tf.strings.reduce_join([text, text], axis=0), **OPTIONS}
            found = function(**{key: given[key] for key in inputs})
            words = [part for key in inputs for part in words_of_input(given[key])]
            for key in outputs:
                values = tf.reshape(found[key], [-1]).numpy().tolist()
                words += [str(len(values)), *map(word, values)]
            lines.append(f"case {number} {' '.join(words)}")
    path.write_text("\n".join(lines) + "\n")


def run(program, saved_model, cases, requests=REQUESTS):
    answer = start(program, saved_model, cases, requests, OPERATIONS)
    assert answer.returncode == 0, answer.stderr[-2000:]
    return json.loads(answer.stdout.splitlines()[-1])


def start(program, saved_model, cases, requests, libraries):
    command = [program, saved_model, cases, THREADS, requests, *libraries]
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_every_signature_answers_thousands_of_requests_from_several_threads(program, exported, tmp_path):
    sources = [source.encode() for source, _ in toy.corpus().test]
    batches = [[], sources[:1], sources[1:4], sources[4:11], hostile.BY_HAND[:6], [b"one two\n\nthree"]]
    write_cases(tmp_path / "cases", exported, batches)
    found = run(program, exported, tmp_path / "cases")
    assert (found["requests"], found["wrong"]) == (REQUESTS, 0)
    assert found["end_kib"] - found["quarter_kib"] < GROWTH_KIB


@pytest.mark.slow
def test_the_program_tells_a_wrong_answer(program, exported, tmp_path):
    write_cases(tmp_path / "cases", exported, [[b"one two"], [b"six"]], {"serving_default"})
    cases = (tmp_path / "cases").read_text()
    assert b"dos uno".hex() in cases
    (tmp_path / "cases").write_text(cases.replace(b"dos uno".hex(), b"dos dos".hex(), 1))
    found = run(program, exported, tmp_path / "cases", requests=30)
    assert 0 < found["wrong"] < 30


@pytest.fixture(scope="module")
def exported_with(numbers_plain_export, tmp_path_factory):
    """An export for each kind of tokenizer."""

    def made(kind):
        if kind == "sentencepiece":
            return numbers_plain_export / "1"
        tokenizer = {"words": WordTokenizer, "symbols": SymbolTokenizer}[kind](["one", "two"])
        config = toy.TRANSFORMER.replace(source_vocab_size=tokenizer.vocab_size, target_vocab_size=tokenizer.vocab_size)
        folder = tmp_path_factory.mktemp(kind)
        save_for_this_machine(Translator(build_transformer(config), config, tokenizer, tokenizer), folder, n_best=1)
        return folder

    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [pytest.param("sentencepiece", marks=pytest.mark.in_ci), *(kind for kind in LIBRARIES if kind != "sentencepiece")],
)
def test_an_export_needs_the_libraries_of_its_tokenizer_and_no_others(program, exported_with, tmp_path, kind):
    saved_model = exported_with(kind)
    write_cases(tmp_path / "cases", saved_model, [[b"one two"]])
    needed = [library for library in OPERATIONS if pathlib.Path(library).name in LIBRARIES[kind]]
    assert len(needed) == len(LIBRARIES[kind])
    answer = start(program, saved_model, tmp_path / "cases", 8, needed)
    assert answer.returncode == 0, answer.stderr[-2000:]
    assert json.loads(answer.stdout.splitlines()[-1])["wrong"] == 0
    for left_out in needed:
        others = [library for library in needed if library != left_out]
        answer = start(program, saved_model, tmp_path / "cases", 8, others)
        assert answer.returncode == 1
        assert "Op type not registered" in answer.stderr
