"""A run folder of a model that was not trained here: made from its parts, and used like any other."""

import json
import shutil

import keras
import pytest
import toy
from typer.testing import CliRunner

from kformer.cli.main import app
from kformer.config import DecodingConfig
from kformer.data import Corpus
from kformer.files.checksums import DamagedFileError
from kformer.inference import Model
from kformer.models import build_model
from kformer.presets import pack_run
from kformer.runs.create import create_run, derived_run
from kformer.runs.folder import RunFolder
from kformer.tasks import Classifier, LanguageModel, Tagger
from kformer.tasks.translator import Translator
from kformer.tokenizers import SymbolTokenizer
from kformer.training.train import train

pytestmark = pytest.mark.tensorflow_only

ENGLISH, SPANISH, LABELS = (
    SymbolTokenizer(symbols) for symbols in (list(toy.WORDS), list(toy.WORDS.values()), ["even", "odd"])
)
TEXTS = [source for source, _ in toy.corpus().test[:10]]


def test_what_is_said_of_a_packed_model_wins_over_what_its_import_says(tmp_path):
    run = RunFolder(tmp_path)
    run.write_environment({})
    run.origin_file.write_text('{"name": "theirs", "format": "marian", "licence": "CC-BY-4.0"}')
    assert run.facts()["licence"] == "CC-BY-4.0"
    assert run.facts()["provenance"] == "theirs, imported from the format marian"
    run.write_preset({"licence": "MIT"})
    assert run.facts()["licence"] == "MIT"
    assert run.facts()["provenance"] == "theirs, imported from the format marian"


def test_a_description_that_is_no_json_is_named_and_samples_may_be_missing(tmp_path):
    run = RunFolder(tmp_path)
    assert run.samples() == []
    run.corpus_file.write_text('{"name": ')
    with pytest.raises(ValueError, match="corpus.json is not valid JSON: .* Restore it from a copy."):
        run.corpus()


def made(folder, target=SPANISH, origin=None, **changes):
    """The run folder of a model with random weights."""
    sizes = {"source_vocab_size": ENGLISH.vocab_size, "target_vocab_size": target.vocab_size}
    transformer = toy.TRANSFORMER.replace(**sizes, embedding_tying="none", **changes)
    run, corpus = RunFolder(folder), {"name": "numbers", "symbols": True}
    model = build_model(transformer)
    # Far from each other, so that no rounding decides which token is the most probable one.
    model.set_weights([10 * weight for weight in model.get_weights()])
    decoding = DecodingConfig(beam_size=1)
    create_run(run, transformer, (ENGLISH, target), decoding, corpus, samples=TEXTS, model=model, origin=origin)
    return run


@pytest.fixture(scope="module")
def translates(tmp_path_factory):
    keras.utils.set_random_seed(1)
    return made(tmp_path_factory.mktemp("made") / "run")


def kformer(*arguments, stdin=""):
    answer = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
    assert answer.exception is None, answer.output
    return answer.stdout


def test_the_folder_says_nothing_of_a_training(translates):
    assert sorted(path.name for path in translates.path.iterdir()) == [
        *("SHA256SUMS", "best.weights.h5", "corpus.json", "decoding.json", "samples.json", "tokenizer"),
        "transformer.json",
    ]
    translates.check()
    with pytest.raises(FileNotFoundError, match="has no training.json: its model was not trained here"):
        translates.training_config()


def test_the_folder_says_where_the_model_comes_from(tmp_path):
    origin = {"name": "elsewhere/numbers", "licence": "MIT", "format": "numbers", "files": {}}
    run = made(tmp_path / "run", origin=origin)
    with derived_run(run, tmp_path / "derived"):
        pass  # a mean of its weights, for example
    for facts in (run.facts(), RunFolder(tmp_path / "derived").facts()):
        assert (facts["licence"], facts["provenance"]) == ("MIT", "elsewhere/numbers, imported from the format numbers")
        assert facts["corpus"]["name"] == "numbers"
    assert RunFolder(tmp_path / "derived").decoding_config() == run.decoding_config()


@pytest.mark.parametrize(
    "name", ["transformer.json", "decoding.json", "corpus.json", "samples.json", "origin.json", "tokenizer/target"]
)
def test_damage_of_any_file_is_noticed(name, tmp_path):
    origin = {"name": "elsewhere/numbers", "licence": "MIT", "format": "numbers", "files": {}}
    run = made(tmp_path / "run", origin=origin).check()
    path = run.path / name
    with (next(path.iterdir()) if path.is_dir() else path).open("ab") as file:
        file.write(b"\n")
    with pytest.raises(DamagedFileError, match="does not match its checksum"):
        run.check()


def test_an_origin_of_other_names_is_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(ValueError, match="origin must have name, licence, format, files. Received: corpus."):
        made(tmp_path / "run", origin={"corpus": {}})
    assert not [*tmp_path.iterdir()]


def test_a_folder_that_holds_a_run_is_not_overwritten(translates):
    with pytest.raises(FileExistsError, match="holds a run already"):
        made(translates.path)


@pytest.mark.slow
@pytest.mark.in_ci
def test_it_is_translated_with_evaluated_and_exported_by_the_command_line(translates, tmp_path):
    expected = Translator.from_run(translates.path)(TEXTS)
    assert kformer("translate", translates.path, stdin="\n".join(TEXTS)).splitlines() == expected
    pairs = [(text, found) for text, found in zip(TEXTS, expected, strict=True) if found]
    assert len(pairs) >= 3
    lines = [f"{text}\t{translation}\n" for text, translation in pairs]
    (tmp_path / "test.tsv").write_text("".join(lines))
    found = json.loads(kformer("evaluate", translates.path, "--test", tmp_path / "test.tsv"))
    assert found["word_error_rate"] == 0
    kformer("export", translates.path, tmp_path / "out")
    answers = Model(tmp_path / "out" / "1")([text.encode() for text in TEXTS])
    assert [found[0].text for found in answers] == expected


@pytest.mark.slow
def test_it_is_packed_and_the_packed_one_is_used_like_it(translates, tmp_path):
    packed = pack_run(translates.path, tmp_path / "packed").run
    assert not packed.training_file.exists()
    expected = Translator.from_run(translates.path)(TEXTS)
    same = [one == other for one, other in zip(Translator.from_preset(packed.path)(TEXTS), expected, strict=True)]
    assert sum(same) >= 8


@pytest.mark.parametrize(
    ("predictor", "target", "changes"),
    [
        (Classifier, LABELS, {"task": "classify", "num_decoder_layers": 0}),
        (Tagger, LABELS, {"task": "tag", "num_decoder_layers": 0}),
        (LanguageModel, ENGLISH, {"task": "language-model", "num_encoder_layers": 0}),
    ],
)
def test_a_model_of_any_task_answers(predictor, target, changes, tmp_path):
    run = made(tmp_path / "run", target, **changes)
    assert len(predictor.from_run(run.path)(TEXTS)) == len(TEXTS)


@pytest.mark.slow
@pytest.mark.in_ci
def test_a_training_may_begin_with_its_weights_but_not_go_on(translates, tmp_path, untraced):
    training = toy.TRAINING.replace(max_steps=1, validation_steps=1)
    tuned = train(toy.corpus(), tmp_path / "tuned", training=training, initialize_from=translates.path).run
    assert tuned.transformer_config() == translates.transformer_config()
    again = train(toy.corpus(), tuned.path, training=training.replace(max_steps=2), resume=True)
    assert again.steps == 2
    with pytest.raises(ValueError, match="is a model that was not trained here, so there is nothing to resume. Begin"):
        train(toy.corpus(), translates.path, resume=True)


def test_a_run_folder_that_was_written_in_part_is_no_run_and_can_be_written_again(tmp_path, monkeypatch):
    def killed(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("kformer.runs.create.save_weights", killed)
        with pytest.raises(KeyboardInterrupt):
            made(tmp_path / "run")
    assert not RunFolder(tmp_path / "run").exists()
    for name in ("training.json", "environment.json", "origin.json"):
        (tmp_path / "run" / name).write_text("{}")  # of others that began here and were killed, too
    run = made(tmp_path / "run").check()
    assert run.transformer_config().source_vocab_size == ENGLISH.vocab_size
    assert not any(file.exists() for file in (run.training_file, run.environment_file, run.origin_file))


def test_a_model_with_other_ids_than_its_tokenizers_is_not_trained_further(tmp_path):
    """It would learn, without a word, that targets begin with another token."""
    run = made(tmp_path / "run", start_id=2)  # as BART
    with pytest.raises(
        ValueError, match=r"cannot be trained further. Received: start_id=2 \(1\), those of the tokeniz"
    ):
        train(toy.corpus(), tmp_path / "tuned", training=toy.TRAINING, initialize_from=run.path)
    assert not (tmp_path / "tuned").exists()


def test_first_weights_of_a_killed_start_are_not_those_of_the_next(translates, tmp_path):
    training = toy.TRAINING.replace(max_steps=1, validation_steps=1)
    (tmp_path / "run").mkdir()
    shutil.copytree(translates.path, tmp_path / "run" / "initial")
    run = train(toy.corpus(), tmp_path / "run", toy.TRANSFORMER, training).run
    assert not run.initial.path.exists()


def test_a_run_of_the_users_own_in_the_place_of_first_weights_is_kept(tmp_path, untraced):
    """Somebody may call the first run of an experiment so."""
    training = toy.TRAINING.replace(max_steps=1, validation_steps=1)
    own = train(toy.corpus(), tmp_path / "run" / "initial", toy.TRANSFORMER, training).run
    files = sorted(own.path.rglob("*"))
    for origin in (None, own.path):
        with pytest.raises(
            FileExistsError, match="initial holds a run, and a run in .* would keep a copy of another run there"
        ):
            train(toy.corpus(), tmp_path / "run", training=training, initialize_from=origin)
    assert sorted(own.path.rglob("*")) == files
    own.checkpoint_file.unlink()  # somebody keeps the weights alone
    with pytest.raises(FileExistsError, match="initial holds a run"):
        train(toy.corpus(), tmp_path / "run", training=training)
    assert own.best_weights_file.exists()
    assert not RunFolder(tmp_path / "run").exists()


def test_a_copy_that_was_interrupted_is_no_new_run(tmp_path, untraced):
    """The file by which a run is known is the last one of many programs that copy."""
    training = toy.TRAINING.replace(max_steps=1, validation_steps=1, keep_weights=1)
    run = train(toy.corpus(), tmp_path / "run", toy.TRANSFORMER, training).run
    run.transformer_file.unlink()
    files = {file: file.read_bytes() for file in run.path.rglob("*") if file.is_file()}
    for resume in (False, "auto"):
        with pytest.raises(FileExistsError, match="holds checkpoint.npz of a run, but no transformer.json. Was a copy"):
            train(toy.corpus(), run.path, toy.TRANSFORMER, training, resume=resume)
    assert {file: file.read_bytes() for file in files} == files
    run.checkpoint_file.unlink()
    with pytest.raises(FileExistsError, match=r"holds step-000000001.weights.h5 of a run, but no"):
        train(toy.corpus(), run.path, toy.TRANSFORMER, training)


def test_without_a_configuration_the_training_suits_the_task(tmp_path):
    """Language models are trained without label smoothing."""
    run = made(tmp_path / "run", ENGLISH, task="language-model", num_encoder_layers=0)
    corpus = Corpus("texts", [(text, "") for text in TEXTS], [(text, "") for text in TEXTS], [])
    assert training_of(corpus, tmp_path / "tuned", run.path).label_smoothing == 0.0


def training_of(corpus, folder, origin):
    """The configuration of a training that ends before its first step."""

    class Stopped(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(corpus, folder, initialize_from=origin, callbacks=[Stopped()])
    return RunFolder(folder).training_config()
