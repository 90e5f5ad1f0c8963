"""Every option of every command does something.

A command runs without the option, and with each value of it in option_trials.py. What it hands to the part of kformer
that does the work, what it asks of a server, what it says and what it writes must differ each time: an option that is
lost on the way makes no difference. Other tests show what an option is for.
"""

import dataclasses
import functools
import itertools
import pathlib
import shutil
import threading
import types

import numpy as np
import option_trials
import pytest
import trustme
import typer
from matplotlib.figure import Figure
from own_models import write_model
from scripted_rest import FLOAT, STRING, ScriptedRest
from typer.testing import CliRunner

from kformer import LanguageModel, Translator, visualization
from kformer.cli.line_options import InputFields
from kformer.cli.main import app
from kformer.cli.train_config import FIELDS
from kformer.data import Corpus
from kformer.export.lint import Finding
from kformer.inference import Model
from kformer.presets import find_preset
from kformer.runs.folder import RunFolder
from kformer.text.batches import Hypothesis

pytestmark = pytest.mark.tensorflow_only

TMX = """<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="en"><seg>one <bpt i="1">[b]</bpt>two</seg></tuv><tuv xml:lang="es"><seg>uno</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>three</seg></tuv><tuv xml:lang="es"><seg>tres</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>six</seg></tuv><tuv xml:lang="es"><seg>seis</seg></tuv></tu></body></tmx>"""
PAIRS = [
    *("one two\tdos uno", "one two\tdos uno", "one two\tdos", "three\tone two three four", "seven\tuno siete"),
    *(
        "τρία\tтри",
        "δύο\tдва",
        "ένα\tодин",
        "six\tsix",
        "one, two, three, four, five!\tone, two, three, four or five!",
        "7 8 9 abc\t7 8 9 ab",
        "five or ten\tdiez o cinco",
    ),
]
FILES = {
    "monitoring": 'prometheus_config { enable: true path: "/m" }',
    "monitoring-2": 'prometheus_config { enable: true path: "/n" }',
    "batching": "max_batch_size { value: 7 }",
    "batching-2": "max_batch_size { value: 8 }",
    "models": 'model_config_list { config { name: "a" base_path: "export" } }',
    "models-2": 'model_config_list { config { name: "b" base_path: "export" } }',
    "lines.txt": "one two\nthree\nsix\n",
    "bad.txt": "one two\nthree\0\nsix\n",
    "greek.txt": "one\nτρία\nfive\n",
    "lines.tsv": "one two\tdos uno\nsix\tseis\nseven\tsiete\n",
    "pairs.tsv": "".join(f"{pair}\n" for pair in PAIRS),
    "other.tsv": "six two\tdos seis\nthree\ttres\n",
    "wide.tsv": "one\tuno\t7\ntwo\tdos\t8\n",
    "bad.tsv": "one\tuno\nno tab\ntwo\tdos\n",
    "table.csv": 'id,name,text,other\n7,x,"one two",two\n8,y,three,"four five"\n',
    "held.txt": "one two\n",
    "held-table.csv": "source,target,text,other\nthree,x,six,one two\n",
    "memory.tmx": TMX,
    "pairs.align": "0-0\n" * len(PAIRS),
    "other.align": "0-0\n" + "\n" * (len(PAIRS) - 1),
    "own.yaml": "corpus: letters\ndecoding: {beam_size: 7}\ntraining: {seed: 9, vocab_size: 300}\n",
    "a.yaml": "training: {seed: 7}\n",
    "b.yaml": "training: {seed: 8}\n",
    "about.yaml": "description: one\n",
    "about-2.yaml": "description: two\n",
    "token": "sesame",
    "other-token": "barley",
}
VARIABLES = ["KFORMER_TOKEN", "KFORMER_RELOAD_TOKEN"] + [
    f"KERAS_DISTRIBUTION_{name}" for name in ("NUM_PROCESSES", "PROCESS_ID", "JOB_ADDRESSES")
]
INTEGER = {"dtype": "DT_INT64"}
SIGNATURES = [
    "serving_default",
    "n_best",
    "translate_detailed",
    "translate_with_options",
    "generate_with_options",
    "score",
]
PLACES = ["source_start", "source_end", "target_start", "target_end", "alignment_start", "tokens"]
TEXTS_OF_CORPORA = {"letters": ["a", "b", "c"], "digits": ["1", "2", "3"]}
# Those of `kformer distill` that it hands on together with those that are tried.
AS_IN_TRAIN = {
    *option_trials.CORPUS,
    *("--export", "--resume", "--auto-resume", "--summary", "--stop-signal"),
}
# The options that are not tried here: other tests try them, or they have no other value yet.
ELSEWHERE = {
    "train": {f"--{name.replace('_', '-')}" for name in FIELDS},  # test_train_config.py
    "prepare": {f"--{name.replace('_', '-')}" for name in FIELDS} | {"--corpus"},  # it is refused: test_prepare.py
    "distill": {*AS_IN_TRAIN, *(f"--{name.replace('_', '-')}" for name in FIELDS)},
    "tag": {"--preset"},  # no tagger comes with kformer
    "score": {"--on-error"},  # it has one value, which is the default: test_score_command.py
}
CASES = [
    pytest.param(form, option, id=f"{form.words.format(model=form.model, data='').split('--output')[0]}{option}")
    for form in option_trials.FORMS
    for option in form.options
]


def commands(app, names=()):
    """Each command with its names."""
    if not hasattr(app, "commands"):
        yield " ".join(names), app
        return
    for name, command in app.commands.items():
        yield from commands(command, (*names, name))


def test_every_option_of_every_command_is_tried():
    tried = {}
    for form in option_trials.FORMS:
        words = form.words.split()
        name = " ".join(words[: 2 if words[0] == "plot" else 1])
        tried.setdefault(name, set()).update(form.options)
    for name, command in commands(typer.main.get_command(app)):
        options = {one.opts[0] for one in command.params if one.param_type_name == "option"}
        elsewhere = ELSEWHERE.get(name, set())
        assert (name, tried[name] | elsewhere) == (name, options)
        assert not tried[name] & elsewhere


def described(value):
    """A value as plain ones, which can be compared: objects of kformer with all that they hold."""
    if isinstance(value, str | bytes | int | float | None | pathlib.Path):
        return value
    if isinstance(value, np.ndarray):
        return described(value.tolist())
    if isinstance(value, dict | types.MappingProxyType):
        return {str(name): described(one) for name, one in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(described, value), key=repr)
    if isinstance(value, list | tuple):
        return [described(one) for one in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        compared = {one.name: getattr(value, one.name) for one in dataclasses.fields(value) if one.compare}
        compared.pop("key", None)  # of a prepared corpus: it says what is to be done, and does nothing
        return [type(value).__qualname__, described(compared)]
    if isinstance(value, functools.partial):
        return ["partial", described(value.func), described(value.args), described(value.keywords)]
    name = getattr(value, "__qualname__", type(value).__qualname__)
    if not type(value).__module__.startswith("kformer.") or isinstance(value, type):
        return name
    fields = getattr(value, "__dict__", {})
    if isinstance(value, threading.Thread):  # without its number and the like
        fields = {key: one for key, one in fields.items() if key not in vars(threading.Thread())}
    return [name, described(fields)]


class Server(ScriptedRest):
    """Has a model that has learned every task."""

    def usual_answer(self, body):
        size = 1 if body is None else len(body["inputs"]["text"])
        texts, scores, places, ends = ["uno"] * size, [-1.5] * size, [[0]] * size, [[3]] * size
        if body is not None and body["signature_name"] == "n_best":
            texts, scores = [["uno"] * 3] * size, [[-1.5] * 3] * size
        outputs = {
            **dict.fromkeys(("translation", "label", "tags", "text"), texts),
            **dict.fromkeys(("score", "probability", "log_probability"), scores),
            **{name: ends if name.endswith("_end") else places for name in PLACES},
            "alignment": [[[1.0]]] * size,
            "tokens": [2] * size,
        }
        if body is not None:
            return {"outputs": outputs}
        types_of = {name: STRING if values is texts else FLOAT for name, values in outputs.items()}
        types_of |= dict.fromkeys(PLACES, INTEGER)
        signature = {"inputs": {"text": STRING, "translation": STRING}, "outputs": types_of}
        signatures = dict.fromkeys(SIGNATURES, signature)
        return {"model_spec": {}, "metadata": {"signature_def": {"signature_def": signatures}}}


@pytest.fixture(scope="module")
def folder(numbers_run, numbers_plain_export, tmp_path_factory):
    """The files and models that the trials name."""
    folder = tmp_path_factory.mktemp("trials")
    for name, content in FILES.items():
        (folder / name).write_text(content, encoding="utf-8")
    for name, words in (("a.model", "one two three"), ("b.model", "six seven eight nine"), ("c.model", "x y z")):
        write_model(folder / name, [words])
    for name in ("tagged", "other", "plain"):
        run = RunFolder(shutil.copytree(numbers_run, folder / name))
        tags = None if name == "plain" else "<2es> <2fr>"
        run.write_config(run.decoding_file, run.decoding_config().replace(tags=tags))
    for name, preset in (("books", "bible-books"), ("tagger", "bible-books"), ("english", "bible-english")):
        shutil.copytree(find_preset(preset).path, folder / name)
    tagger = RunFolder(folder / "tagger")
    tagger.write_config(tagger.transformer_file, tagger.transformer_config().replace(task="tag"))
    (folder / "export").symlink_to(numbers_plain_export)
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(folder / "one.pem")
    (folder / "m2m100").mkdir()
    (folder / "m2m100" / "config.json").write_text('{"model_type": "m2m_100"}')
    return folder


@pytest.fixture(scope="module")
def server():
    with Server() as server:
        yield server


@pytest.fixture(scope="module")
def without_option():
    """What commands without the options do, by their words."""
    return {}


def contents(folder):
    """All that is in a folder, with the times when it was written."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def seen(folder, server, monkeypatch):
    """`seen(words)` is all that a command does; it fails if the command does."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("KFORMER_CACHE", str(folder / "cache"))  # which goes with what each command has written
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    handed_on = []

    def recorder(name, answer=None):
        def record(*arguments, **options):
            handed_on.append(described([name, arguments, options]))
            if answer is None:
                raise typer.Exit  # the command has no more to do
            return answer(*arguments)

        return record

    _replace_what_does_the_work(monkeypatch, recorder)
    there, before = {*folder.iterdir()}, contents(folder)

    def see(words, may_fail=False):
        next(InputFields(fields="text").lines(folder / "held-table.csv"))  # a process remembers the last table
        handed_on.clear()
        server.requests.clear()
        server.headers.clear()
        result = CliRunner().invoke(app, words.replace("URL", server.url).split())
        asked = [*server.requests]
        tokens = [one["Authorization"] for one in server.headers]
        written = {}
        for path in sorted({*folder.iterdir()} - there):
            is_text = path.is_file() and path.suffix not in (".png", ".svg")
            written[path.name] = path.read_bytes() if is_text else b""
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        assert contents(folder) == before
        assert may_fail or result.exit_code == 0, (words, result.output, result.exception)
        return described([result.exit_code, result.output, handed_on, asked, tokens, written])

    return see


def _replace_what_does_the_work(monkeypatch, recorder):
    """A recorder takes the place of what the commands call at their end, and models answer with the texts."""

    def answers(model, texts, seed):
        return [[Hypothesis(f"{text.decode()} {model.path.name}", -1.5, "0-0")] * model.n_best for text in texts]

    def outputs(model, signature, inputs):
        size = len(inputs["text"])
        return {"log_probability": -np.ones(size), "tokens": np.ones(size, int), "truncated": np.zeros(size, bool)}

    def run_job(folder, settings, read, workers, *_):
        bare = dataclasses.replace(settings, model={}, reading={})  # which name the job, and do nothing
        recorder("run_job")(folder, bare, [[*read(file)] for file in settings.inputs], workers)

    def corpus(name):
        pairs = [(text, text) for text in TEXTS_OF_CORPORA.get(name, ["x"])]
        return Corpus(name, pairs, pairs[:1], pairs[1:])

    monkeypatch.setattr(Model, "load", lambda model: recorder("load", lambda model: model)(model))
    monkeypatch.setattr(Model, "__call__", lambda model, texts, seed=None: recorder("ask", answers)(model, texts, seed))
    monkeypatch.setattr(Model, "run", lambda *arguments: recorder("run", outputs)(*arguments))
    monkeypatch.setattr("kformer.cli.options.load_corpus", corpus)
    monkeypatch.setattr("signal.signal", recorder("signal", lambda *_: None))
    monkeypatch.setattr("gc.freeze", lambda: None)
    monkeypatch.setattr("kformer.serving.server.Server", recorder("Server"))
    monkeypatch.setattr("kformer.serving.logs.start_logging", recorder("start_logging", lambda *_: None))
    monkeypatch.setattr("kformer.cli.job.run_job", run_job)
    of_texts = types.SimpleNamespace(score=lambda texts: outputs(None, "score", {"text": texts}))
    maps = types.SimpleNamespace(_asdict=lambda: {kind: f"{kind} map" for kind in ("encoder", "decoder", "cross")})
    attention, tree = recorder("attention", lambda *_: maps), recorder("beam_tree", lambda *_: "tree")
    watched = types.SimpleNamespace(attention=attention, beam_tree=tree)
    monkeypatch.setattr(LanguageModel, "from_run", recorder("from_run", lambda *_: of_texts))
    monkeypatch.setattr(Translator, "from_run", recorder("from_run", lambda *_: watched))
    read = types.SimpleNamespace(signatures=["translate_detailed"], run=lambda *_: {})
    monkeypatch.setattr("kformer.runtime.c_api.SavedModel", recorder("SavedModel", lambda *_: read))
    monkeypatch.setattr("kformer.text.attention_maps.read_detailed", lambda found: "alignment")
    taught = recorder("distilled_corpus", lambda teacher, corpus, folder: corpus)
    monkeypatch.setattr("kformer.cli.distill.distilled_corpus", taught)
    finding = Finding(False, "problem", "remedy", [("a",), ("b",), ("c",), ("d",)])
    monkeypatch.setattr("kformer.export.lint.lint", recorder("lint", lambda *_: [finding]))
    monkeypatch.setattr("kformer.training.distributed.initialize", recorder("initialize", lambda *_: 0))
    for name in visualization.__all__:
        if name.startswith("plot_"):
            monkeypatch.setattr(visualization, name, recorder(name, lambda *_: Figure()))
    for place in (
        "kformer.training.train.train",
        "kformer.training.new_run.prepare_run",
        "kformer.export.target.export",
        "kformer.importing.run.import_model",
        "kformer.training.averaging.average_weights",
        "kformer.presets.pack_run",
        "kformer.cli.demo_steps.run_demo",
    ):
        monkeypatch.setattr(place, recorder(place))


@pytest.mark.parametrize(("form", "option"), CASES)
def test_an_option_makes_a_difference_and_each_of_its_values_another_one(form, option, seen, without_option):
    one = form.options[option]
    file = form.file if one.file is None else one.file
    data = form.data.format(file) if file else ""
    words = form.words.format(model=form.model if one.model is None else one.model, data=data) + f" {one.also}"
    if words not in without_option:  # which fails where something is missing that the option gives
        without_option[words] = seen(words, may_fail=True)
        assert seen(words, may_fail=True) == without_option[words]
    found = {"": without_option[words]} | {value: seen(f"{words} {option} {value}") for value in one.values if value}
    if one.values == ("",):
        found[option] = seen(f"{words} {option}")
    assert seen(f"{words} {option} {one.values[-1]}") == [*found.values()][-1]
    same = [(first, other) for first, other in itertools.combinations(found, 2) if found[first] == found[other]]
    assert same == []
