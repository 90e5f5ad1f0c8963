"""`kformer.inference.Model`: it loads at the first call, and a copy of it answers in any process."""

import concurrent.futures
import copy
import json
import multiprocessing
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import threading
import time

import pytest
import toy

from benchmarks.common.pages import program_of
from kformer.config import DecodingConfig
from kformer.export.saved_model import save_for_this_machine
from kformer.inference import Model, load
from kformer.models import build_model
from kformer.runtime.c_api import SavedModelError
from kformer.runtime.export_description import DESCRIPTION_FILE
from kformer.tasks import LanguageModel
from kformer.tokenizers import WordTokenizer

pytestmark = pytest.mark.tensorflow_only

DRAWN = {"temperature": 1.0, "seed": 7, "max_length": 5}
TEXTS = [b"one two", b"", b"six five"]


@pytest.fixture(scope="module")
def language_model():
    """One that has learned nothing: what it draws depends on the seed and the text alone."""
    words = WordTokenizer(sorted(toy.WORDS))
    sizes = {"source_vocab_size": words.vocab_size, "target_vocab_size": words.vocab_size}
    config = toy.TRANSFORMER.replace(task="language-model", embedding_tying="target", **sizes)
    return LanguageModel(build_model(config), config, words, DecodingConfig(beam_size=1, max_extra_length=4))


@pytest.fixture(scope="module")
def text_export(language_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("language-model")
    save_for_this_machine(language_model, folder, n_best=1, signatures=["generate_with_options"])
    return folder


@pytest.fixture(params=["translator", "language model", pytest.param("drawing language model", marks=pytest.mark.slow)])
def make(request, numbers_plain_export, text_export):
    """Makes a model, which always answers alike when it is new."""
    return {
        "translator": lambda: Model(numbers_plain_export),
        "language model": lambda: Model(text_export, task="language-model"),
        "drawing language model": lambda: Model(text_export, task="language-model", options=DRAWN),
    }[request.param]


@pytest.fixture
def loads(monkeypatch):
    """What was loaded, each time after a while in which another thread could come."""
    found, read = [], load.load_saved_model

    def slow(model, *arguments):
        found.append(model)
        time.sleep(0.2)
        return read(model, *arguments)

    monkeypatch.setattr(load, "load_saved_model", slow)
    return found


def answers(model, texts):
    return [found[0].text for found in model(texts)]


def test_it_answers_as_the_translator_does(numbers_run, numbers_translator):
    assert answers(Model(numbers_run), TEXTS) == numbers_translator([text.decode() for text in TEXTS])


@pytest.mark.slow
@pytest.mark.in_ci
def test_it_draws_as_the_language_model_does(text_export, language_model):
    model = Model(text_export, task="language-model", options=DRAWN)
    texts = [text.decode() for text in TEXTS]
    assert answers(model, TEXTS) == language_model.sample(texts, **DRAWN)
    assert answers(model, TEXTS) != language_model.sample(texts, **DRAWN)  # another batch, another seed
    for seed in (0, 8, 0):
        drawn = [found[0].text for found in model(TEXTS, seed=seed)]
        assert drawn == language_model.sample(texts, **{**DRAWN, "seed": seed})


@pytest.mark.parametrize("options", [{"min_length": 4}, {"min_length": 4, "max_length": 9}])
def test_a_least_length_without_room_in_the_new_tokens_is_refused(options, text_export):
    model = Model(text_export, task="language-model", options=options)
    with pytest.raises(SavedModelError, match="min_length must be less than max_length and 4, because"):
        model([b"one"])


def test_it_draws_translations_as_the_translator_does(numbers_run, numbers_translator):
    options = {"temperature": 3.0, "seed": 7, "top_k": 5, "top_p": 0.9}
    found = numbers_translator.translate_with_options([text.decode() for text in TEXTS], **options)["translation"]
    model = Model(numbers_run, options=options)
    drawn = answers(model, TEXTS)
    assert drawn == [text.decode() for text in found.numpy()] != numbers_translator(["one two", "", "six five"])
    assert answers(model, TEXTS) != drawn  # another batch, another seed


def test_what_takes_no_options_is_told_at_once(numbers_run, numbers_plain_export, tmp_path):
    export = shutil.copytree(numbers_plain_export, tmp_path / "numbers") / "1"
    described = json.loads((export / DESCRIPTION_FILE).read_text())
    (export / DESCRIPTION_FILE).write_text(json.dumps({**described, "signatures": ["serving_default"]}))
    with pytest.raises(ValueError, match="no options of sampling. Export it again with --signature translate_with_opt"):
        Model(export, options=DRAWN)
    with pytest.raises(ValueError, match="one answer to each text. Received: options with the task translate and n_be"):
        Model(numbers_run, n_best=2, options=DRAWN)
    (tmp_path / "saved_model.pb").touch()  # of another program: nothing is described
    with pytest.raises(ValueError, match="is for CTranslate2 or of another program, and takes no options of sampling"):
        Model(tmp_path, options=DRAWN)


@pytest.mark.slow
def test_options_that_are_left_out_are_those_of_the_model(text_export):
    own = Model(text_export, task="language-model")
    assert answers(Model(text_export, task="language-model", options={"seed": 3}), TEXTS) == answers(own, TEXTS)


def test_a_copy_answers_in_a_new_process(make):
    """As another one does. In this process, other tests decide the number of threads, and so the last digits."""
    found = []
    for model in (make(), make()):
        with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            found.append(pool.submit(model, TEXTS).result())
    assert found[0] == found[1]
    for one, other in zip(found[0], make()(TEXTS), strict=True):
        assert [best.text for best in one] == [best.text for best in other]
        assert [best.score for best in one] == pytest.approx([best.score for best in other], abs=1e-5)


def test_a_pickle_has_no_more_after_the_first_call(make):
    model = make()
    new = pickle.dumps(model)
    model(TEXTS)
    assert abs(len(pickle.dumps(model)) - len(new)) < 8  # the seed of the next batch may have more digits
    assert len(new) < 1000
    for copied in (pickle.loads(new), copy.copy(model), copy.deepcopy(model)):
        assert (copied, hash(copied), repr(copied)) == (model, hash(model), repr(model))


@pytest.mark.slow
@pytest.mark.in_ci
def test_the_copies_in_a_process_load_once(numbers_plain_export, loads):
    written = pickle.dumps(Model(numbers_plain_export))
    found = [pickle.loads(written)(TEXTS) for _ in range(3)]
    assert found[0] == found[1] == found[2]
    assert len(loads) == 1
    pickle.loads(pickle.dumps(Model(numbers_plain_export)))(
        TEXTS
    )  # of another one, for which the folder may have changed
    assert len(loads) == 2


def test_threads_that_call_first_load_once(numbers_plain_export, loads):
    model, begin = Model(numbers_plain_export), threading.Barrier(2)

    def call():
        begin.wait()
        return model(TEXTS)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first, second = [future.result() for future in [pool.submit(call), pool.submit(call)]]
    assert first == second
    assert len(loads) == 1


def test_a_load_that_fails_is_tried_again(numbers_plain_export, monkeypatch):
    def fail(*arguments):
        raise OSError("busy")

    model = Model(numbers_plain_export)
    with monkeypatch.context() as patch:
        patch.setattr(load, "load_saved_model", fail)
        with pytest.raises(OSError, match="busy"):
            model.load()
    assert model.load() is model


LAZY = """
import pathlib, pickle, sys
from kformer.inference import Model
def loaded():
    return "libtensorflow" in pathlib.Path("/proc/self/maps").read_text()
model = pickle.loads(pickle.dumps(Model(sys.argv[1])))
before = loaded(), {"tensorflow", "keras", "kformer.runtime.c_api"} & {*sys.modules}
model([b"one two"])
print(before, loaded())
"""


@pytest.mark.skipif(not pathlib.Path("/proc/self/maps").is_file(), reason="Only Linux lists the libraries.")
def test_tensorflows_library_is_loaded_at_the_first_call(numbers_plain_export):
    assert run(LAZY, numbers_plain_export) == "(False, set()) True\n"


PREPARED = """
import pickle, sys
model = pickle.loads(bytes.fromhex(sys.argv[1]))
print(model([b"one two"])[0][0].text, sorted({"tensorflow", "keras"} & {*sys.modules}))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        {"decoding": DecodingConfig(beam_size=3), "n_best": 2},
        pytest.param({"options": {"length_penalty": 0.5}}, marks=pytest.mark.in_ci),
    ],
    ids=["search", "options"],
)
def test_workers_need_no_python_tensorflow_for_a_prepared_run_folder(
    arguments, numbers_run, loads, tmp_path, monkeypatch
):
    monkeypatch.setenv("KFORMER_CACHE", str(tmp_path))
    model = Model(numbers_run, **arguments)
    assert model.prepare() is model
    assert loads == []
    assert run(PREPARED, pickle.dumps(model).hex()) == "dos uno []\n"


def test_an_export_needs_no_preparation(numbers_plain_export, loads, tmp_path, monkeypatch):
    monkeypatch.setenv("KFORMER_CACHE", str(tmp_path))
    model = Model(numbers_plain_export)
    assert model.prepare() is model
    assert loads == [*tmp_path.iterdir()] == []


FORKED = """
import multiprocessing, sys, threading
from kformer.inference import Model, load

def said(model):
    def run():
        try:
            theirs.send(model([b"one two"])[0][0].text)
        except RuntimeError as error:
            theirs.send(str(error))
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=run)
    child.start()
    answer = ours.recv() if ours.poll(60) else "no answer"
    child.kill()
    return answer

def slow(*arguments):
    loading.set()
    go.wait()
    return read(*arguments)

model, other, read = Model(sys.argv[1]), Model(sys.argv[1]), load.load_saved_model
loading, go = threading.Event(), threading.Event()
print(said(model))
load.load_saved_model = slow
thread = threading.Thread(target=model.load)
thread.start()
loading.wait()
print(said(model))
go.set()
thread.join()
print(said(model), said(other), model([b"two"])[0][0].text, sep="\\n")
"""


@pytest.mark.slow
@pytest.mark.in_ci
def test_a_forked_process_loads_anew_or_says_that_it_cannot(numbers_plain_export):
    """Before the first load, in the middle of it, and afterwards: with the loaded model and with another one."""
    before, *later, own = run(FORKED, numbers_plain_export).splitlines()
    assert (before, own) == ("dos uno", "dos")
    assert [line.startswith("A model cannot compute in process") for line in later] == [True] * 3


def run(program, *arguments):
    command = [sys.executable, "-W", "ignore", "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_code_on_the_page_runs(numbers_run, tmp_path):
    """The section of docs/decoding.md, as a program."""
    code = program_of("decoding.md", "A model in worker processes")
    for shown, known in {"A sentence.": "one two", "Another one.": "six", "The next batch.": "two"}.items():
        code = code.replace(shown, known)
    (tmp_path / "program.py").write_text(code)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "mine").symlink_to(numbers_run)
    command = [sys.executable, "program.py"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert said.stdout == "['dos uno', 'seis']\n['dos']\n"


REFUSED = {
    "no folder": ({"path": "nowhere"}, FileNotFoundError, "nowhere does not exist. Name a run folder or a SavedModel."),
    "another task": ({"task": "tag"}, ValueError, "has learned the task translate. Expected: a model of the task tag."),
    "a search of an export": ({"decoding": DecodingConfig()}, ValueError, "its search was fixed when it was exported"),
    "hypotheses of an export": ({"n_best": 2}, ValueError, "its search was fixed when it was exported"),
}


@pytest.mark.parametrize(("arguments", "kind", "message"), REFUSED.values(), ids=REFUSED)
def test_what_the_folder_cannot_do_is_told_at_once(arguments, kind, message, numbers_plain_export, loads):
    with pytest.raises(kind, match=message):
        Model(**{"path": numbers_plain_export, **arguments})
    assert loads == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topp": 0.9}, "There is no option topp. The options are: length_penalty, .*Did you mean 'top_p'?"),
        ({"top_k": 2.5}, "top_k must be a whole number. Received: top_k=2.5."),
        ({"top_p": 1.5}, r"top_p must be above 0 and at most 1. Received: top_p=1.5."),
    ],
)
def test_wrong_options_are_told_at_once(options, message, text_export):
    with pytest.raises(ValueError, match=message):
        Model(text_export, task="language-model", options=options)


def test_an_export_without_the_signature_is_told_at_once(text_export, tmp_path):
    folder = shutil.copytree(text_export, tmp_path / "1")
    description = (folder / DESCRIPTION_FILE).read_text()
    (folder / DESCRIPTION_FILE).write_text(description.replace("{", '{"signatures": ["serving_default"],', 1))
    assert Model(folder, task="language-model")
    with pytest.raises(ValueError, match="takes no options of sampling. Export it again with --signature generate_w"):
        Model(folder, task="language-model", options=DRAWN)


def test_alignments_are_of_one_translation_that_a_search_finds(numbers_run, numbers_plain_export, text_export):
    message = "Alignments are for one translation of each text, found by a search. Received: alignments=True with "
    for path, others in (
        (numbers_run, {"n_best": 2}),
        (numbers_run, {"options": DRAWN}),
        (text_export, {"task": "language-model"}),
    ):
        with pytest.raises(ValueError, match=message):
            Model(path, alignments=True, **others)
    assert Model(numbers_run, alignments=True).alignments
    with pytest.raises(ValueError, match="gives no alignments. Export it again with --signature translate_detailed"):
        Model(numbers_plain_export, alignments=True)


def test_an_export_for_ctranslate2_has_no_signatures_and_takes_no_options(tmp_path):
    (tmp_path / DESCRIPTION_FILE).parent.mkdir()
    (tmp_path / DESCRIPTION_FILE).write_text(json.dumps({"format": "ctranslate2", "signatures": ["score"]}))
    assert Model(tmp_path).path == tmp_path
    with pytest.raises(ValueError, match="is for CTranslate2, which has no signature score. Name a run folder, or wh"):
        Model(tmp_path, signatures=["score"])
    with pytest.raises(ValueError, match="is for CTranslate2 or of another program, and takes no options of sampling"):
        Model(tmp_path, options=DRAWN)


def test_a_path_is_kept_as_one_that_holds_in_any_working_directory(numbers_plain_export, monkeypatch):
    monkeypatch.chdir(numbers_plain_export.parent)
    assert Model(numbers_plain_export.name).path == numbers_plain_export


def test_a_copy_whose_folder_is_gone_says_so_when_it_is_called(numbers_plain_export, tmp_path):
    """Not when it is unpickled: that would end a worker of a pool, which would wait for its answer for ever."""
    folder = shutil.copytree(numbers_plain_export, tmp_path / "numbers")
    written = pickle.dumps(Model(folder))
    shutil.rmtree(folder)
    copied = pickle.loads(written)
    with pytest.raises(FileNotFoundError, match="numbers does not exist"):
        copied(TEXTS)


@pytest.mark.slow
def test_the_path_is_that_of_the_working_directory_in_which_it_was_made(numbers_plain_export, tmp_path, monkeypatch):
    monkeypatch.chdir(numbers_plain_export.parent)
    model = Model(numbers_plain_export.name)
    monkeypatch.chdir(tmp_path)
    assert answers(model, [b"one two"]) == ["dos uno"]


def test_it_is_compared_by_its_path_and_options_which_stay(numbers_run):
    model = Model(numbers_run, n_best=2)
    assert model == Model(str(numbers_run), n_best=2)
    assert model not in {Model(numbers_run), Model(numbers_run, trust=True)}
    assert repr(model).startswith(f"Model(path={model.path!r}, decoding=None, n_best=2, ")
    with pytest.raises(AttributeError, match="cannot assign to field 'n_best'"):
        model.n_best = 3


@pytest.mark.parametrize(("texts", "strange"), [(["one"], "'one' of the type str"), (b"one", "111 of the type int")])
def test_texts_that_are_no_list_of_bytes_are_told(texts, strange, numbers_plain_export):
    with pytest.raises(ValueError, match=f"Texts must be a list of bytes in UTF-8. Received in the list: {strange}"):
        Model(numbers_plain_export)(texts)
    with pytest.raises(ValueError, match=f"Texts must be a list of bytes in UTF-8. Received in the list: {strange}"):
        Model(numbers_plain_export).run("serving_default", {"text": texts})


@pytest.mark.parametrize("option", ["n_best", "threads_per_operation"])
@pytest.mark.parametrize("number", [0, -1])
def test_numbers_below_one_are_refused(numbers_run, option, number):
    with pytest.raises(ValueError, match=f"{option} must be 1 or more. Received: {number}"):
        Model(numbers_run, **{option: number})


def test_a_signature_is_called_by_its_name_also_by_a_copy(numbers_run):
    model = pickle.loads(pickle.dumps(Model(numbers_run, signatures=["score"])))
    outputs = model.run("score", {"text": [b"one two", b"six"], "translation": [b"dos uno", b"seis"]})
    assert outputs["tokens"].tolist() == [3, 2]
    assert all(outputs["log_probability"] < 0)
    assert [found[0].text for found in model([b"six"])] == ["seis"]


def test_a_signature_that_no_model_has_is_told(numbers_run):
    with pytest.raises(ValueError, match=r"There is no signature 'scores'.*Did you mean"):
        Model(numbers_run, signatures=["scores"]).load()
    with pytest.raises(ValueError, match="signatures must be a list of names. Received: 'score'"):
        Model(numbers_run, signatures="score")
