"""The C API client runs a SavedModel whose tokenizer, table and variable a loader has to bring to life."""

import base64
import concurrent.futures
import io
import json
import re
import subprocess
import sys

import numpy as np
import pytest

from kformer.runtime.c_api import SavedModel, SavedModelError

pytestmark = pytest.mark.tensorflow_only

TEXTS = ["", "a cat", "the cat sat", "überall 猫 sat"]


def run_client(directory, stdin):
    return subprocess.run(
        [sys.executable, "-m", "kformer.runtime.c_api", str(directory)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture(scope="module")
def saved_model(tmp_path_factory):
    """Pieces of the text joined by blanks, "cat" translated by a table; the score is a variable times their number."""
    import sentencepiece
    import tensorflow as tf
    import tensorflow_text

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the cat sat on the mat", "a cat", "überall sat a cat"] * 5),
        model_writer=model,
        vocab_size=290,
        model_type="bpe",
        byte_fallback=True,
        minloglevel=2,
    )

    class Model(tf.Module):
        def __init__(self):
            super().__init__()
            self.tokenizer = tensorflow_text.SentencepieceTokenizer(model=model.getvalue())
            self.table = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(["cat"], ["chat"]), default_value="?"
            )
            self.weight = tf.Variable(-0.25)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
        def translate(self, text):
            text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", replacement_char=ord("?"))
            ids = self.tokenizer.tokenize(text)
            words = tf.strings.split(self.tokenizer.detokenize(ids))
            known = tf.where(words.flat_values == "cat", self.table.lookup(words.flat_values), words.flat_values)
            translation = tf.strings.reduce_join(words.with_flat_values(known), axis=-1, separator=" ")
            return {"translation": translation, "score": self.weight * tf.cast(ids.row_lengths(), tf.float32)}

    directory = tmp_path_factory.mktemp("saved_model")
    module = Model()
    expected = module.translate(TEXTS)
    tf.saved_model.save(module, str(directory), signatures=module.translate)
    return directory, expected


def test_translates_as_the_python_module_does(saved_model):
    directory, expected = saved_model
    process = run_client(directory, json.dumps([TEXTS]))
    assert process.returncode == 0, process.stderr
    (result,) = json.loads(process.stdout)
    assert result["translation"] == ["", "a chat", "the chat sat", "überall 猫 sat"]
    np.testing.assert_allclose(result["score"], expected["score"])
    assert result["score"][0] == 0 > result["score"][1]


def test_takes_bytes_and_long_strings_and_an_empty_list(saved_model):
    directory, _ = saved_model
    long = "cat " * 1000  # Longer than the 22 bytes that a TF_TString holds in place.
    invalid = {"b64": base64.b64encode(b"the\xff cat").decode()}  # 0xFF is never UTF-8; this model writes ? for it.
    result, nothing = json.loads(run_client(directory, json.dumps([[long, invalid], []])).stdout)
    assert result["translation"] == [" ".join(["chat"] * 1000), "the? chat"]
    assert nothing == {"translation": [], "score": []}


def test_says_why_a_model_cannot_be_loaded(tmp_path):
    process = run_client(tmp_path / "nothing", "[]")
    assert process.returncode != 0
    assert re.search(r"No such file or directory: .*nothing", process.stderr)


def test_neither_tensorflow_nor_keras_is_imported(saved_model):
    directory, _ = saved_model
    code = (
        "import sys; from kformer.runtime.c_api import SavedModel; "
        f"print(SavedModel({str(directory)!r})([b'a cat'])['translation']); "
        "print(sorted({'tensorflow', 'keras', 'tensorflow_text'} & set(sys.modules)))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines() == ["[b'a chat']", "[]"]
    assert answer.stderr == ""


def test_many_threads_may_call_at_once(saved_model):
    directory, _ = saved_model
    model = SavedModel(directory)
    texts = [[b"cat " * number] * 3 for number in range(1, 41)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(model, texts))
    for number, outputs in enumerate(found, 1):
        assert list(outputs["translation"]) == [b" ".join([b"chat"] * number)] * 3


def test_it_works_beside_python_tensorflow_and_gives_the_same(saved_model):
    directory, expected = saved_model  # Made by Python's TensorFlow, in this process.
    found = SavedModel(directory)([text.encode() for text in TEXTS])
    np.testing.assert_allclose(found["score"], expected["score"])


@pytest.fixture(scope="module")
def sums(tmp_path_factory):
    """Two signatures with inputs and outputs of several types and ranks."""
    import tensorflow as tf

    module = tf.Module()
    module.weight = tf.Variable(10)

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.int32, name="a"), tf.TensorSpec([], tf.int32, name="b")])
    def add(a, b):
        return {"sum": a + b * module.weight, "large": a > 5}

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.string, name="words")])
    def join(words):
        return {"text": tf.strings.reduce_join(words, axis=1), "words": words}

    directory = tmp_path_factory.mktemp("sums")
    tf.saved_model.save(module, str(directory), signatures={"serving_default": add, "join": join})
    return directory


def test_every_signature_runs_with_its_own_inputs_and_types(sums):
    model = SavedModel(sums)
    assert {*model.signatures} == {"serving_default", "join"}
    a = np.arange(6, dtype="int32").reshape(2, 3)
    found = model.run("serving_default", {"b": np.array(2, "int32"), "a": a})
    assert found["sum"].tolist() == [[20, 21, 22], [23, 24, 25]]
    assert found["large"].dtype == bool
    assert found["large"].tolist() == [[False] * 3, [False] * 3]
    words = np.array([[b"x", b"yz"], [b"", b"w" * 100]], object)
    found = model.run("join", {"words": words})
    assert found["text"].tolist() == [b"xyz", b"w" * 100]
    assert found["words"].tolist() == words.tolist()


@pytest.mark.parametrize(
    ("signature", "inputs", "message"),
    [
        ("nothing", {}, "There is no signature 'nothing'. The model has: join, serving_default."),
        ("join", {"word": np.zeros((1, 1), object)}, "Expected the inputs words of the signature join. Received: word"),
        ("join", {"words": np.zeros(3, "float32")}, "string"),
    ],
)
def test_wrong_inputs_are_refused_as_invalid(sums, signature, inputs, message):
    with pytest.raises(SavedModelError, match=message) as refused:
        SavedModel(sums).run(signature, inputs)
    assert refused.value.code == 3  # INVALID_ARGUMENT


def test_a_model_that_takes_more_than_texts_is_not_called_with_texts(sums):
    with pytest.raises(SavedModelError, match="Expected a signature with one input, the texts. Received: "):
        SavedModel(sums)([b"a"])


def test_a_foreign_model_is_refused_when_it_is_loaded(sums):
    from kformer.inference import Model

    with pytest.raises(ValueError, match="cannot be loaded: Expected a signature with one input, the texts"):
        Model(sums).load()


def test_numbers_of_16_bits_are_computed_and_other_types_are_refused(tmp_path):
    """float16 and uint16 have types of NumPy's own; bfloat16 has none."""
    import tensorflow as tf

    module = tf.Module()
    for dtype in (tf.float16, tf.uint16, tf.bfloat16):
        spec = tf.TensorSpec([None], dtype, name="x")
        setattr(module, dtype.name, tf.function(lambda x: {"y": x + x}, input_signature=[spec]))
    signatures = {name: getattr(module, name) for name in ("float16", "uint16", "bfloat16")}
    tf.saved_model.save(module, str(tmp_path), signatures=signatures)
    model = SavedModel(tmp_path)
    for dtype in (np.float16, np.uint16):
        found = model.run(np.dtype(dtype).name, {"x": np.array([1, 40], dtype)})["y"]
        assert (found.dtype, found.tolist()) == (dtype, [2, 80])
    with pytest.raises(SavedModelError, match="Expected inputs of .*float16.*Received: bfloat16") as refused:
        model.run("bfloat16", {"x": np.array([1], tf.bfloat16.as_numpy_dtype)})
    assert refused.value.code == 12  # UNIMPLEMENTED


@pytest.mark.parametrize("threads", [1, 127, 128, 300])
def test_any_number_of_threads_is_taken(sums, threads):
    assert SavedModel(sums, threads).signatures


def test_inputs_may_be_views_whose_numbers_do_not_lie_side_by_side(sums):
    columns = np.arange(6, dtype="int32").reshape(3, 2).T
    found = SavedModel(sums).run("serving_default", {"a": columns, "b": np.array(1, "int32")})
    assert found["sum"].tolist() == [[10, 12, 14], [11, 13, 15]]
