"""Every way in meets every form of the same texts: the same answers, or words that name the form and the remedy.

The models are not trained: their answers only have to depend on what they read.
"""

import gzip
import json
import lzma
import random

import numpy as np
import pytest
import tensorflow as tf
import toy
from servers import grpc_predict, running
from typer.testing import CliRunner

from kformer.cli.main import app
from kformer.config import DecodingConfig, answer_outputs
from kformer.export.saved_model import save_for_this_machine
from kformer.inference import load
from kformer.models import build_model
from kformer.tasks import Classifier, LanguageModel, Tagger
from kformer.tasks.translator import Translator
from kformer.text.model_function import text_tensor
from kformer.tokenizers import SymbolTokenizer, WordTokenizer

pytestmark = pytest.mark.tensorflow_only

TEXTS = ["one two año six", "three one two año", "two"]
OTHER_TEXTS = ["six one two", "año", "three"]
TEXT = "\n".join(TEXTS) + "\n"
TASKS = {"translate": "translate", "classify": "classify", "tag": "tag", "generate": "language-model"}  # by command
SCORES = {"translate": [], "classify": ["--format", "tsv"], "tag": ["--format", "tsv"], "generate": []}
SAME = {
    "plain": TEXT.encode(),
    "BOM": TEXT.encode("utf-8-sig"),
    "gz": gzip.compress(TEXT.encode()),
    "xz": lzma.compress(TEXT.encode()),
    "UTF-16": TEXT.encode("utf-16"),
    "CR": TEXT.replace("\n", "\r").encode(),
}
NO_UTF_8 = "kformer: warning: {name}: {lines} with bytes that are not text in UTF-8; .* The first is line 1: byte "
TOLD = {
    "CP1252": (TEXT.encode("cp1252"), "2 lines", r"0xf1 at .* Convert the file, such as by iconv -f CP1252 -t UTF-8"),
    "NUL": (TEXT.replace("one ", "one\0 ").encode(), "2 lines", r"0x00 at position 4 is a NUL, .* Remove the NULs"),
}
REFUSED = {
    "half a gz": (
        gzip.compress(TEXT.encode())[:-9],
        "gzip data are damaged or incomplete .* Copy or download the file",
    ),
    "zip": (b"PK\x03\x04" + bytes(26), "is compressed by zip, which is not read. Decompress it first"),
    "UTF-16 without a mark": (
        TEXT.encode("utf-16-be"),
        "looks like UTF-16BE .* iconv -f UTF-16BE -t UTF-8",
    ),
}


@pytest.fixture(scope="module")
def predictors():
    """A model of each task, by the command that uses it."""
    random.seed(20)  # Keras takes the seeds of first weights from it
    words, labels = WordTokenizer(sorted(set(TEXT.split()))), SymbolTokenizer(["even", "odd"])
    decoding = DecodingConfig(beam_size=1, max_extra_length=4)

    def model(command, tokenizer):
        sizes = {"source_vocab_size": words.vocab_size, "target_vocab_size": tokenizer.vocab_size}
        config = toy.TRANSFORMER.replace(embedding_tying="target", task=TASKS[command], **sizes)
        built = build_model(config)
        for weight in built.trainable_weights:
            weight.assign(3 * weight)  # so that answers differ
        return built, config

    return {
        "translate": Translator(*model("translate", words), words, words, decoding),
        "classify": Classifier(*model("classify", labels), words, labels, decoding),
        "tag": Tagger(*model("tag", labels), words, labels, decoding),
        "generate": LanguageModel(*model("generate", words), words, decoding),
    }


@pytest.fixture(scope="module")
def saved(predictors, tmp_path_factory):
    """The folder with a SavedModel of each, which is loaded once."""
    folder = tmp_path_factory.mktemp("saved")
    for name, predictor in predictors.items():
        (folder / name / "1").mkdir(parents=True)
        save_for_this_machine(predictor, folder / name / "1", n_best=1)
    models, read = {}, load.load_saved_model

    def read_once(path, *arguments):
        if path not in models:
            models[path] = read(path, *arguments)
        return models[path]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load, "load_saved_model", read_once)
        yield folder


@pytest.fixture(scope="module")
def served(saved):
    from kformer.serving.model_settings import ModelSettings
    from kformer.serving.settings import Limits, ServerSettings

    models = [ModelSettings(path.name, path) for path in saved.iterdir()]
    limits = Limits(seconds=120)  # a busy machine needs long for its first answers
    with running(ServerSettings(models, rest_port=0, grpc_port=0, limits=limits)) as server:
        yield server


@pytest.fixture
def invoke(saved, tmp_path):
    """Runs a command on a file, or on standard input, with these bytes."""

    def run(command, way, content):
        source, target = tmp_path / "in", tmp_path / "out"
        source.write_bytes(content)
        target.unlink(missing_ok=True)
        files = ["--output", str(target), *(["--input", str(source)] if way == "file" else [])]
        words = [command, str(saved / command), *SCORES[command], *files]
        result = CliRunner().invoke(app, words, input=content, catch_exceptions=False)
        assert result.exit_code == 0
        return target.read_text("utf-8").splitlines(), result.stderr

    run.name = {"file": str(tmp_path / "in"), "stdin": "standard input"}
    return run


@pytest.mark.slow
@pytest.mark.in_ci
@pytest.mark.parametrize("command", TASKS)
def test_the_answers_depend_on_the_texts(command, invoke):
    answers, _ = invoke(command, "file", TEXT.encode())
    others, _ = invoke(command, "file", "\n".join(OTHER_TEXTS).encode())
    assert len(answers) == len(others) == 3
    assert answers != others


@pytest.mark.parametrize("form", SAME)
@pytest.mark.parametrize("way", ["file", "stdin"])
@pytest.mark.parametrize("command", TASKS)
def test_commands_answer_the_same(command, way, form, invoke):
    expected, _ = invoke(command, "file", TEXT.encode())
    assert invoke(command, way, SAME[form]) == (expected, "")


@pytest.mark.parametrize("form", TOLD)
@pytest.mark.parametrize("way", ["file", "stdin"])
@pytest.mark.parametrize("command", TASKS)
def test_commands_tell_what_they_cannot_read(command, way, form, invoke):
    content, lines, fault = TOLD[form]
    answers, told = invoke(command, way, content)
    assert len(answers) == len(TEXTS)
    with pytest.raises(ValueError, match=NO_UTF_8.format(name=invoke.name[way], lines=lines) + fault):
        raise ValueError(told)


@pytest.mark.parametrize("form", REFUSED)
@pytest.mark.parametrize("way", ["file", "stdin"])
@pytest.mark.parametrize("command", TASKS)
def test_commands_refuse_what_is_damaged_or_of_another_kind(command, way, form, invoke, tmp_path):
    content, message = REFUSED[form]
    with pytest.raises(ValueError, match=f"{invoke.name[way]}.*{message}"):
        invoke(command, way, content)
    assert not (tmp_path / "out").exists()


# In Python, by REST and by gRPC, where texts come one by one

SAME_TEXTS = {
    "BOM": ["\ufeff" + text for text in TEXTS],
    "U+FEFF inside": [text.replace(" ", "\ufeff") for text in TEXTS],
    "CR": [text.replace(" ", "\r") + "\r\n" for text in TEXTS],
}
TOLD_TEXTS = {
    "gz": (
        [gzip.compress(text.encode()) for text in TEXTS],
        3,
        r"0: .* compressed by gzip. Decompress",
    ),
    "xz": ([lzma.compress(text.encode()) for text in TEXTS], 3, r"0: .* compressed by xz. Decompress and decode them"),
    "UTF-16": ([text.encode("utf-16") for text in TEXTS], 3, r"0: .* bytes of UTF-16LE. .* text.decode\(\"utf-16\"\)"),
    "CP1252": (
        [text.encode("cp1252") for text in TEXTS],
        2,
        r"0: byte 0xf1 at .* text.decode\(\"cp1252\"\)",
    ),
    "NUL": (["two", "two\0one"], 1, r"1: character 4 is a NUL, which no text has. Remove it"),
    "NUL at the beginning": (["\0two", "one"], 1, r"0: character 1 is a NUL"),
    "surrogate": (["two", "two \udc41one"], 1, r"1: character 5 is half of a surrogate pair, which is no character"),
    "UTF-8 mark and CP1252": ([b"\xef\xbb\xbftwo \xf1", b"one"], 1, r"0: byte 0xf1 at .* text.decode\(\"cp1252\"\)"),
}


# The other two read their texts by the same function, and their searches take long to trace.
@pytest.mark.parametrize("keep", [[], ["--keep", "id"]])
def test_two_fields_are_the_two_texts_of_a_classifier(saved, tmp_path, keep):
    rows = [(first, second) for first in ("one two", "three") for second in ("three one", "two two")]
    table, lines = tmp_path / "pairs.csv", tmp_path / "pairs.txt"
    table.write_text(
        "id,b,a\n" + "".join(f"{number},{second},{first}\n" for number, (first, second) in enumerate(rows))
    )
    lines.write_text("".join(f"{first}\t{second}\n" for first, second in rows))

    def probabilities(*words):
        words = ["classify", str(saved / "classify"), "--format", "jsonl", *map(str, words)]
        found = CliRunner().invoke(app, words, catch_exceptions=False)
        return [json.loads(line)["probability"] for line in found.stdout.splitlines()]

    expected = probabilities("--input", lines)
    assert len({*expected}) == 4
    assert probabilities("--input", table, "--fields", "a,b", *keep) == expected


def test_a_classifier_of_single_texts_refuses_two_fields(tmp_path):
    (tmp_path / "pairs.csv").write_text("a,b\none,two\n")
    words = ["classify", "--preset", "bible-books", "--input", str(tmp_path / "pairs.csv"), "--fields", "a,b"]
    with pytest.raises(ValueError, match="has learned from single texts. Received: --fields a,b, which names two"):
        CliRunner().invoke(app, words, catch_exceptions=False)


PYTHON = ["classify", "tag"]


@pytest.mark.parametrize("form", SAME_TEXTS)
@pytest.mark.parametrize("command", PYTHON)
def test_python_answers_the_same(command, form, predictors):
    predictor, name = predictors[command], answer_outputs(TASKS[command])[1]
    texts, same = text_tensor(TEXTS), text_tensor(SAME_TEXTS[form])
    np.testing.assert_allclose(predictor.function(same)[name], predictor.function(texts)[name], rtol=1e-5)
    assert predictor(SAME_TEXTS[form]) == predictor(TEXTS) == predictor([text.encode() for text in TEXTS])


@pytest.mark.parametrize("form", TOLD_TEXTS)
@pytest.mark.parametrize("command", PYTHON)
def test_python_tells_what_it_cannot_read(command, form, predictors):
    texts, number, fault = TOLD_TEXTS[form]
    told = f"{number} of {len(texts)} texts cannot be read as text; .* The first is at index {fault}"
    with pytest.warns(UserWarning, match=told) as warned:
        assert len(predictors[command](texts)) == len(texts)
    assert [one.filename for one in warned] == [__file__]


@pytest.mark.parametrize("command", PYTHON)
def test_a_warning_of_one_text_names_the_line_of_the_caller_too(command, predictors):
    with pytest.warns(UserWarning, match="1 of 1 text cannot be read") as warned:
        predictors[command]("two\0one")
    assert [one.filename for one in warned] == [__file__]


@pytest.mark.parametrize("form", SAME_TEXTS)
@pytest.mark.parametrize("protocol", ["rest", "grpc"])
@pytest.mark.parametrize("command", TASKS)
def test_a_server_answers_the_same(command, protocol, form, served):
    expected, scores = asked(served, protocol, command, TEXTS)
    found, found_scores = asked(served, protocol, command, SAME_TEXTS[form])
    if command == "generate":  # an answer begins with the text as it was given, and white space at its end is the blank
        for answer, text, other, given in zip(found, SAME_TEXTS[form], expected, TEXTS, strict=True):
            rest = other.removeprefix(given)
            assert answer == text + (rest.lstrip() if text[-1:].isspace() else rest)
    else:
        assert found == expected
    np.testing.assert_allclose(found_scores, scores, rtol=1e-5)


def asked(served, protocol, command, texts):
    """The answers of a server, with their scores."""
    names = answer_outputs(TASKS[command])
    if protocol == "rest":
        answer = served.predict({"inputs": texts}, model=command)
        assert answer.status == 200, answer.body
        return [np.ravel(answer.body["outputs"][name]).tolist() for name in names]
    found = grpc_predict(served.grpc_address, model=command, text=np.array([text.encode() for text in texts]))
    answer, score = (tf.make_ndarray(found.outputs[name]).ravel().tolist() for name in names)
    return [[text.decode() for text in answer], score]


BODY = '{"inputs": ["one two año"]}'
REFUSED_BODIES = {
    "gz": (
        gzip.compress(BODY.encode()),
        "the body is compressed by gzip, but the header Content-Encoding: gzip is missing.",
    ),
    "xz": (lzma.compress(BODY.encode()), "the body is compressed by xz, which is not read. Send it as it is"),
    "UTF-16": (BODY.encode("utf-16"), "the body is in UTF-16LE. JSON is sent in UTF-8."),
    "UTF-16 without a mark": (BODY.encode("utf-16-be"), "the body is in UTF-16 or UTF-32. JSON is sent in UTF-8."),
    "NUL": (BODY.replace("two", "t\0o").encode(), "Invalid control character at: line 1 column"),
    "CR within a text": (BODY.replace("two", "t\ro").encode(), "Invalid control character at: line 1 column"),
}


@pytest.mark.parametrize("form", REFUSED_BODIES)
def test_a_body_of_another_form_is_refused_by_its_name(form, served):
    body, message = REFUSED_BODIES[form]
    answer = served.predict(body, model="classify")
    assert answer.status == 400
    assert message in answer.body["error"]


def test_bytes_and_nul_in_requests_are_read_as_unknown_characters(served):
    """As TensorFlow Serving does, which passes any bytes on: docs/serving.md."""
    replaced = asked(served, "rest", "classify", ["one a\ufffdo", "one t\1o"])
    body = b'{"inputs": ["one a\xf1o", "one t\\u0000o"]}'
    answer = served.predict(body, model="classify")
    assert [answer.body["outputs"][name] for name in answer_outputs("classify")] == replaced


# Text that the vocabulary lacks


@pytest.mark.parametrize("command", TASKS)
def test_lines_that_the_vocabulary_mostly_lacks_are_told(command, invoke):
    _, told = invoke(command, "stdin", b"one two\neins zwei one\n\ndrei\neins one\n")
    assert told == (
        "kformer: warning: 2 lines are mostly text that is not in the model's vocabulary, so that their answers mean "
        "little. The first is line 2. Are they in the language and the script that the model has learned?\n"
    )
