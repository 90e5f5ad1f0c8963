"""Models that are passed on: packed from a run, found by name or path, used like a run."""

import configparser
import contextlib
import functools
import io
import json
import pathlib
import re
import shutil
import types

import numpy as np
import pytest
import toy
from typer.testing import CliRunner

import kformer
from kformer.cli.main import app
from kformer.config import DecodingConfig
from kformer.data import load_corpus
from kformer.inference import Model
from kformer.presets import catalog, find_preset, pack_run, preset_names
from kformer.presets.about import ABOUT
from kformer.recipes import load_recipe
from kformer.runs.folder import RunFolder
from kformer.tasks import Classifier, LanguageModel
from kformer.tasks.translator import Translator
from kformer.training.averaging import average_weights

pytestmark = pytest.mark.tensorflow_only

SAID = {"description": "numbers, reversed", "licence": "Apache-2.0", "scores": {"bleu": 99.0}}
ROOT = pathlib.Path(kformer.__file__).parents[1]
LARGEST_SHIPPED = 20_000_000  # bytes, all models together: what a wheel may weigh


@pytest.fixture(scope="module")
def packed(numbers_run, tmp_path_factory):
    return pack_run(numbers_run, tmp_path_factory.mktemp("packed") / "numbers", SAID)


@pytest.fixture
def shipped(packed, monkeypatch):
    """A kformer that brings one model, "numbers"."""
    monkeypatch.setattr(catalog, "_SHIPPED", packed.run.path.parent)


def files(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_packed_model_translates_as_the_run_does(packed, numbers_translator):
    sources = [source for source, _ in toy.corpus().test]
    ours = Translator.from_preset(packed.run.path)(sources)
    theirs = numbers_translator(sources)
    assert sum(first == second for first, second in zip(ours, theirs, strict=True)) >= 98


def test_the_folder_holds_the_model_and_what_is_said_of_it(packed, numbers_run):
    assert files(packed.run.path) == {
        *("transformer.json", "training.json", "corpus.json", "environment.json", "preset.json"),
        *("tokenizer/shared/model.spm", "tokenizer/shared/tokenizer.json", "packed-weights.npz", "decoding.json"),
        "SHA256SUMS",
    }  # and no samples: the run's own are validation sources, which nobody has asked to pass on
    said = packed.run.preset()
    assert {name: said[name] for name in SAID} == SAID
    assert said["parameters"] == packed.parameters
    assert 0 < packed.relative_error < 0.01
    assert packed.size == sum(path.stat().st_size for path in packed.run.path.rglob("*") if path.is_file())
    assert packed.run.corpus() == RunFolder(numbers_run).corpus()
    assert list(packed.run.path.parent.iterdir()) == [packed.run.path]


def test_what_is_packed_is_what_setup_cfg_puts_into_the_wheel(packed, tmp_path):
    patterns = configparser.ConfigParser()
    patterns.read(ROOT / "setup.cfg")
    listed = patterns["options.package_data"]["kformer"].split()
    (tmp_path / "presets").mkdir()
    (tmp_path / "presets" / "numbers").symlink_to(packed.run.path)
    found = {path.relative_to(tmp_path).as_posix() for pattern in listed for path in tmp_path.glob(pattern)}
    assert found == {f"presets/numbers/{name}" for name in files(packed.run.path)}


def test_a_mistake_in_packing_is_told_and_leaves_nothing(numbers_run, tmp_path):
    with pytest.raises(ValueError, match="Received: license. Rename or remove the unknown ones."):
        pack_run(numbers_run, tmp_path / "new", {"license": "MIT"})
    with pytest.raises(FileExistsError, match="exists already. Name another folder."):
        pack_run(numbers_run, tmp_path)
    with pytest.raises(FileNotFoundError, match="is not a run folder"):
        pack_run(tmp_path, tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_a_shipped_model_is_found_by_its_name(shipped, packed):
    assert preset_names() == preset_names("classify", "translate") == ["numbers"]
    assert preset_names("classify") == []
    assert find_preset("numbers").path == packed.run.path
    assert Translator.from_preset("numbers")("one two three") == "tres dos uno"


def test_an_unknown_name_gets_the_known_ones(shipped):
    with pytest.raises(ValueError, match="There is no preset 'letters'. Choose one of numbers; or name a run folder"):
        Translator.from_preset("letters")


def test_a_folder_that_is_no_run_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a run folder"):
        Translator.from_preset(tmp_path)


@pytest.mark.slow
def test_commands_take_a_shipped_model_in_place_of_a_folder(shipped, tmp_path):
    def kformer(*arguments, stdin=""):
        answer = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
        assert answer.exception is None, answer.output
        return answer.stdout

    assert kformer("translate", "--preset", "numbers", "--beam-size", 1, stdin="one two\n") == "dos uno\n"
    (tmp_path / "test.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in toy.corpus().test[:20]))
    scores = json.loads(kformer("evaluate", "--preset", "numbers", "--test", tmp_path / "test.tsv", "--beam-size", 1))
    assert scores["bleu"] > 90
    assert kformer("export", "--preset", "numbers", tmp_path / "out", "--beam-size", 1) == f"{tmp_path / 'out' / '1'}\n"
    assert (tmp_path / "out" / "1" / "saved_model.pb").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["translate"], "Name one model"),
        (["translate", "run", "--preset", "numbers"], "Name one model"),
        (["evaluate", "--corpus", "cmudict"], "Name one model"),
        (["export", "run", "out", "--preset", "numbers"], "Name one model"),
        (["export", "out"], "export needs two folders, RUN and DIR, or --preset NAME and DIR. Received: only out."),
        (["export", "run", "out", "more"], "export needs RUN and DIR. Received: 3 folders."),
        (["export", "out", "--preset", "letters"], "There is no preset 'letters'"),
    ],
)
def test_commands_want_one_model(arguments, message, shipped):
    answer = CliRunner().invoke(app, arguments)
    assert isinstance(answer.exception, ValueError)
    assert message in str(answer.exception)


def test_the_command_packs(numbers_run, tmp_path):
    (tmp_path / "about.yaml").write_text("description: numbers\nscores: {bleu: 99.0}\n")
    (tmp_path / "samples.txt").write_text("one two\n\nsix\n")
    arguments = ["pack", numbers_run, tmp_path / "new", "--about", tmp_path / "about.yaml", "--steps", 31]
    arguments += ["--recipe", "bible-en-es", "--samples", tmp_path / "samples.txt"]
    answer = CliRunner().invoke(app, list(map(str, arguments)))
    assert answer.exception is None, answer.output
    assert re.search(r"MB in all; the packed weights are \d\.\d\d% from the run's\.", answer.stdout)
    packed = RunFolder(tmp_path / "new")
    assert packed.preset()["scores"] == {"bleu": 99.0}
    lengths = RunFolder(numbers_run).decoding_config()  # those of the run's training texts
    assert packed.decoding_config() == load_recipe("bible-en-es").decoding.completed(lengths) != lengths
    assert packed.samples() == ["one two", "six"]
    with np.load(packed.packed_weights_file) as weights:  # every matrix has a row or column that reaches the last step
        largest = {
            np.abs(weights[name].astype("int32")).max() for name in weights.files if weights[name].dtype == "int8"
        }
    assert largest == {31}


def test_a_packed_model_keeps_the_search_of_its_run_unless_it_gets_another(numbers_run, tmp_path):
    run = RunFolder(shutil.copytree(numbers_run, tmp_path / "run"))
    lengths = run.decoding_config()
    assert pack_run(run.path, tmp_path / "of-the-paper").run.decoding_config() == DecodingConfig().completed(lengths)
    greedy = DecodingConfig(beam_size=1, max_source_length=9, max_sentence_length=12, short_ratio=0.5)
    greedy.save(run.decoding_file)
    run.note_files()
    assert pack_run(run.path, tmp_path / "of-the-run").run.decoding_config() == greedy
    wide = DecodingConfig(beam_size=6)
    assert pack_run(run.path, tmp_path / "another", decoding=wide).run.decoding_config() == wide.completed(greedy)
    assert average_weights(run.path, tmp_path / "mean").decoding_config() == greedy


def test_a_model_searches_as_its_folder_says_unless_it_is_told_otherwise(packed, tmp_path, monkeypatch):
    searches = []

    def saved_model_of(run, decoding, n_best, signatures):
        searches.append(decoding)
        return contextlib.nullcontext(run.path)

    monkeypatch.setattr("kformer.inference.load.saved_model_of", saved_model_of)
    monkeypatch.setattr(
        "kformer.inference.load.SavedModel", lambda path, threads, trust: types.SimpleNamespace(text_input="text")
    )
    run = RunFolder(shutil.copytree(packed.run.path, tmp_path / "run"))
    kept = DecodingConfig(beam_size=2, length_penalty=1.4, max_source_length=9, max_sentence_length=12, short_ratio=0.5)
    given = DecodingConfig(beam_size=3)
    used = kept.replace(beam_size=3, length_penalty=given.length_penalty)  # only the lengths are those of the folder
    kept.save(run.decoding_file)
    run.note_files()
    for translator in (Translator.from_run, Translator.from_preset):
        assert [translator(run.path).decoding, translator(run.path, given).decoding] == [kept, used]
    for decoding in (None, given):
        Model(run.path, decoding).load()
    assert searches == [kept, used]
    with pytest.raises(ValueError, match="Received: n_best=3, beam_size=2. Widen the beam."):
        Model(run.path, n_best=3)


KNOWN = {  # one sentence of each shipped model; with the paper's length penalty the first would come out shorter
    "bible-en-es": (
        "The sons of Joseph after their families: Manasseh and Ephraim.",
        "Los hijos de José, conforme á sus familias: Manasés y Ephraim.",
    ),
    "cmudict": ("h e l l o", "HH EH L OW"),
}


OTHERS = {"bible-books": Classifier, "bible-english": LanguageModel}


@pytest.fixture(scope="module")
def model_of():
    """The shipped models by name; each is loaded and traced once."""
    kinds = {**dict.fromkeys(KNOWN, Translator), **OTHERS}
    return functools.cache(lambda name: kinds[name].from_preset(name))


def test_every_shipped_model_is_known_and_says_where_it_comes_from():
    assert preset_names() == sorted({**KNOWN, **OTHERS})
    assert all(set(ABOUT) <= set(find_preset(name).preset()) for name in preset_names())


@pytest.mark.parametrize("name", OTHERS)
def test_a_shipped_classifier_and_a_language_model_answer(name, model_of):
    predictor = model_of(name)
    assert predictor.decoding == load_recipe(name).decoding.completed(predictor.decoding)
    assert len(predictor.samples) == 16
    assert set(predictor.samples) <= {source for source, _ in load_corpus(load_recipe(name).corpus).valid}
    answer = predictor("In the beginning, God created the heavens and the earth.")
    assert answer == "law" if name == "bible-books" else answer.startswith("In the beginning, God created the heavens")


def test_tabs_and_byte_order_marks_are_blanks_to_the_shipped_classifier(model_of):
    texts = [f"42 {text}" for text, _ in load_corpus("bible-books").test[:40]]
    classifier = model_of("bible-books")
    expected = classifier.probabilities(texts)
    for sign in "\t\ufeff":
        changed = [sign + text.replace(" ", sign, 1) for text in texts]
        np.testing.assert_array_equal(classifier.probabilities(changed), expected)


@pytest.mark.parametrize("name", KNOWN)
def test_every_shipped_model_translates(name, model_of):
    source, translation = KNOWN[name]
    assert model_of(name)(source) == translation


TERAH = (  # Genesis 11:31-32
    "Terah took Abram his son, Lot the son of Haran, his son’s son, and Sarai his daughter-in-law, his son Abram’s "
    "wife. They went from Ur of the Chaldees, to go into the land of Canaan. They came to Haran and lived there. "
    "The days of Terah were two hundred five years. Terah died in Haran."
)


@pytest.mark.slow
def test_the_end_of_a_long_line_is_translated(model_of):
    """The model learned from single verses. It read this line at once, and left out the two last sentences."""
    translator = model_of("bible-en-es")
    found = translator.translate_detailed([TERAH, "In the beginning, God created the heavens and the earth."])
    assert found["divided"].numpy().tolist() == [True, False]
    assert not found["short"].numpy().any()
    translation = found["translation"].numpy()[0].decode()
    assert translation.endswith("Y murió Tara en Harán.")
    at_once = Translator.from_preset("bible-en-es", translator.decoding.replace(max_source_length=256))
    assert "murió" not in at_once(TERAH)


@pytest.mark.parametrize("name", KNOWN)
def test_every_shipped_model_searches_as_its_recipe_and_is_tried_on_sentences_of_its_corpus(name, model_of):
    translator = model_of(name)
    assert translator.decoding == load_recipe(name).decoding.completed(translator.decoding)
    assert len(translator.samples) == 16
    assert set(translator.samples) <= {source for source, _ in load_corpus(name).valid}


def test_the_documentation_shows_what_the_preset_says():
    text = (ROOT / "docs" / "presets.md").read_text("utf-8")
    example, shown = re.search(r"```python\n(import kformer\n.*?)```\n\n```\n(.*?)```", text, re.DOTALL).groups()
    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec(compile(example, "docs/presets.md", "exec"), {})
    assert said.getvalue() == shown
    sources = {source for source, _ in load_corpus("bible-en-es").test}
    assert set(re.findall(r'^    "(.*)",$', example, re.MULTILINE)) <= sources  # nobody trained on them


def test_the_shipped_models_are_small():
    paths = [path for name in preset_names() for path in find_preset(name).path.rglob("*")]
    assert sum(path.stat().st_size for path in paths if path.is_file()) <= LARGEST_SHIPPED
