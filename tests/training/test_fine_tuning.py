"""Runs that begin with the weights of another run."""

import csv
import dataclasses
import io
import json
import shutil

import keras
import numpy as np
import pytest
import rich.console
import toy
from typer.testing import CliRunner

from kformer.cli.main import app
from kformer.config import DecodingConfig
from kformer.data import Corpus, encode_pairs
from kformer.files.checksums import DamagedFileError
from kformer.models import build_transformer
from kformer.presets import pack_run
from kformer.runs.folder import RunFolder
from kformer.tasks.translator import Translator
from kformer.tokenizers import SymbolTokenizer
from kformer.training.new_run import start_run
from kformer.training.resumed_run import resume_run
from kformer.training.run_setup import vocabulary_report
from kformer.training.train import TrainingReport, train

pytestmark = pytest.mark.tensorflow_only

# Only looks: a rate of next to nothing leaves the weights as they were.
LOOK = toy.TRAINING.replace(max_steps=1, validation_steps=1, learning_rate_scale=1e-9)
SHORT = toy.TRAINING.replace(max_steps=4, validation_steps=2)


def quiet():
    return rich.console.Console(file=io.StringIO(), width=500)


def dialect():
    """A small corpus of the toy language, in which six is "cinco", too."""
    pairs = [(source, target.replace("seis", "cinco")) for source, target in toy.corpus().test]
    return Corpus(name="dialect", train=pairs[:80], valid=pairs[80:], test=[])


def first_loss(run):
    with run.log_file.open() as file:
        return float(next(csv.DictReader(file))["val_token_loss"])


def label_smoothed_loss(model, translator, pairs, epsilon=0.1):
    """In nats a token, one sentence at a time: 1 - epsilon on the right token, epsilon / V on every one."""
    losses = []
    encoded = encode_pairs(pairs, translator.source_tokenizer, translator.target_tokenizer, max_length=32)
    for number in range(encoded.kept):
        source = encoded.source_ids[encoded.source_offsets[number] : encoded.source_offsets[number + 1]]
        target = encoded.target_ids[encoded.target_offsets[number] : encoded.target_offsets[number + 1]]
        inputs = {"source": source[None], "target_in": np.concatenate([[encoded.start_id], target[:-1]])[None]}
        logits = keras.ops.convert_to_numpy(model(inputs))[0].astype("float64")  # (T, V)
        logs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        right = logs[np.arange(len(target)), target]
        losses.extend(-(1 - epsilon) * right - epsilon * logs.mean(axis=-1))
    return np.mean(losses)


def checkpoint(run):
    with np.load(run.checkpoint_file) as file:
        return {name: file[name] for name in file.files if name != "state.json"}


def assert_same_end(first, second):
    ours, theirs = checkpoint(first), checkpoint(second)
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


@pytest.fixture(scope="module")
def tuned(numbers_run, tmp_path_factory):
    """Four updates from the weights of the toy run, on the dialect, by the command."""
    folder = tmp_path_factory.mktemp("tuned")
    for part in ("train", "valid"):
        lines = (f"{source}\t{target}\n" for source, target in getattr(dialect(), part))
        (folder / f"{part}.tsv").write_text("".join(lines))
    (folder / "config.json").write_text(json.dumps({"training": SHORT.to_dict()}))
    arguments = ["train", "--initialize-from", numbers_run, "--train", folder / "train.tsv", "--valid"]
    arguments += [folder / "valid.tsv", "--config", folder / "config.json", "--output", folder / "run"]
    with toy.untraced():
        answer = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert answer.exception is None, answer.output
    assert "4 steps: the budget of 4 steps is spent." in answer.stdout
    return RunFolder(folder / "run")


@pytest.mark.usefixtures("untraced")
def test_the_run_begins_where_the_old_one_ended(numbers_run, numbers_translator, tmp_path):
    console = quiet()
    report = train(dialect(), tmp_path / "tuned", training=LOOK, initialize_from=numbers_run, console=console)
    expected = label_smoothed_loss(numbers_translator.model, numbers_translator, dialect().valid)
    assert first_loss(report.run) == pytest.approx(expected, rel=1e-3)
    fresh = build_transformer(numbers_translator.config)
    assert first_loss(report.run) < label_smoothed_loss(fresh, numbers_translator, dialect().valid) / 2
    assert "0.00% of the source tokens" in console.file.getvalue()


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("killed_at", ["create.save_tokenizers", "folder.RunFolder.write_environment"])
def test_a_run_killed_while_it_begins_can_be_begun_again(killed_at, numbers_run, tuned, tmp_path, monkeypatch):
    """The first weights are copied by then, and nothing says yet that the folder is a run."""

    def killed(*arguments):
        raise KeyboardInterrupt

    run, training = RunFolder(tmp_path / "run"), tuned.training_config()
    with monkeypatch.context() as patch:
        patch.setattr(f"kformer.runs.{killed_at}", killed)
        with pytest.raises(KeyboardInterrupt):
            train(dialect(), run.path, training=training, initialize_from=numbers_run, console=quiet())
    assert run.initial.exists()
    assert not run.exists()
    with pytest.raises(FileNotFoundError, match="holds no run, so there is nothing to resume"):
        train(dialect(), run.path, resume=True, console=quiet())
    train(dialect(), run.path, training=training, initialize_from=numbers_run, resume="auto", console=quiet())
    assert_same_end(run, tuned)


@pytest.mark.usefixtures("untraced")
def test_a_packed_model_is_a_beginning_too(numbers_run, tmp_path):
    packed = pack_run(numbers_run, tmp_path / "packed").run
    with pytest.raises(ValueError, match="is a packed model, so there is nothing to resume. Begin a new run"):
        train(toy.corpus(), packed.path, resume=True, console=quiet())
    report = train(dialect(), tmp_path / "tuned", training=LOOK, initialize_from=packed.path, console=quiet())
    translator = Translator.from_run(packed.path)
    expected = label_smoothed_loss(translator.model, translator, dialect().valid)
    assert first_loss(report.run) == pytest.approx(expected, rel=1e-3)


def test_vocabulary_and_transformer_are_kept_and_the_training_is_new(numbers_run, tuned):
    old = RunFolder(numbers_run)
    assert tuned.transformer_config() == old.transformer_config()
    for name in ("model.spm", "tokenizer.json"):
        shared = [run.tokenizer_folder / "shared" / name for run in (old, tuned)]
        assert shared[0].read_bytes() == shared[1].read_bytes()
    assert tuned.training_config() == SHORT
    assert tuned.decoding_config().longest_source >= old.decoding_config().longest_source
    assert tuned.corpus()["train"] == len(dialect().train)
    assert tuned.corpus()["initialize_from"] == str(numbers_run)
    assert tuned.initial.corpus() == old.corpus()
    assert tuned.initial.best_weights_file.read_bytes() == old.best_weights_file.read_bytes()


def test_the_training_configuration_says_of_the_tokenizers_what_is_so(numbers_run, tmp_path):
    other = LOOK.replace(vocab_size=999, tokenizer="unigram", shared_vocabulary=False)
    run = RunFolder(tmp_path / "run")
    start_run(run, dialect(), None, other, numbers_run)
    assert run.training_config() == LOOK
    assert resume_run(run, dialect(), None, other).training == LOOK  # and is not taken for another one


@pytest.mark.parametrize("changes", [{"user_symbols": "<2es>"}, {"source_tokenizer": "numbers.model"}])
def test_of_the_texts_it_is_said_what_the_kept_vocabulary_was_made_for(changes, numbers_run, tmp_path):
    origin = RunFolder(shutil.copytree(numbers_run, tmp_path / "origin"))
    origin.write_config(origin.training_file, origin.training_config().replace(**changes))
    run = RunFolder(tmp_path / "run")
    start_run(run, dataclasses.replace(dialect(), symbols=True), None, LOOK, origin.path)
    assert run.training_config() == LOOK.replace(**changes)  # subwords as before, no symbols
    assert run.corpus()["symbols"] is False


@pytest.mark.parametrize(
    ("field", "length", "longest"),
    [("max_source_length", 211, 211), ("max_sentence_length", 211, 211), ("max_source_length", 3, 5)],
)
def test_the_search_of_the_earlier_run_is_kept_with_its_length_if_it_is_longer(
    field, length, longest, numbers_run, tmp_path
):
    """The new texts have up to four words, and an end. Longer lines than theirs are divided."""
    origin = RunFolder(shutil.copytree(numbers_run, tmp_path / "origin"))
    earlier = DecodingConfig(beam_size=3, length_penalty=1.1, **{field: length})
    earlier.save(origin.decoding_file)
    origin.note_files()
    run = RunFolder(tmp_path / "run")
    start_run(run, dialect(), None, SHORT, origin.path)
    kept = run.decoding_config()
    assert (kept.beam_size, kept.length_penalty) == (3, 1.1)
    assert (kept.longest_source, kept.longest_line) == (longest, 5)


@pytest.mark.parametrize("words", [3, 300])
def test_a_classifier_reads_at_once_what_its_first_weights_or_the_new_texts_ask_for(words, tmp_path):
    texts = [(f"in the beginning {'a ' * words}", "law"), ("the people", "history")]
    run = RunFolder(tmp_path / "run")
    setup = start_run(run, Corpus("books", texts, texts, []), None, LOOK.replace(max_length=999), "bible-books")
    search, longest = run.decoding_config(), np.diff(setup.train.source_offsets).max()
    assert (search.max_source_length, search.max_sentence_length) == (max(256, longest), None)
    assert (longest > 256) == (words == 300)
    resume_run(run, Corpus("books", texts, texts, []), initialize_from="bible-books")


@pytest.mark.slow
def test_a_resumed_run_equals_one_that_was_never_stopped(numbers_run, tmp_path):
    origin = tmp_path / "origin"
    shutil.copytree(numbers_run, origin)
    train(dialect(), tmp_path / "whole", training=SHORT, initialize_from=origin, console=quiet())
    start_run(RunFolder(tmp_path / "parts"), dialect(), None, SHORT, origin)  # and killed before the first checkpoint
    shutil.rmtree(origin)  # what is needed of it is in the new run
    for steps in (2, 4):
        training = SHORT.replace(max_steps=steps)
        train(dialect(), tmp_path / "parts", training=training, resume=True, console=quiet())
    assert_same_end(RunFolder(tmp_path / "parts"), RunFolder(tmp_path / "whole"))


def test_another_transformer_is_refused(numbers_run, tmp_path):
    with pytest.raises(
        ValueError,
        match=r"keeps that run's transformer. Received values that differ from the run in .*: d_ff=256 \(the run has "
        r"128\). Leave",
    ):
        train(dialect(), tmp_path / "run", toy.TRANSFORMER.replace(d_ff=256), SHORT, initialize_from=numbers_run)
    untied = toy.TRANSFORMER.replace(embedding_tying="none")
    with pytest.raises(
        ValueError,
        match=r"Received values that differ from the run in .*: embedding_tying='none' \(the run has 'all'\). Leave",
    ):
        train(dialect(), tmp_path / "run", untied, SHORT, initialize_from=numbers_run)
    assert list(tmp_path.iterdir()) == []


def test_another_beginning_is_refused_when_a_run_goes_on(tuned, numbers_run):
    train(dialect(), tuned.path, resume=True, initialize_from=f"{numbers_run}/", console=quiet())
    with pytest.raises(ValueError, match="keeps its initial weights. .* initialize_from='elsewhere'. Leave it out"):
        train(dialect(), tuned.path, resume=True, initialize_from="elsewhere", console=quiet())


def test_a_beginning_that_is_no_run_is_told(tmp_path):
    with pytest.raises(ValueError, match="There is no preset 'nowhere'"):
        train(dialect(), tmp_path / "run", training=SHORT, initialize_from="nowhere")


def test_the_vocabulary_report_counts_unknown_tokens():
    tokenizers = SymbolTokenizer(["a", "b"]), SymbolTokenizer(["a"])
    # With end ids: a b, a, of 5 source tokens none unknown; a x, a, of 5 target tokens one.
    pairs = encode_pairs([("a b", "a x"), ("a", "a")], *tokenizers, max_length=8)
    report = vocabulary_report(pairs, tokenizers)
    assert "0.00% of the source tokens and 20.00% of the target tokens" in report


def test_damaged_weights_are_no_beginning(numbers_run, tmp_path):
    damaged = RunFolder(shutil.copytree(numbers_run, tmp_path / "damaged"))
    data = bytearray(damaged.best_weights_file.read_bytes())
    data[-100] ^= 1
    damaged.best_weights_file.write_bytes(data)
    with pytest.raises(DamagedFileError, match="damaged/best.weights.h5 does not match its checksum"):
        train(dialect(), tmp_path / "run", training=SHORT, initialize_from=damaged.path, console=quiet())


def test_what_others_keep_in_a_folder_named_initial_stays(numbers_run, tmp_path):
    (tmp_path / "run" / "initial").mkdir(parents=True)
    (tmp_path / "run" / "initial" / "data.txt").touch()
    with pytest.raises(FileExistsError, match="initial exists already"):
        train(dialect(), tmp_path / "run", training=SHORT, initialize_from=numbers_run, console=quiet())
    assert (tmp_path / "run" / "initial" / "data.txt").exists()


def test_the_same_command_goes_on_when_the_first_run_is_gone(tuned, tmp_path, monkeypatch):
    calls, run = [], shutil.copytree(tuned.path, tmp_path / "run")

    def trained(corpus, output, transformer, training, **options):
        calls.append(transformer)
        return TrainingReport(RunFolder(output), 4, None, "trained", interrupted=False)

    monkeypatch.setattr("kformer.training.train.train", trained)
    command = ["train", "--corpus", "cmudict", "--output", run, "--auto-resume", "--initialize-from", "gone"]
    answer = CliRunner().invoke(app, [str(part) for part in (*command, "--size", "tiny")])
    assert answer.exception is None, answer.output
    assert calls == [tuned.transformer_config()]
