"""The command line as a person uses it: in processes of its own."""

import json
import lzma
import os
import re
import subprocess
import sys

import pytest
import toy
import yaml
from typer.testing import CliRunner

from kformer.__main__ import main
from kformer.cli.main import app
from kformer.config import TransformerConfig
from kformer.inference.batches import Hypothesis, load_model
from kformer.inference.lines import translate_lines
from kformer.runs.folder import RunFolder
from kformer.training.train import TrainingReport

pytestmark = pytest.mark.tensorflow_only


def kformer(*arguments, stdin=b"", cwd=None, **variables):
    command = [sys.executable, "-m", "kformer", *map(str, arguments)]
    # A person's environment does not silence TensorFlow, as that of the tests does.
    environment = {**os.environ, **variables}
    del environment["TF_CPP_MIN_LOG_LEVEL"]
    return subprocess.run(command, input=stdin, capture_output=True, check=False, cwd=cwd, env=environment)


@pytest.fixture(scope="module")
def pairs_file(tmp_path_factory):
    """The toy language's test part as a tab-separated file."""
    path = tmp_path_factory.mktemp("pairs") / "test.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in toy.corpus().test), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def config_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("config") / "toy.yaml"
    parts = {"transformer": {"d_model": 64, "num_encoder_layers": 1, "num_decoder_layers": 1, "d_ff": 64},
             "training": {"vocab_size": 320, "validation_steps": 3, "precision": "float32"}}  # fmt: skip
    path.write_text(yaml.safe_dump(parts))
    return path


@pytest.fixture(scope="module")
def exported(numbers_run, tmp_path_factory):
    directory = tmp_path_factory.mktemp("exported") / "numbers"
    answer = kformer("export", numbers_run, directory)
    assert answer.stdout.decode().strip() == str(directory / "1")
    assert answer.stderr == b""  # TensorFlow's start-up noise stays out of the terminal
    return directory


@pytest.mark.parametrize("command", ["train", "translate", "evaluate", "export", "average", "pack", "demo"])
def test_every_command_explains_itself_without_loading_tensorflow(command):
    answer = kformer(command, "--help", PYTHONPROFILEIMPORTTIME="1")
    assert b"Usage: " in answer.stdout
    imported = re.findall(rb"\| +(\S+)\n", answer.stderr)
    assert b"kformer.cli.main" in imported
    assert b"tensorflow" not in imported


def test_translate_is_a_unix_filter(numbers_run):
    answer = kformer("translate", numbers_run, stdin=b"one two three\n\nsix one\r\nfive \xff two")
    lines = answer.stdout.decode("utf-8").split("\n")
    assert lines[:3] == ["tres dos uno", "", "uno seis"]
    assert len(lines) == 5  # four lines, each ended, the last of which had no line feed
    assert answer.stderr == b""


def test_translate_takes_files_a_beam_and_n_best(numbers_run, tmp_path):
    (tmp_path / "in").write_bytes(b"one two three\nsix one\n")
    answer = kformer(
        "translate", numbers_run, "--input", tmp_path / "in", "--output", tmp_path / "out", "--beam-size", 3,
        "--n-best", 2,
    )  # fmt: skip
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, b"", b"")
    lines = [line.split(" ||| ") for line in (tmp_path / "out").read_text("utf-8").splitlines()]
    assert [line[0] for line in lines] == ["0", "0", "1", "1"]
    assert [lines[0][1], lines[2][1]] == ["tres dos uno", "uno seis"]
    assert float(lines[0][2]) >= float(lines[1][2])
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


def test_a_saved_model_translates_the_same(numbers_run, exported):
    stdin = "\n".join(source for source, _ in toy.corpus().test).encode()
    assert kformer("translate", exported, stdin=stdin).stdout == kformer("translate", numbers_run, stdin=stdin).stdout


def test_evaluate_prints_one_line_of_json(exported, pairs_file):
    answer = kformer("evaluate", exported, "--test", pairs_file, "--limit", 50)
    scores = json.loads(answer.stdout)
    assert scores["sentences"] == 50
    assert scores["bleu"] > 90
    assert scores["chrf"] > 90
    assert "nrefs:1" in scores["bleu_signature"]
    assert answer.stdout.count(b"\n") == 1


def test_train_on_two_parallel_files_of_any_language_pair(tmp_path, config_file):
    train, valid = toy.corpus().train[:300], toy.corpus().valid[:20]
    for name, pairs in (("train", train), ("valid", valid)):
        for side, language in ((0, "source"), (1, "target")):
            with lzma.open(tmp_path / f"{name}.{language}.xz", "wt", encoding="utf-8") as file:
                file.writelines(pair[side] + "\n" for pair in pairs)
    answer = kformer(
        "train", "--train-source", tmp_path / "train.source.xz", "--train-target", tmp_path / "train.target.xz",
        "--valid-source", tmp_path / "valid.source.xz", "--valid-target", tmp_path / "valid.target.xz",
        "--output", tmp_path / "run", "--config", config_file, "--max-steps", 6,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr.decode()
    assert "6 steps: the budget of 6 steps is spent." in answer.stdout.decode()
    assert kformer("translate", tmp_path / "run", stdin=b"one\n").stdout.count(b"\n") == 1

    again = kformer(
        "train", "--train-source", tmp_path / "train.source.xz", "--train-target", tmp_path / "train.target.xz",
        "--valid-source", tmp_path / "valid.source.xz", "--valid-target", tmp_path / "valid.target.xz",
        "--output", tmp_path / "run", "--max-steps", 9, "--resume",
    )  # fmt: skip
    assert "9 steps: the budget of 9 steps is spent." in again.stdout.decode()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--output", "run"], "train needs exactly one of --corpus NAME, --train PAIRS.tsv"),
        (["train", "--output", "run", "--corpus", "nowhere"], "There is no corpus 'nowhere'. Known corpora:"),
        (["train", "--output", "run", "--train-source", "a"], "--train-source and --train-target go together"),
        (["train", "--output", "run", "--train", "no.tsv"], "no.tsv"),
        (["train", "--output", "run", "--corpus", "cmudict", "--valid", "v.tsv"], "Received: --valid without --train."),
        (
            ["train", "--output", "run", "--train", "a.tsv", "--valid-source", "v.de", "--valid-target", "v.en"],
            "Received: --valid-source without --train-source.",
        ),
        (["train", "--output", "run", "--corpus", "cmudict", "--size", "huge"], "There is no size 'huge'"),
        (["translate", "nowhere"], "nowhere does not exist. Name a run folder or a SavedModel."),
        (
            ["translate", "nowhere", "--input", "none.txt"],
            "none.txt is no regular file. Name a text file, or leave out --in",
        ),
        (["evaluate", "nowhere"], "evaluate needs exactly one of --corpus, --test and --recipe."),
        (["export", "nowhere", "out"], "nowhere is not a run folder"),
        (["demo", "--corpus", "nowhere"], "There is no demo for 'nowhere'. Choose one of bible-en-es, cmudict."),
    ],
)
def test_a_mistake_is_one_line_with_a_remedy(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["kformer", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1
    written = capsys.readouterr()
    assert written.err.startswith("kformer: ")
    assert message in written.err
    assert written.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_is_all_that_a_process_says(tmp_path):
    answer = kformer("translate", "nowhere", cwd=tmp_path, PYTHONPATH=os.getcwd())
    assert (answer.returncode, answer.stdout) == (1, b"")
    assert answer.stderr == b"kformer: nowhere does not exist. Name a run folder or a SavedModel.\n"


def test_a_run_goes_on_by_its_own_command_though_what_it_began_with_is_gone(numbers_run, pairs_file, monkeypatch):
    def trained(corpus, output, transformer, training, **options):
        assert transformer == RunFolder(numbers_run).transformer_config()
        assert training == RunFolder(numbers_run).training_config().replace(max_steps=7)
        assert options["resume"]
        return TrainingReport(RunFolder(output), 7, None, "trained")

    monkeypatch.setattr("kformer.training.train.train", trained)
    command = ["train", "--train", pairs_file, "--output", numbers_run, "--initialize-from", "gone"]
    monkeypatch.setattr(sys, "argv", ["kformer", *map(str, command), "--max-steps", "7", "--resume"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0


def test_a_size_beside_resume_is_compared_with_the_run(numbers_run, pairs_file, monkeypatch):
    def trained(corpus, output, transformer, training, **options):
        assert transformer == TransformerConfig.of_size("tiny")
        raise ValueError("compared")

    monkeypatch.setattr("kformer.training.train.train", trained)
    command = ["train", "--train", pairs_file, "--output", numbers_run, "--size", "tiny", "--resume"]
    answer = CliRunner().invoke(app, list(map(str, command)))
    assert str(answer.exception) == "compared"


def test_a_search_cannot_be_changed_in_a_saved_model(exported):
    answer = kformer("translate", exported, "--beam-size", 2)
    assert "its search was fixed when it was exported" in answer.stderr.decode()


def test_more_hypotheses_than_beams_are_refused(numbers_run):
    with pytest.raises(ValueError, match="Received: n_best=5, beam_size=4. Widen the beam."):
        load_model(numbers_run, n_best=5)


def test_line_feeds_inside_a_translation_do_not_add_lines(tmp_path):
    (tmp_path / "in").write_bytes(b"a\nb\n")
    with (tmp_path / "in").open("rb") as source, (tmp_path / "out").open("wb") as target:
        translate_lines(lambda texts: [[Hypothesis("x\ny\r", 0.0)] for _ in texts], source, target)
    assert (tmp_path / "out").read_bytes() == b"x y \nx y \n"


def test_many_lines_come_back_in_order(tmp_path):
    lines = [b"x" * (index * 7 % 31) + str(index).encode() for index in range(2500)]
    (tmp_path / "in").write_bytes(b"\n".join(lines))
    with (tmp_path / "in").open("rb") as source, (tmp_path / "out").open("wb") as target:
        translate_lines(lambda texts: [[Hypothesis(text.decode(), 0.0)] for text in texts], source, target)
    assert (tmp_path / "out").read_bytes().splitlines() == lines


def test_a_run_on_jax_translates_on_tensorflow(tmp_path, config_file, pairs_file):
    run = tmp_path / "run"
    answer = kformer(
        "train", "--train", pairs_file, "--output", run, "--config", config_file, "--max-steps", 3, KERAS_BACKEND="jax"
    )  # fmt: skip
    assert "3 steps: the budget of 3 steps is spent." in answer.stdout.decode(), answer.stderr.decode()
    assert kformer("translate", run, stdin=b"one\n").stdout.count(b"\n") == 1
    exporting = ["--output", tmp_path / "other", "--export", tmp_path / "exported"]
    refused = kformer("train", "--train", pairs_file, *exporting, KERAS_BACKEND="jax")
    assert "The export of the best weights runs on Keras's TensorFlow backend." in refused.stderr.decode()
    assert not (tmp_path / "other").exists()
    assert (
        "Start with KERAS_BACKEND=tensorflow"
        in kformer("translate", run, stdin=b"one\n", KERAS_BACKEND="jax").stderr.decode()
    )


@pytest.mark.slow
def test_demo_walks_the_whole_path(tmp_path):
    answer = kformer("demo", "--corpus", "cmudict", "--minutes", 0.3, "--output", tmp_path / "demo")
    assert answer.returncode == 0, answer.stderr.decode()
    text = answer.stdout.decode()
    for heading in ("1. Training", "2. Evaluating", "3. Exporting", "4. Using", "Done"):
        assert heading in text
    assert '"word_error_rate":' in text
    assert (tmp_path / "demo" / "export" / "1" / "saved_model.pb").is_file()


@pytest.mark.slow
def test_the_shipped_corpus_trains_by_name(tmp_path):
    run = tmp_path / "run"
    answer = kformer("train", "--corpus", "bible-en-es", "--output", run, "--size", "tiny", "--max-steps", 3)
    assert "3 steps: the budget of 3 steps is spent." in answer.stdout.decode(), answer.stderr.decode()
