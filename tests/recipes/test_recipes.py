"""The recipes: what they say, and one of them from its file to a score."""

import json
import pathlib
import re
from typing import NamedTuple

import pytest
import typer.testing
import yaml

from kformer.cli.main import app
from kformer.config import DecodingConfig, TransformerConfig
from kformer.inference import Model
from kformer.presets import find_preset, preset_names
from kformer.recipes import FOLDER, load_recipe, recipe_names
from kformer.runs.folder import RunFolder
from kformer.text.batches import Hypothesis

pytestmark = pytest.mark.tensorflow_only
WMT14 = {"base": "wmt14-en-de-base", "big": "wmt14-en-de-big"}
SECONDS_A_STEP = {"base": 0.4, "big": 1.0}  # section 5.2, on 8 P100
NUMBERS = {"one": "eins", "two": "zwei", "three": "drei", "four": "vier", "five": "fünf", "six": "sechs"}


def test_the_recipes_that_come_with_kformer():
    assert recipe_names() == [
        *("bible-books", "bible-en-es", "bible-english", "cmudict", "wmt14-en-de-base", "wmt14-en-de-big")
    ]


@pytest.mark.parametrize("name", preset_names())
def test_a_shipped_model_is_what_its_recipe_trains(name):
    recipe, run = load_recipe(name), find_preset(name)
    vocabulary = {side: getattr(run.transformer_config(), side) for side in ("source_vocab_size", "target_vocab_size")}
    assert run.transformer_config() == recipe.transformer.replace(**vocabulary)
    budget = {"max_minutes": recipe.training.max_minutes, "precision": recipe.training.precision}
    assert run.training_config().replace(**budget) == recipe.training
    assert run.corpus()["name"] == recipe.corpus


@pytest.mark.parametrize("size", WMT14)
def test_wmt14_is_the_paper(size):
    recipe = load_recipe(WMT14[size])
    assert recipe.transformer == TransformerConfig.of_size(size)  # table 3
    assert recipe.decoding == DecodingConfig(beam_size=4, length_penalty=0.6, max_extra_length=50)  # section 6.1
    assert recipe.corpus == "tfds:wmt14_translate/de-en@en-de"
    training = recipe.training
    assert training.validation_steps * SECONDS_A_STEP[size] == 10 * 60  # section 6.1: every ten minutes
    hours = training.max_steps * SECONDS_A_STEP[size] / 3600
    assert hours == pytest.approx({"base": 12, "big": 3.5 * 24}[size], rel=0.1)  # section 5.2
    assert training.patience * training.validation_steps >= training.max_steps  # no validation ends the run


@pytest.mark.parametrize("name", WMT14.values())
def test_every_setting_says_where_it_is_from(name):
    text = (FOLDER / f"{name}.yaml").read_text("utf-8")
    settings = [line for line in text.splitlines() if re.match(r"(corpus|  \w+): \S", line)]
    parts = yaml.safe_load(text)
    assert len(settings) == 1 + sum(len(parts[part]) for part in ("transformer", "training", "decoding"))
    assert [line for line in settings if "  # " not in line] == []


def test_a_file_of_your_own(tmp_path):
    (tmp_path / "mine.yaml").write_text("corpus: cmudict\ntraining: {max_steps: 7}\n")
    recipe = load_recipe(tmp_path / "mine.yaml")
    assert (recipe.corpus, recipe.training.max_steps) == ("cmudict", 7)
    assert recipe.transformer == TransformerConfig()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("training: {}\n", "has no `corpus:` with a name. A recipe has the parts corpus, transformer, training, decod"),
        ("corpus: {a: b}\n", "has no `corpus:` with a name"),
        (
            "corpus: cmudict\ntraining: fast\n",
            "must contain a mapping of fields to values under training. Received: 'fa",
        ),
        (
            "corpus: cmudict\ntrainer: {}\n",
            "has the unknown part trainer. Put every field under one of: transf",
        ),
        ("corpus: cmudict\ntraining: {steps: 3}\n", "mine.yaml: TrainingConfig has no field 'steps'"),
    ],
)
def test_a_file_that_is_no_recipe(text, message, tmp_path):
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)):
        load_recipe(tmp_path / "mine.yaml")


def test_an_unknown_name():
    with pytest.raises(ValueError, match=r"no recipe 'wmt'. Choose one of bible-books, bible-en-es, "):
        load_recipe("wmt")
    with pytest.raises(
        FileNotFoundError, match=r"There is no file none.yaml. Name a recipe's file, or one of bible-books, bible-en-es"
    ):
        load_recipe("none.yaml")


def write_corpus(folder):
    """Files LANGUAGE.SPLIT.txt as TFDS reads them: English and German, 396 pairs to train on."""
    folder.mkdir()
    numbers = [f"{a} {b} {c}" for a in NUMBERS for b in NUMBERS for c in NUMBERS]
    numbers += [f"{a} {b} {c} {a}" for a in NUMBERS for b in NUMBERS for c in NUMBERS]
    for split, part in {"train": numbers[36:], "validation": numbers[:24], "test": numbers[24:36]}.items():
        german = [" ".join(NUMBERS[word] for word in line.split()) for line in part]
        for language, lines in {"en": part, "de": german}.items():
            (folder / f"{language}.{split}.txt").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return folder


def kformer(*arguments):
    """Runs a command in this process."""
    result = typer.testing.CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


class Trained(NamedTuple):
    """A run of a cut-down recipe."""

    recipe: pathlib.Path  # the file
    corpus: str
    run: RunFolder
    said: str  # on standard output


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The base recipe on another corpus, in short steps; `--config` makes its model tiny and its run short."""
    folder = tmp_path_factory.mktemp("wmt14")
    parts = yaml.safe_load((FOLDER / "wmt14-en-de-base.yaml").read_text("utf-8"))
    parts["corpus"] = f"tfds:{write_corpus(folder / 'corpus')}@en-de"
    parts["training"] |= {"vocab_size": 300, "max_length": 32, "tokens_per_batch": 512, "precision": "float32"}
    recipe = folder / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(parts))
    small = {
        "transformer": {"d_model": 16, "d_ff": 32, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1},
        "training": {"max_steps": 8, "validation_steps": 2, "keep_weights": 3, "gradient_accumulation_steps": 2},
    }
    (folder / "small.yaml").write_text(yaml.safe_dump(small))
    said = kformer("train", "--recipe", recipe, "--config", folder / "small.yaml", "--output", folder / "run")
    return Trained(recipe, parts["corpus"], RunFolder(folder / "run"), said)


@pytest.mark.slow
@pytest.mark.in_ci
def test_train_takes_corpus_and_settings_from_a_recipe(trained):
    assert "8 steps: the budget of 8 steps is spent." in trained.said
    assert trained.run.corpus()["name"] == trained.corpus
    assert trained.run.training_config().patience == 67  # what nobody changed is the recipe's
    assert trained.run.transformer_config().d_model == 16  # and what was changed is not
    assert [path.name[5:14] for path in trained.run.kept_weights()] == ["000000004", "000000006", "000000008"]


def test_training_says_how_many_tokens_an_update_sees(trained):
    """25,000 tokens a side are the paper's; how many positions hold them depends on the corpus."""
    said = trained.said.replace(",", "").replace("\n", " ")
    source, target = map(int, re.search(r"train: 396 pairs kept \((\d+) source and (\d+)", said).groups())
    seen = re.search(r"An update sees (\d+) source and (\d+) target tokens on average; \d+\.\d% of all", said)
    # Two micro-batches of 512 positions, the most of which hold tokens: the pairs are of about the same lengths.
    assert 2 * 512 * 0.5 < int(seen[2]) <= 2 * 512
    assert int(seen[1]) / int(seen[2]) == pytest.approx(source / target, abs=0.01)


def test_evaluate_takes_test_set_and_search_from_a_recipe(trained, tmp_path, monkeypatch):
    searches = []

    def load(model):
        searches.append(model.decoding)
        return model

    def answer(model, texts):
        return [[Hypothesis("eins " * len(text.split()), 0.0)] for text in texts]

    monkeypatch.setattr(Model, "load", load)
    monkeypatch.setattr(Model, "__call__", answer)
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(f"corpus: {trained.corpus}\ndecoding: {{beam_size: 2, length_penalty: 1.5}}\n")
    scores = json.loads(kformer("evaluate", trained.run.path, "--recipe", recipe))
    assert scores["sentences"] == 12  # in the test part
    kformer("evaluate", trained.run.path, "--recipe", recipe, "--beam-size", 3)
    assert searches == [DecodingConfig(beam_size=width, length_penalty=1.5) for width in (2, 3)]
    test = tmp_path / "test.tsv"
    test.write_text("one two\teins zwei\n")
    scores = json.loads(kformer("evaluate", trained.run.path, "--recipe", recipe, "--test", test))
    assert scores["sentences"] == 1  # the test set of your own, and still the search of the recipe
    assert searches[2] == searches[0]


@pytest.mark.slow
def test_a_recipe_from_its_file_to_a_score(trained, tmp_path):
    kformer("average", trained.run.path, tmp_path / "mean")
    scores = json.loads(kformer("evaluate", tmp_path / "mean", "--recipe", trained.recipe))
    assert scores["sentences"] == 12
    assert scores["bleu_signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    exported = kformer("export", tmp_path / "mean", tmp_path / "exported").strip()
    assert json.loads(kformer("evaluate", exported, "--recipe", trained.recipe)) == scores


def test_a_size_beside_a_recipe_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"A recipe has its own sizes and settings. Leave out --size"):
        kformer("train", "--recipe", "wmt14-en-de-base", "--size", "base", "--output", tmp_path / "run")


def test_a_corpus_of_your_own_takes_the_place_of_the_recipes(tmp_path):
    with pytest.raises(ValueError, match=r"There is no corpus 'nowhere'"):
        kformer("train", "--recipe", "wmt14-en-de-base", "--corpus", "nowhere", "--output", tmp_path / "run")
