"""The command line as a person uses it, mostly in processes of its own; and that its options arrive."""

import contextlib
import errno
import gzip
import io
import json
import lzma
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import sys
import threading

import pytest
import rich.console
import toy
import yaml
from typer.testing import CliRunner

from kformer.cli.main import app, main
from kformer.cli.progress import status
from kformer.config import SIZES, DecodingConfig, TrainingConfig, TransformerConfig
from kformer.data import Corpus
from kformer.export.ctranslate2 import CTranslate2Target
from kformer.export.safetensors import SafetensorsTarget
from kformer.export.saved_model import SavedModelTarget
from kformer.files.writing import WriteError, write_json
from kformer.inference import Model
from kformer.inference.find import reads_symbols
from kformer.inference.line_forms import NBest
from kformer.inference.lines import answer_lines, input_lines
from kformer.runs.folder import RunFolder
from kformer.runs.ownership import RunInUseError, owned
from kformer.runtime.export_description import DESCRIPTION_FILE, description
from kformer.tasks.translator import Translator
from kformer.text.batches import Hypothesis
from kformer.training.train import TrainingReport
from kformer.version import __version__

pytestmark = pytest.mark.tensorflow_only


def invoke(*arguments, exit_code=0):
    """Runs a command in this process."""
    answer = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert answer.exit_code == exit_code, answer.output
    return answer


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


@pytest.mark.parametrize("command", ["train", "translate", "evaluate", "export", "lint", "average", "pack", "demo"])
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
    message = (
        "kformer: warning: standard input: 1 line with bytes that are not text in UTF-8; .* is line 4: byte 0xff at"
    )
    assert re.fullmatch(message + ".*\n", answer.stderr.decode())


@pytest.mark.slow
@pytest.mark.in_ci
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


@pytest.mark.parametrize(
    "packed",
    [gzip.compress("\ufeffone two three\nsix one\n".encode()), "one two three\r\nsix one".encode("utf-16")],
    ids=["gzip", "UTF-16"],
)
def test_translate_reads_the_files_that_training_reads(packed, numbers_run, tmp_path):
    (tmp_path / "in").write_bytes(packed)
    answer = invoke("translate", numbers_run, "--input", tmp_path / "in", "--output", tmp_path / "out")
    assert (tmp_path / "out").read_text("utf-8") == "tres dos uno\nuno seis\n"
    assert answer.output == ""


def test_a_caller_that_writes_one_line_and_waits_is_answered(numbers_run):
    command = [sys.executable, "-m", "kformer", "translate", str(numbers_run)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        for line, answer in ((b"one two\n", b"dos uno\n"), (b"six one\n", b"uno seis\n")):
            process.stdin.write(line)
            assert select.select([process.stdout], [], [], 120)[0], "no answer"
            assert process.stdout.readline() == answer
        process.stdin.close()
        assert process.stdout.read() == b""
    assert process.returncode == 0


def test_an_output_that_would_replace_the_input_is_refused(numbers_run, tmp_path):
    (tmp_path / "in").write_bytes(b"one two\n")
    with pytest.raises(ValueError, match="in is the same file as .*in, which the answers would replace. Name another"):
        invoke("translate", numbers_run, "--input", tmp_path / "in", "--output", tmp_path / "in")
    assert (tmp_path / "in").read_bytes() == b"one two\n"


def test_train_tells_what_excel_and_pandas_write(pairs_file, tmp_path, monkeypatch):
    (tmp_path / "a.tsv").write_text("source\ttarget\n" + pairs_file.read_text("utf-8"), encoding="utf-8")
    trained_with(monkeypatch)
    told = invoke("train", "--train", tmp_path / "a.tsv", "--output", tmp_path / "run", "--size", "tiny").stderr
    assert "kformer: warning: " in told
    assert "a.tsv, line 1: 'source', 'target' look like names of the columns" in told


@pytest.mark.slow
def test_a_saved_model_translates_the_same(numbers_run, exported):
    stdin = "\n".join(source for source, _ in toy.corpus().test).encode()
    assert kformer("translate", exported, stdin=stdin).stdout == kformer("translate", numbers_run, stdin=stdin).stdout


def test_a_language_model_scores_the_first_texts_alone(tmp_path):
    texts = ["In the beginning.\n", "And the evening and the morning were the first day.\n"]
    found = []
    for number, chosen in enumerate((texts, texts[:1])):
        file = tmp_path / f"{number}.txt"
        file.write_text("".join(chosen))
        answer = invoke("evaluate", "--preset", "bible-english", "--test", file, "--limit", 1)
        found.append(json.loads(answer.stdout))
    assert found[0] == found[1]
    assert found[0]["texts"] == 1


def test_evaluate_prints_one_line_of_json(exported, pairs_file):
    answer = kformer("evaluate", exported, "--test", pairs_file, "--limit", 50)
    scores = json.loads(answer.stdout)
    assert scores["sentences"] == 50
    assert scores["bleu"] > 90
    assert scores["chrf"] > 90
    assert "nrefs:1" in scores["bleu_signature"]
    assert answer.stdout.count(b"\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "task"), [(("--task", "language-model"), "language-model"), ((), "masked-language-model")]
)
def test_the_task_of_an_option_comes_before_that_of_a_file(options, task, tmp_path):
    (tmp_path / "task.yaml").write_text("transformer:\n  task: masked-language-model\n")
    (tmp_path / "pairs.tsv").write_text("one\tuno\n")
    run, corpus = ("--output", tmp_path / "run"), ("--train", tmp_path / "pairs.tsv", "--columns", "source,target")
    arguments = map(str, ("train", *run, "--config", tmp_path / "task.yaml", *options, *corpus))
    with pytest.raises(ValueError, match=f"The task {task} reads plain text"):
        CliRunner().invoke(app, [*arguments], catch_exceptions=False)


@pytest.mark.slow
@pytest.mark.in_ci
def test_train_on_two_parallel_files_of_any_language_pair(tmp_path, config_file, untraced):
    train, valid = toy.corpus().train[:300], toy.corpus().valid[:20]
    command = ["train", "--output", tmp_path / "run"]
    for name, pairs in (("train", train), ("valid", valid)):
        for side, texts in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
            path = tmp_path / f"{name}.{side}.xz"
            with lzma.open(path, "wt", encoding="utf-8") as file:
                file.writelines(f"{text}\n" for text in texts)
            command += [f"--{name}-{side}", path]
    answer = invoke(*command, "--config", config_file, "--max-steps", 6)
    assert "6 steps: the budget of 6 steps is spent." in answer.stdout
    (tmp_path / "in").write_text("one\n")
    translated = invoke("translate", tmp_path / "run", "--input", tmp_path / "in", "--beam-size", 1)
    assert translated.stdout.count("\n") == 1
    assert "9 steps: the budget of 9 steps is spent." in invoke(*command, "--max-steps", 9, "--resume").stdout


# What a person gets wrong, and what is said. {run} is a run folder, {model} a SavedModel, {corpus} a file of two pairs.
MISTAKES = {
    "train without a corpus": ("train --output new", "train needs either --corpus NAME or files: --train PAIRS.tsv"),
    "train, unknown corpus": (
        "train --output new --corpus cmudic",
        "Known corpora: bible-en-es, cmudict, bible-books, ",
    ),
    "train, corpus alike": ("train --output new --corpus cmudic", "Did you mean 'cmudict'?"),
    "train, one of two files": ("train --output new --train-source a", "--train-source and --train-target go together"),
    "train, a signal that none can handle": (
        "train --output new --train {corpus} --stop-signal KILL",
        "--stop-signal must name a signal that can be handled, such as SIGUSR1. Received: KILL.",
    ),
    "train, a summary in place of the corpus": (
        "train --output new --train {corpus} --summary {corpus}",
        "{corpus} exists and is no summary of a run. Name another file, or remove it.",
    ),
    "train, a summary in place of the run": (
        "train --output new --train {corpus} --summary new",
        "The summary cannot be the run folder new itself.",
    ),
    "train, a summary in a folder that is a file": (
        "train --output new --train {corpus} --summary {corpus}/end.json",
        "corpus cannot be a folder: it is a file.",
    ),
    "train, missing file": ("train --output new --train no.tsv", "no.tsv does not exist. Pass the name of a file."),
    "train, pairs to validate on": (
        "train --output new --corpus cmudict --valid v.tsv",
        "Leave out --valid, or give files: --train.",
    ),
    "train, parallel files to validate on": (
        "train --output new --train a --train-source b --train-target c --valid-source d --valid-target e",
        "Received: 0 --valid and 1 --train.",
    ),
    "train, tags of parallel files": (
        "train --output new --train-source {corpus} --train-target {corpus} --inline-tags keep",
        "--columns, --fields and --inline-tags say what is read of a file. Give them together with --train.",
    ),
    "train, columns of a corpus": (
        "train --output new --corpus cmudict --columns id,source,target",
        "--columns, --fields and --inline-tags say what is read of a file. Give them together with --train.",
    ),
    "train, columns and fields": (
        "train --output new --train {corpus} --columns source,target --fields a,b",
        "--columns names the columns of a file without a header, and --fields those that a header names. Received: b",
    ),
    "train, columns of a table": (
        "train --output new --train no.csv --columns source,target",
        "--columns names the columns of tab-separated files, and no.csv is none. Leave it out, or name its fields by",
    ),
    "train, columns without a source": (
        "train --output new --train {corpus} --columns left,target",
        'columns must name "source" and "target", and each column once',
    ),
    "train, unknown size": ("train --output new --corpus cmudict --size smal", "There is no size 'smal'."),
    "train, size alike": ("train --output new --corpus cmudict --size smal", "Did you mean 'small'?"),
    "train, unknown recipe": ("train --output new --recipe cmudic", "There is no recipe 'cmudic'."),
    "train, recipe alike": ("train --output new --recipe cmudic", "Did you mean 'cmudict'?"),
    "train, size and recipe": ("train --output new --recipe cmudict --size tiny", "A recipe has its own sizes"),
    "train, unknown monitor": (
        "train --output new --corpus cmudict --monitor blue",
        "monitor must be one of loss, perplexity, accuracy, bleu, chrf, ter, word_error_rate, phoneme_error_rate. ",
    ),
    "train, translations of a classifier": (
        "train --output new --task classify --train {corpus} --monitor bleu",
        "A model of the task classify gives no translations to score. Received: monitor='bleu', scored_sources=None.",
    ),
    "train, translations of a language model": (
        "train --output new --recipe bible-english --monitor bleu",
        "A model of the task language-model gives no translations to score. Received: monitor='bleu', scored_sources=0",
    ),
    "train, other labels to validate on": (
        "train --output new --task classify --train {corpus}",
        "has no validation label that is also a training label. Received: 'dos' to validate on, and 'uno' to train on.",
    ),
    "train, columns of plain text": (
        "train --output new --task language-model --train {corpus} --columns source,target",
        "The task language-model reads plain text, a text on each line. Leave out --columns.",
    ),
    "train, a second text to translate": (
        "train --output new --train {corpus} --columns source,second,target",
        "A column second is the second text of a classifier. Received: --columns source,second,target for the task tr",
    ),
    "train, export of what answers nothing": (
        "train --output new --task masked-language-model --train {corpus} --export out",
        "A model of the task masked-language-model answers nothing by itself. Leave out --export.",
    ),
    "train, first weights of another kind of model": (
        "train --output new --train {corpus} --initialize-from bible-books",
        "A model of the task translate can begin with the weights of a run of: translate. Received: a run of the task",
    ),
    "train, no decoder": (
        "train --output new --corpus cmudict --config {shallow}",
        "A model of the task translate needs num_encoder_layers and num_decoder_layers of at least 1. Received: num_d",
    ),
    "evaluate, search of a classifier": (
        "evaluate --preset bible-books --corpus bible-books --beam-size 3",
        "has learned the task classify, which needs no search. Leave out --beam-size and --length-penalty.",
    ),
    "evaluate, search of a language model": (
        "evaluate --preset bible-english --test {corpus} --beam-size 2",
        "The scores of a model of the task language-model need no search. Leave out --beam-size.",
    ),
    "evaluate, unknown tokenizer of BLEU": (
        "evaluate {run} --test {corpus} --bleu-tokenizer chars",
        "The tokenizer of BLEU must be one of 13a, intl, zh, ja-mecab, ko-mecab, char, flores101, flores200, none. "
        "Received: 'chars'. Did you mean 'char'?",
    ),
    "evaluate, tokenizer of BLEU for labels": (
        "evaluate --preset bible-books --corpus bible-books --bleu-tokenizer char",
        "--bleu-tokenizer is for translations of sentences, which BLEU scores. Leave it out.",
    ),
    "evaluate, an export of a language model": (
        "evaluate {english} --test {corpus}",
        "{english} is an export. Perplexity is that of a run folder: name it.",
    ),
    "evaluate against a model of another task": (
        "evaluate {run} --test {corpus} --against {english}",
        "{english} has learned the task language-model. Expected: a model of the task translate. Use `kformer gen",
    ),
    "evaluate, columns of plain text": (
        "evaluate --preset bible-english --test {corpus} --columns source,target",
        "A language model reads plain text, a text on each line. Leave out --columns.",
    ),
    "train, no budget": ("train --output new --corpus cmudict --max-steps 0", "max_steps must be greater than 0"),
    "train, missing configuration": (
        "train --output new --corpus cmudict --config no.yaml",
        "There is no file no.yaml. Name a JSON or YAML file that exists.",
    ),
    "train, folder as configuration": (
        "train --output new --corpus cmudict --config {run}.yaml",
        "run.yaml cannot be read: Is a directory. Name a JSON or YAML file that you may read.",
    ),
    "train, unknown key": (
        "train --output new --corpus cmudict --config {keys}",
        "{keys}: TransformerConfig has no field 'dropout'.",
    ),
    "train, key alike": ("train --output new --corpus cmudict --config {keys}", "Did you mean 'dropout_rate'?"),
    "train, too few positions": (
        "train --output new --corpus cmudict --config {learned}",
        "The transformer has 8 learned positions, and training takes pairs of up to 128 tokens. Raise the transformer",
    ),
    "train, unknown beginning": (
        "train --output new --corpus cmudict --initialize-from bible",
        "There is no preset 'bible'.",
    ),
    "train, run there already": ("train --output {run} --corpus cmudict", "run holds a run already. Go on with it by"),
    "train, nothing to resume": ("train --output new --corpus cmudict --resume", "there is nothing to resume"),
    "train, resume without the corpus": (
        "train --output {run} --resume",
        "Received: neither. Give the corpus that this run began with: mine.tsv.",
    ),
    "train, the beginning of corpora's names": (
        "train --output new --corpus bible",
        "Did you mean 'bible-en-es', 'bible-books', 'bible-next', 'bible-punctuation'?",
    ),
    "train, file in the way": (
        "train --output {corpus}/new --corpus cmudict",
        "cannot be a folder: {corpus} is a file. Name another folder.",
    ),
    "train, file in the way of exports": (
        "train --output new --corpus cmudict --export {corpus}",
        "{corpus} cannot be a folder: it is a file. Name another folder.",
    ),
    "export, a server that lacks an operation": (
        "export {run} out --precision int8 --server-version 2.12",
        "TensorFlow Serving 2.12 lacks operations of this export: _QuantizedMatMul. Choose the precision float32 or",
    ),
    "translate without a model": ("translate", "Name one model: a folder, or a model that comes with kformer by"),
    "translate, missing model": ("translate nowhere", "nowhere does not exist. Name a run folder or a SavedModel."),
    "translate, a preset as a folder": ("translate cmudict", "cmudict does not exist. It is a model that comes with"),
    "export, missing run": ("export nowhere out", "nowhere does not exist. Name the folder that `kformer train"),
    "import, a run folder": ("import {run} out", "is a run folder of kformer already. Use it as it is; or"),
    "translate, no model there": ("translate {empty}", "empty is not a run folder: it has no transformer.json."),
    "translate, two models": ("translate {run} --preset cmudict", "Name one model"),
    "translate, unknown preset": ("translate --preset cmudic", "There is no preset 'cmudic'."),
    "translate, preset alike": ("translate --preset cmudic", "Did you mean 'cmudict'?"),
    "translate, missing input": (
        "translate {run} --input no.txt",
        "no.txt does not exist. Name a text file, or leave out --input to read a pipe.",
    ),
    "translate a folder": ("translate {run} --input {empty}", "{empty} is not a regular file. Name a text file, or "),
    "translate, fields of a pipe": (
        "translate {run} --fields text",
        "--fields, --keep and --inline-tags say what is read of a file. Give --input, too.",
    ),
    "translate, inline tags of lines": (
        "translate {run} --input {corpus} --inline-tags keep",
        "--inline-tags is for a .tmx. Received: {corpus}. Leave it out.",
    ),
    "translate, alignments of what is drawn": (
        "translate {run} --alignments --format tsv --temperature 1",
        "--alignments are for one translation, found by a search. Leave out --temperature and --n-best.",
    ),
    "translate, drawn from whole lines": (  # how a line is divided is no search
        "translate nowhere --temperature 1 --max-source-length 20",
        "nowhere does not exist. Name a run folder or a SavedModel.",
    ),
    "translate, several servers without a folder": (
        "translate --server http://a:1/v1/models/m,http://b:1/v1/models/m",
        "Several servers answer a job. Name its folder by --output FOLDER/, or one server.",
    ),
    "classify, a field beside three texts": (
        "classify --server http://a:1/v1/models/m --input {corpus} --fields a,b,c --keep id --format tsv",
        "--keep names a field of a table, beside that of the text, or those of the two texts of a pair. Received: "
        "--fields a,b,c. Name them",
    ),
    "translate a pipe into a folder": ("translate {run} --output {empty}", "A job reads files. Name each by --input"),
    "translate into a file": (
        "translate {run} --output {corpus}/out",
        "{corpus} cannot be a folder: it is a file. Name another folder.",
    ),
    "export in no format": ("export {run} {empty}/new --format ctranslate3", "There is no format 'ctranslate3'"),
    "export in a precision of another format": (
        "export {run} {empty}/new --format ctranslate2 --precision bfloat16",
        "float32, float16, int16, int8 in the format ctranslate2",
    ),
    "export for a server in another format": (
        "export {run} {empty}/new --format safetensors --server-version 2.17",
        "--signature and --server-version are for the format saved_model. Received: --format safetensors",
    ),
    "export of a variant in another format": (
        "export {run} {empty}/new --format ctranslate2 --variant xla",
        "--signature and --server-version are for the format saved_model. Received: --format ctranslate2",
    ),
    "export with signatures of another format": (
        "export {run} {empty}/new --format ctranslate2 --signature score",
        "--signature and --server-version are for the format saved_model",
    ),
    "translate, search of a SavedModel": (
        "translate {model} --beam-size 2",
        "its search was fixed when it was exported",
    ),
    "translate, recipe and SavedModel": ("translate {model} --recipe cmudict", "its search was fixed when it was ex"),
    "translate, n-best of a SavedModel": ("translate {model} --n-best 2", "its search was fixed when it was exported"),
    "translate, more hypotheses than beams": ("translate {run} --n-best 5", "Received: n_best=5, beam_size=4. Widen"),
    "translate, a beam that is too narrow": (
        "translate {run} --beam-size 2 --n-best 3",
        "Received: n_best=3, beam_size=2. Widen",
    ),
    "translate, greedy with a penalty": (
        "translate {run} --beam-size 1 --length-penalty 1",
        "A greedy search (a beam of 1) has no length penalty. Leave out --length-penalty, or choose a wider beam",
    ),
    "evaluate without a test set": ("evaluate {run}", "There must be one test set. Give --corpus or --test"),
    "evaluate, two test sets": ("evaluate {run} --corpus cmudict --test {corpus}", "There must be one test set."),
    "evaluate, missing file": ("evaluate {run} --test no.tsv", "no.tsv does not exist. Pass the name of a file."),
    "evaluate, unknown split": (
        "evaluate {run} --corpus cmudict --split vald",
        "--split must be one of train, valid, test. Received: vald. Did you mean 'valid'?",
    ),
    "evaluate, split of a file": ("evaluate {run} --test {corpus} --split test", "a file has no parts. Leave out"),
    "evaluate, columns of a corpus": (
        "evaluate {run} --corpus cmudict --columns source,target",
        "Give them together with --test.",
    ),
    "evaluate, search of a SavedModel": (
        "evaluate {model} --test {corpus} --length-penalty 1",
        "its search was fixed when it was exported",
    ),
    "export without a model": (
        "export out",
        "export needs two folders, RUN and DIR, or --preset NAME and DIR. Received: only out. For example: kformer ex",
    ),
    "export without a folder": ("export {run}", "Received: only {run}. For example: kformer export runs/mine exported"),
    "export, three folders": ("export {run} out more", "export needs RUN and DIR. Received: 3 folders."),
    "export, missing model": ("export nowhere out", "nowhere does not exist. Name the folder that"),
    "export into a run folder": ("export --preset cmudict {run}", "run is a run folder. Name another folder for the"),
    "export into a file": ("export {run} {corpus}", "{corpus} cannot be a folder: it is a file. Name another folder."),
    "export, unknown precision": (
        "export {run} out --precision int4",
        "precision must be one of float32, bfloat16, int8 in the format saved_model. Received: 'int4'.",
    ),
    "export, unknown variant": ("export {run} out --variant gpu", "variant must be one of portable, xla."),
    "export, xla in bytes": ("export {run} out --variant xla --precision int8", "The variant xla computes in float32."),
    "export, unknown recipe": ("export {run} out --recipe no", "There is no recipe 'no'."),
    "average, missing run": ("average nowhere new", "nowhere does not exist. Name the folder that"),
    "average, too many": ("average {run} new --last 2", "has kept the weights of 1 validations. Received: last=2."),
    "average into a folder": ("average {run} {empty}", "empty exists already. Name another folder."),
    "pack, missing run": ("pack nowhere new", "nowhere does not exist. Name the folder that"),
    "pack into a folder": ("pack {run} {empty}", "empty exists already. Name another folder."),
    "pack, missing words": ("pack {run} new --about no.yaml", "There is no file no.yaml."),
    "pack, unknown words": (
        "pack {run} new --about {about}",
        "Received: license. Rename or remove the unknown ones. Did you",
    ),
    "pack, missing samples": ("pack {run} new --samples no.txt", "no.txt does not exist. Pass the name of a file"),
    "import, missing samples": (
        "import {marian} new --samples no.txt",
        "no.txt does not exist. Pass the name of a file",
    ),
    "demo, unknown corpus": (
        "demo --corpus bible",
        "There is no demo for 'bible'. Choose one of bible-en-es, cmudict.",
    ),
    "demo into a full folder": ("demo --output {run}", "run is not empty. Remove it, or name another folder with"),
    "demo into a file": ("demo --output {corpus}", "{corpus} is a file. Name another folder."),
    "demo, no time": ("demo --minutes 0", "max_minutes must be greater than 0 and finite. Received: max_minutes=0"),
}

# Runs each command of a list; tells how it ended, what it wrote, and whether it has loaded what takes seconds.
RUN_COMMANDS = """
import contextlib, io, json, sys
from kformer.cli.main import main
answers = []
for arguments in json.load(sys.stdin):
    sys.argv, code = ["kformer", *arguments], None
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            main()
        except SystemExit as end:
            code = end.code
    slow = sorted({"jax", "keras", "tensorflow", "tensorflow_datasets", "tensorflow_text"} & set(sys.modules))
    answers.append([code, out.getvalue(), err.getvalue(), slow])
json.dump(answers, sys.stdout)
"""


def note_kind_of_tokenizer(run, kind):
    """Writes what commands read of a tokenizer before they start TensorFlow."""
    write_json(run.tokenizer_folder / "source" / "tokenizer.json", {"kind": kind})
    run.note_files()


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """The folders and files that MISTAKES name: they have what a command looks at before it starts TensorFlow."""
    folder = tmp_path_factory.mktemp("places")
    run = RunFolder(folder / "run")
    run.path.mkdir()
    TransformerConfig().save(run.transformer_file)
    toy.TRAINING.save(run.training_file)
    run.write_corpus({"name": "mine.tsv", "symbols": False})
    note_kind_of_tokenizer(run, "sentencepiece")
    run.weights_folder.mkdir()
    for file in (run.best_weights_file, run.weights_folder / "step-000000001.weights.h5"):
        file.touch()
    (folder / "run.yaml").mkdir()
    (folder / "empty").mkdir()
    (folder / "model").mkdir()
    (folder / "model" / "saved_model.pb").touch()
    (folder / "corpus").write_text("one\tuno\ntwo\tdos\n")
    (folder / "keys.yaml").write_text("transformer: {dropout: 0.1}\n")
    (folder / "learned.yaml").write_text("transformer: {positional_encoding: learned, max_length: 8}\n")
    (folder / "shallow.yaml").write_text("transformer: {num_decoder_layers: 0}\n")
    (folder / "about.yaml").write_text("license: MIT\n")
    (folder / "english" / DESCRIPTION_FILE).parent.mkdir(parents=True)
    (folder / "english" / DESCRIPTION_FILE).write_text('{"task": "language-model"}')
    (folder / "english" / "saved_model.pb").touch()
    names = {name: str(folder / name) for name in ("run", "empty", "model", "corpus", "english")}
    return {
        **names,
        "keys": str(folder / "keys.yaml"),
        "learned": str(folder / "learned.yaml"),
        "shallow": str(folder / "shallow.yaml"),
        "about": str(folder / "about.yaml"),
        "marian": str(pathlib.Path(__file__).parents[1] / "importing" / "examples" / "marian"),
    }


@pytest.fixture(scope="module")
def answers(places, tmp_path_factory):
    """What is said to each of MISTAKES, in one process, in an empty folder; and what is in that folder afterwards."""
    folder = tmp_path_factory.mktemp("here")
    commands = [command.format(**places).split() for command, _ in MISTAKES.values()]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), os.getenv("PYTHONPATH")]))}
    answer = subprocess.run(
        [sys.executable, "-c", RUN_COMMANDS],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env=environment,
    )
    return dict(zip(MISTAKES, json.loads(answer.stdout), strict=True)), list(folder.iterdir())


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_with_a_remedy_said_before_tensorflow_starts(mistake, answers, places):
    code, out, err, slow = answers[0][mistake]
    assert MISTAKES[mistake][1].format(**places) in err
    assert err.startswith("kformer: ")
    assert err.count("\n") == 1
    assert (code, out, slow) == (1, "", [])
    assert answers[1] == []


def test_a_mistake_is_all_that_a_process_says(tmp_path):
    answer = kformer("translate", "nowhere", cwd=tmp_path, PYTHONPATH=os.getcwd())
    assert (answer.returncode, answer.stdout) == (1, b"")
    assert answer.stderr == b"kformer: nowhere does not exist. Name a run folder or a SavedModel.\n"


def test_the_version_is_told():
    assert invoke("--version").stdout == f"kformer {__version__}\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("kformer ev", {"evaluate"}),
        ("kformer translate --preset c", {"cmudict"}),
        ("kformer train --size ", {*SIZES}),
        ("kformer export --precision b", {"bfloat16"}),
        ("kformer translate --beam-size 1 --beam-size 2 --preset c", {"cmudict"}),  # a mistake that is told later
    ],
)
def test_a_shell_completes_commands_and_names(words, expected, monkeypatch, capsys):
    variables = {"_KFORMER_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["kformer"])
    with pytest.raises(SystemExit):
        main()
    assert set(capsys.readouterr().out.split()) == expected


def trained_with(monkeypatch):
    """Puts a function in the place of training; the list gets its arguments, each time by name."""
    calls = []

    def trained(corpus, output, transformer, training, **options):
        calls.append({"corpus": corpus, "transformer": transformer, "training": training, **options})
        return TrainingReport(RunFolder(output), 7, None, "trained", interrupted="interrupted" in str(output))

    monkeypatch.setattr("kformer.training.train.train", trained)
    monkeypatch.setattr(RunFolder, "training_config", lambda run: TrainingConfig())
    return calls


@pytest.mark.parametrize(
    ("option", "field", "value"),
    [
        ("--max-minutes", "max_minutes", 2.5),
        ("--max-epochs", "max_epochs", 3),
        ("--max-steps", "max_steps", 7),
        ("--monitor", "monitor", "bleu"),
        ("--source-tokenizer", "source_tokenizer", "en.model"),
        ("--target-tokenizer", "target_tokenizer", "es.model"),
        ("--user-symbols", "user_symbols", "<2es> {0}"),
        ("--source-embeddings", "source_embeddings", "en.vec"),
        ("--target-embeddings", "target_embeddings", "es.vec"),
    ],
)
def test_train_hands_its_options_on(option, field, value, pairs_file, tmp_path, monkeypatch):
    calls = trained_with(monkeypatch)
    invoke("train", "--train", pairs_file, "--output", tmp_path / "run", option, value)
    assert calls[0]["training"] == TrainingConfig.of_size("small", **{field: value})
    assert calls[0]["transformer"] == TransformerConfig.of_size("small")


@pytest.mark.parametrize(("option", "value"), [("--no-train-embeddings", False), ("--train-embeddings", True)])
def test_train_hands_on_whether_embeddings_are_trained(option, value, pairs_file, tmp_path, monkeypatch):
    calls = trained_with(monkeypatch)
    invoke("train", "--train", pairs_file, "--output", tmp_path / "run", option)
    assert calls[0]["training"].train_embeddings == value


def test_train_hands_on_where_to_begin_to_export_and_on_what_to_run(pairs_file, tmp_path, monkeypatch):
    calls = trained_with(monkeypatch)
    options = ["--initialize-from", "cmudict", "--export", tmp_path / "exported", "--devices", 2]
    invoke("train", "--train", pairs_file, "--output", tmp_path / "run", *options)
    names = ("initialize_from", "export_to", "devices", "resume")
    assert {name: calls[0][name] for name in names} == {
        "initialize_from": "cmudict", "export_to": tmp_path / "exported", "devices": 2, "resume": False,
    }  # fmt: skip


def test_train_hands_on_how_it_may_be_stopped_and_resumed(pairs_file, tmp_path, monkeypatch):
    calls = trained_with(monkeypatch)
    options = ["--auto-resume", "--stop-signal", "SIGUSR1", "--stop-signal", "usr2", "--summary", tmp_path / "end.json"]
    invoke("train", "--train", pairs_file, "--output", tmp_path / "run", *options)
    assert {name: calls[0][name] for name in ("resume", "stop_signals", "summary")} == {
        "resume": "auto", "stop_signals": [signal.SIGUSR1, signal.SIGUSR2], "summary": tmp_path / "end.json",
    }  # fmt: skip


def test_a_run_that_was_interrupted_ends_with_a_status_of_its_own(pairs_file, tmp_path, monkeypatch):
    trained_with(monkeypatch)
    answer = invoke("train", "--train", pairs_file, "--output", tmp_path / "interrupted", exit_code=75)
    assert "7 steps: trained." in answer.stdout


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError("no such field"), 1),
        (FileNotFoundError("no such file"), 1),
        (FloatingPointError("nan"), 3),
        (WriteError("File too large. The run ended"), 74),
        (OSError(errno.ENOSPC, "No space left on device"), 74),
        (ConnectionError("process 1 was lost"), 75),
        (RunInUseError("Another process trains"), 75),
        (KeyboardInterrupt("Ctrl-C"), 130),
    ],
)
def test_the_exit_status_and_the_summary_tell_the_kind_of_an_error(error, status, pairs_file, tmp_path, monkeypatch):
    def fails(*arguments, **options):
        assert not summary.exists()  # that of an earlier run would deceive if this one were killed
        raise error

    monkeypatch.setattr("kformer.training.train.train", fails)
    summary = tmp_path / "end.json"
    summary.write_text('{"exit_status": 0}')  # of an earlier run
    command = ["kformer", "train", "--train", pairs_file, "--output", tmp_path / "run", "--summary", summary]
    monkeypatch.setattr(sys, "argv", [str(part) for part in command])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == status
    assert json.loads(summary.read_text()) == {"exit_status": status, "reason": str(error)}


def test_a_summary_takes_the_place_of_what_a_link_leads_to_and_goes_through_a_pipe(pairs_file, tmp_path, monkeypatch):
    """A scheduler may read it from a pipe, and in a container it may be a device: neither is a file to remove."""
    monkeypatch.setattr("kformer.training.train.train", lambda *_, **__: pytest.fail("no training"))
    (tmp_path / "earlier.json").write_text('{"exit_status": 0}')
    (tmp_path / "link").symlink_to(tmp_path / "earlier.json")
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    for name in ("link", "pipe"):
        command = ["kformer", "train", "--train", pairs_file, "--output", tmp_path / "none", "--resume"]
        monkeypatch.setattr(sys, "argv", [str(part) for part in [*command, "--summary", tmp_path / name]])
        with pytest.raises(SystemExit):
            main()
    assert (tmp_path / "link").is_symlink()
    written = [(tmp_path / "earlier.json").read_bytes(), os.read(reader, 65536)]
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()
    assert [json.loads(text)["exit_status"] for text in written] == [1, 1]


def test_a_refused_process_leaves_the_summary_of_the_owner_alone(pairs_file, tmp_path, monkeypatch, capsys):
    (tmp_path / "end.json").write_text("of the owner")
    command = ["kformer", "train", "--train", pairs_file, "--output", tmp_path / "run", "--auto-resume"]
    command += ["--summary", tmp_path / "end.json"]
    monkeypatch.setattr(sys, "argv", [str(part) for part in command])
    monkeypatch.setattr("kformer.cli.train.start_tensorflow", lambda: pytest.fail("The refusal took seconds."))
    with owned(tmp_path / "run"), pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 75
    assert "Another process works in" in capsys.readouterr().err
    assert (tmp_path / "end.json").read_text() == "of the owner"


def test_a_mistake_that_is_found_before_the_training_is_in_the_summary(pairs_file, tmp_path, monkeypatch):
    summary = tmp_path / "end.json"
    summary.write_text('{"exit_status": 75}')  # of an earlier run
    command = ["kformer", "train", "--train", pairs_file, "--output", tmp_path / "none", "--resume"]
    monkeypatch.setattr(sys, "argv", [str(part) for part in [*command, "--summary", summary]])
    with pytest.raises(SystemExit):
        main()
    assert json.loads(summary.read_text())["exit_status"] == 1
    assert "there is nothing to resume" in json.loads(summary.read_text())["reason"]


CLOSED = """
import os, sys
from kformer.cli.main import main
sys.argv = ["kformer", "--version"]
try:
    main()
finally:
    descriptor = os.open(sys.executable, os.O_RDONLY)
    assert descriptor > 2, "A file got the number of a standard stream, to which libraries print."
"""


@pytest.mark.parametrize("closed", [">&-", "<&-", ">&- 2>&- <&-"])
def test_standard_streams_may_be_closed(closed):
    command = f"exec '{sys.executable}' -c '{CLOSED}' {closed}"
    assert subprocess.run(["sh", "-c", command], check=False, capture_output=True).returncode == 0


def test_a_further_signal_before_the_training_ends_the_command_as_ctrl_c_does(pairs_file, tmp_path, monkeypatch):
    def fails(*arguments, **options):
        os.kill(os.getpid(), signal.SIGUSR1)

    monkeypatch.setattr("kformer.cli.train.start_tensorflow", fails)
    former, summary = signal.getsignal(signal.SIGUSR1), tmp_path / "end.json"
    command = ["kformer", "train", "--train", pairs_file, "--output", tmp_path / "run", "--stop-signal", "SIGUSR1"]
    monkeypatch.setattr(sys, "argv", [str(part) for part in [*command, "--summary", summary]])
    try:
        with pytest.raises(SystemExit) as end:
            main()
    finally:
        signal.signal(signal.SIGUSR1, former)
    assert (end.value.code, json.loads(summary.read_text())["exit_status"]) == (130, 130)


def test_only_the_first_of_several_processes_writes_the_summary(pairs_file, tmp_path, monkeypatch):
    several = ["--num-processes", "2", "--process-id", "1", "--coordinator", "localhost:1", "--stop-signal", "KILL"]
    command = ["kformer", "train", "--train", pairs_file, "--output", tmp_path / "run", *several]
    monkeypatch.setattr(sys, "argv", [str(part) for part in [*command, "--summary", tmp_path / "end.json"]])
    with pytest.raises(SystemExit):
        main()
    assert not (tmp_path / "end.json").exists()


def test_a_few_pairs_are_told_to_be_too_few(pairs_file, tmp_path, monkeypatch):
    trained_with(monkeypatch)
    (tmp_path / "few.tsv").write_text("one\tuno\ntwo\tdos\n")
    few = invoke("train", "--train", tmp_path / "few.tsv", "--valid", pairs_file, "--output", tmp_path / "run")
    assert "kformer: warning: 2 pairs are too few to learn a translation from." in few.stderr
    enough = invoke("train", "--train", pairs_file, "--valid", pairs_file, "--output", tmp_path / "other")
    assert "too few" not in enough.stderr  # there are 100
    assert "chance decides" not in few.stderr + enough.stderr


def test_a_few_validation_pairs_are_told_to_decide_by_chance(pairs_file, tmp_path, monkeypatch):
    calls = trained_with(monkeypatch)
    (tmp_path / "valid.tsv").write_text("one\tuno\n" * 19)
    few = invoke("train", "--train", pairs_file, "--valid", tmp_path / "valid.tsv", "--output", tmp_path / "run")
    assert "kformer: warning: with 19 validation pairs, chance decides which weights are the best." in few.stderr
    held_out = invoke("train", "--train", pairs_file, "--output", tmp_path / "run")
    assert "kformer: warning: with 10 validation pairs," in held_out.stderr
    assert [len(call["corpus"].valid) for call in calls] == [19, 10]  # one in 10 of 100


def test_a_few_texts_are_enough_for_labels_and_a_few_validation_pairs_for_a_choice(tmp_path, monkeypatch):
    trained_with(monkeypatch)
    (tmp_path / "labels.tsv").write_text("one\tlow\ntwo\thigh\n" * 9)
    (tmp_path / "valid.tsv").write_text("three\thigh\n" * 20)
    files = ["--train", tmp_path / "labels.tsv", "--valid", tmp_path / "valid.tsv"]
    told = invoke("train", *files, "--task", "classify", "--output", tmp_path / "run").stderr
    assert "too few" not in told
    assert "chance decides" not in told


@pytest.mark.parametrize(
    ("monitor", "best", "interrupted", "told"),
    [
        ("loss", 2.34567, False, "1,200 steps: trained. Best validation loss 2.3457. The run is in {run}.\n"),
        ("loss", 0.0, False, "Best validation loss 0.0000. The run is in {run}.\n"),
        ("bleu", 0.0, False, "Best validation bleu 0.0000, so the loss decided which weights are kept. The run is in"),
        ("loss", None, True, "loss none. The run is in {run}.\nTo go on, give the same command with --resume.\n"),
    ],
)
def test_the_end_of_a_run_is_told(monitor, best, interrupted, told, pairs_file, tmp_path, monkeypatch):
    report = TrainingReport(RunFolder(tmp_path / "run"), 1200, best, "trained", interrupted)
    monkeypatch.setattr("kformer.training.train.train", lambda *_, **__: report)
    monkeypatch.setattr(RunFolder, "training_config", lambda run: TrainingConfig(monitor=monitor))
    command = ["train", "--train", pairs_file, "--output", tmp_path / "run"]
    printed = invoke(*command, exit_code=75 if interrupted else 0).stdout
    assert told.format(run=tmp_path / "run") in printed
    assert ("--resume" in printed) == interrupted


def test_validation_pairs_are_called_by_their_own_file(pairs_file, tmp_path, monkeypatch):
    calls = trained_with(monkeypatch)
    (tmp_path / "dev.tsv").write_text("one\tuno\n" * 20)
    invoke("train", "--train", pairs_file, "--valid", tmp_path / "dev.tsv", "--output", tmp_path / "run")
    invoke("train", "--train", pairs_file, "--output", tmp_path / "run")
    names = [[call["corpus"].name_of(part) for part in ("train", "valid")] for call in calls]
    assert names == [[str(pairs_file), str(tmp_path / "dev.tsv")], [str(pairs_file)] * 2]


def test_columns_choose_what_is_read(tmp_path, monkeypatch):
    calls = trained_with(monkeypatch)
    lines = {"train": "uno\tTatoeba\tone\n" * 2, "valid": "dos\tTatoeba\ttwo\n"}
    for part, text in lines.items():
        (tmp_path / f"{part}.tsv").write_text(text)
    files = ["--train", tmp_path / "train.tsv", "--valid", tmp_path / "valid.tsv"]
    invoke("train", *files, "--columns", "target,attribution,source", "--output", tmp_path / "run")
    assert list(calls[0]["corpus"].train) == [("one", "uno")] * 2
    assert list(calls[0]["corpus"].valid) == [("two", "dos")]


@pytest.fixture
def loaded(monkeypatch):
    """Puts a translator that answers with the source in the place of a model; gives how models were loaded."""
    calls = []

    def load(model):
        calls.append({"path": model.path, "decoding": model.decoding, "n_best": model.n_best, "texts": []})
        return model

    def answer(model, texts):
        calls[-1]["texts"] += texts
        for text in texts if model.on_unknown else []:
            if text.removeprefix(b"<ES> ").isupper():
                model.on_unknown(text)
        return [[Hypothesis(text.decode(), 0.0)] * model.n_best for text in texts]

    monkeypatch.setattr(Model, "load", load)
    monkeypatch.setattr(Model, "__call__", answer)
    return calls


@pytest.fixture
def three_parts(monkeypatch):
    """A corpus by the name "letters" whose parts tell their names."""
    parts = {part: [(f"{part} {number}", "x") for number in range(3)] for part in ("train", "valid", "test")}
    monkeypatch.setattr("kformer.cli.options.load_corpus", lambda name: Corpus(name=name, **parts))


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_evaluate_translates_the_part_that_split_names(split, three_parts, loaded, places):
    invoke("evaluate", places["run"], "--corpus", "letters", "--split", split)
    assert set(loaded[0]["texts"]) == {f"{split} {number}".encode() for number in range(3)}


def test_evaluate_translates_the_test_part_by_default_and_no_more_than_the_limit(three_parts, loaded, places):
    scores = json.loads(invoke("evaluate", places["run"], "--corpus", "letters", "--limit", 2).stdout)
    assert set(loaded[0]["texts"]) == {b"test 0", b"test 1"}
    assert scores["sentences"] == 2


def test_evaluate_reads_the_columns_of_a_file(loaded, places, tmp_path):
    (tmp_path / "test.tsv").write_text("7\tone\tuno\n")
    invoke("evaluate", places["run"], "--test", tmp_path / "test.tsv", "--columns", "id,source,target")
    assert loaded[0]["texts"] == [b"one"]


def test_evaluate_leaves_out_sources_without_a_reference_and_tells_it(loaded, places, tmp_path):
    (tmp_path / "test.tsv").write_text("one\tuno\ntwo\t \n\nthree\t\nfour\tcuatro\n")
    run = invoke("evaluate", places["run"], "--test", tmp_path / "test.tsv")
    assert sorted(loaded[0]["texts"]) == [b"four", b"one"]
    assert json.loads(run.stdout)["sentences"] == 2
    assert "kformer: left out, because the target is blank: 2 pairs." in run.stderr


def test_evaluate_tells_how_bleu_splits_chinese_and_takes_another_tokenizer(loaded, places, tmp_path):
    file = tmp_path / "test.tsv"
    file.write_text("他去了城市的市场。\t他去了城市的市场。\n", encoding="utf-8")
    run = invoke("evaluate", places["run"], "--test", file)
    assert "BLEU splits texts into words by sacreBLEU's tokenizer zh, because the script of the ref" in run.stderr
    scores = json.loads(run.stdout)
    assert "tok:zh" in scores["bleu_signature"]
    assert scores["bleu"] == pytest.approx(100)
    run = invoke("evaluate", places["run"], "--test", file, "--bleu-tokenizer", "char")
    assert "tok:char" in json.loads(run.stdout)["bleu_signature"]
    assert "BLEU splits" not in run.stderr


@pytest.mark.parametrize(("tokenizer", "symbols"), [("sentencepiece", True), ("symbols", False)])
def test_a_corpus_of_another_kind_than_the_model_is_told(tokenizer, symbols, loaded, places, tmp_path, monkeypatch):
    shutil.copytree(places["run"], tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    note_kind_of_tokenizer(run, tokenizer)
    for of_corpus in (symbols, not symbols):
        corpus = Corpus("letters", [], [], [("a", "b")], of_corpus)
        monkeypatch.setattr("kformer.cli.options.load_corpus", lambda name, corpus=corpus: corpus)
        said = invoke("evaluate", tmp_path / "run", "--corpus", "letters").stderr
        assert ("kformer: warning: the corpus letters consists of" in said) == (of_corpus == symbols)


@pytest.mark.tensorflow_only
def test_a_model_of_symbols_from_files_is_scored_by_error_rates_before_and_after_its_export(tmp_path, untraced):
    """A dictionary of one's own: letters and sounds, and two ways to say a word."""
    pairs = [(" ".join(word), " ".join(word.upper())) for word in ("cat", "dog", "cow", "hen", "pig", "rat")] * 4
    files = {part: tmp_path / f"{part}.tsv" for part in ("train", "test")}
    for file in files.values():
        file.write_text("".join(f"{source}\t{target}\n" for source, target in [*pairs, ("c a t", "K A T")]))
    layers = ["--num-encoder-layers", 1, "--num-decoder-layers", 1]
    sizes = ["--size", "tiny", *layers, "--d-model", 8, "--num-heads", 2, "--d-ff", 16, "--max-steps", 1, "--output"]
    symbols = ["--tokenizer", "symbols", "--monitor", "word_error_rate"]
    invoke("train", "--train", files["train"], *symbols, *sizes, tmp_path / "run")
    assert "val_word_error_rate" in (tmp_path / "run" / "log.csv").read_text()
    invoke("export", tmp_path / "run", tmp_path / "export", "--beam-size", 1)
    for model, search in (("run", ["--beam-size", 1]), ("export", [])):
        scores = json.loads(invoke("evaluate", tmp_path / model, "--test", files["test"], *search).stdout)
        assert scores["words"] == 6  # each with all its pronunciations
        assert "word_error_rate" in scores
        assert "bleu" not in scores


def test_an_export_tells_what_it_reads(tmp_path):
    assert reads_symbols(tmp_path) is None
    (tmp_path / DESCRIPTION_FILE).parent.mkdir()
    (tmp_path / DESCRIPTION_FILE).write_text('{"symbols": true}')
    assert reads_symbols(tmp_path) is True


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], None),
        (["--beam-size", 2], DecodingConfig(beam_size=2)),
        (["--length-penalty", 1.1], DecodingConfig(length_penalty=1.1)),
        (["--max-source-length", 40], DecodingConfig(max_source_length=40)),
        (["--recipe", "bible-en-es"], DecodingConfig(length_penalty=1.4)),
        (["--recipe", "bible-en-es", "--beam-size", 1], DecodingConfig(beam_size=1, length_penalty=1.4)),
    ],
)
@pytest.mark.parametrize("command", ["translate", "evaluate", "export"])
def test_the_search_is_chosen_by_options(command, options, expected, loaded, places, monkeypatch, tmp_path):
    more = {
        "translate": ["--input", places["corpus"], "--output", tmp_path / "out"],
        "evaluate": ["--test", places["corpus"]],
        "export": [tmp_path / "exported"],
    }

    def from_run(run, decoding):
        loaded.append({"path": run, "decoding": decoding})

    monkeypatch.setattr("kformer.tasks.translator.Translator.from_run", from_run)
    monkeypatch.setattr("kformer.export.target.export", lambda *arguments: None)
    invoke(command, places["run"], *more[command], *options)
    assert [str(loaded[0]["path"]), loaded[0]["decoding"]] == [places["run"], expected]


@pytest.mark.parametrize("command", ["translate", "evaluate"])
def test_options_change_the_search_of_the_run_and_leave_the_rest_of_it(command, loaded, places, tmp_path):
    run = RunFolder(shutil.copytree(places["run"], tmp_path / "run"))
    own = DecodingConfig(beam_size=3, length_penalty=1.5, no_repeat_ngram_size=2, max_length=50)
    own.save(run.decoding_file)
    more = {"translate": ["--input", places["corpus"]], "evaluate": ["--test", places["corpus"]]}
    invoke(command, run.path, *more[command], "--beam-size", 2)
    assert loaded[0]["decoding"] == own.replace(beam_size=2)


def test_evaluate_takes_the_corpus_of_a_recipe_and_for_a_run_its_search(loaded, places, monkeypatch):
    names = []

    def load(name):
        names.append(name)
        return Corpus(name, [], [], [("one", "uno")])

    monkeypatch.setattr("kformer.cli.options.load_corpus", load)
    for model in ("run", "model"):
        invoke("evaluate", places[model], "--recipe", "bible-en-es")
    assert names == ["bible-en-es"] * 2
    assert [call["decoding"] for call in loaded] == [DecodingConfig(length_penalty=1.4), None]


def test_a_folder_with_the_name_of_a_preset_is_taken(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cmudict").mkdir()
    with pytest.raises(FileNotFoundError, match="cmudict is not a run folder: it has no transformer.json"):
        invoke("translate", "cmudict")


def test_a_model_to_evaluate_against_has_its_own_search(loaded, places, tmp_path):
    other = shutil.copytree(places["run"], tmp_path / "other")
    (tmp_path / "test.tsv").write_text("one\tone\ntwo three\ttwo three\n")
    invoke("evaluate", places["run"], "--test", tmp_path / "test.tsv", "--beam-size", 2, "--against", other)
    assert [call["decoding"] for call in loaded] == [DecodingConfig(beam_size=2), None]


def test_a_model_to_evaluate_against_must_know_the_tag(loaded, places, tmp_path):
    run, other = (RunFolder(shutil.copytree(places["run"], tmp_path / name)) for name in ("run", "other"))
    run.write_config(run.decoding_file, DecodingConfig(tags="<2es>"))
    (tmp_path / "test.tsv").write_text("one\tone\n")
    with pytest.raises(ValueError, match="does not know the tag '<2es>'"):
        invoke("evaluate", run.path, "--test", tmp_path / "test.tsv", "--tag", "<2es>", "--against", other.path)


def test_translate_hands_on_how_many_hypotheses_are_wanted(loaded, places, tmp_path):
    invoke("translate", places["run"], "--input", places["corpus"], "--output", tmp_path / "out", "--n-best", 3)
    assert loaded[0]["n_best"] == 3
    assert len((tmp_path / "out").read_text().splitlines()) == 2 * 3


@pytest.mark.parametrize(
    ("ratio", "told"),
    [
        (1.0, []),
        (
            2.0,
            [
                "kformer: warning: 2 translations are much too short for the line, so that something may be missing. "
                "The first is that of line 2. Shorter lines help, or a smaller --max-source-length."
            ],
        ),
    ],
)
def test_translate_counts_translations_that_are_much_too_short(ratio, told, loaded, places, tmp_path):
    """The translation is the line itself. Lines without a character are never too short."""
    run = RunFolder(shutil.copytree(places["run"], tmp_path / "run"))
    DecodingConfig(short_ratio=ratio).save(run.decoding_file)
    run.note_files()
    (tmp_path / "in").write_text("\none two\n \nthree\n")
    result = invoke("translate", run.path, "--input", tmp_path / "in", "--output", tmp_path / "out")
    assert result.stderr.splitlines() == told
    assert (tmp_path / "out").read_text() == "\none two\n \nthree\n"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("one\n\ntwo\n", None),
        ("one\nONE\n", "1 line is mostly text that is not in the model's vocabulary, so that its answer means little."),
        ("TWO\nONE\nONE\n", "3 lines are mostly text that is not in the model's vocabulary, so that their answers"),
    ],
)
@pytest.mark.parametrize("kind", ["sentencepiece", "symbols"])
@pytest.mark.parametrize("tag", [[], ["--tag", "<ES>"]])
def test_translate_counts_lines_that_the_vocabulary_lacks(lines, told, kind, tag, loaded, places, tmp_path):
    """The model that is not there knows no capital letters, but its tag."""
    run = RunFolder(shutil.copytree(places["run"], tmp_path / "run"))
    run.write_config(run.decoding_file, DecodingConfig(tags="<ES>"))
    note_kind_of_tokenizer(run, kind)
    (tmp_path / "in").write_text(lines)
    result = invoke("translate", run.path, "--input", tmp_path / "in", "--output", tmp_path / "out", *tag)
    if told is None:
        assert result.stderr == ""
        return
    remedy = {"sentencepiece": "the language and the script", "symbols": '"c a t" in place of "cat"'}[kind]
    first = 1 if lines[0].isupper() else 2
    assert result.stderr.startswith(f"kformer: warning: {told}")
    assert f"The first is line {first}. " in result.stderr
    assert remedy in result.stderr


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], {}),
        (["--precision", "int8"], {"precision": "int8"}),
        (["--variant", "xla"], {"variant": "xla"}),
        (["--server-version", "2.19"], {"server_version": "2.19"}),
        (["--signature", "score", "--signature", "score"], {"signatures": ("score",)}),
    ],
)
def test_export_hands_on_precision_and_variant(options, expected, places, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr("kformer.tasks.translator.Translator.from_run", lambda run, decoding: "translator")
    monkeypatch.setattr("kformer.export.target.export", lambda *arguments: calls.append(arguments))
    invoke("export", places["run"], tmp_path, *options)
    default = {"precision": "float32", "variant": "portable", "server_version": None, "signatures": ()}
    assert calls == [("translator", tmp_path, SavedModelTarget(**{**default, **expected}))]


def test_export_hands_on_another_format(places, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr("kformer.tasks.translator.Translator.from_run", lambda run, decoding: "translator")
    monkeypatch.setattr("kformer.export.target.export", lambda *arguments: calls.append(arguments))
    invoke("export", places["run"], tmp_path / "new", "--format", "ctranslate2", "--precision", "int8")
    assert calls == [("translator", tmp_path / "new", CTranslate2Target("int8"))]
    calls.clear()
    invoke("export", places["run"], tmp_path / "new", "--format", "safetensors")
    assert calls == [("translator", tmp_path / "new", SafetensorsTarget("float32"))]


@pytest.mark.slow
def test_export_makes_what_its_options_ask_for(numbers_run, tmp_path):
    options = ["--precision", "int8", "--beam-size", 2, "--length-penalty", 1.1]
    path = invoke("export", numbers_run, tmp_path, *options).stdout.strip()
    made = description(path)
    assert {name: made[name] for name in ("precision", "beam_size", "length_penalty")} == {
        "precision": "int8", "beam_size": 2, "length_penalty": 1.1,
    }  # fmt: skip
    size = sum(file.stat().st_size for file in pathlib.Path(path, "variables").iterdir())
    assert size < 2 * Translator.from_run(numbers_run).model.count_params()  # float32 takes four bytes a weight


def test_average_takes_as_many_as_it_is_told(numbers_run, tmp_path):
    assert len(RunFolder(numbers_run).kept_weights()) == 4
    for last in (2, None):
        invoke("average", numbers_run, tmp_path / f"mean-{last}", *(["--last", last] if last else []))
    means = [RunFolder(tmp_path / f"mean-{last}") for last in (2, None)]
    assert [mean.corpus()["mean_of"] for mean in means] == [2, 4]
    assert means[0].best_weights_file.read_bytes() != means[1].best_weights_file.read_bytes()
    assert means[0].samples() == RunFolder(numbers_run).samples()


def test_work_of_unknown_size_is_shown_on_a_terminal_only():
    for terminal in (True, False):
        console = rich.console.Console(file=io.StringIO(), force_terminal=terminal, width=80)
        with status("loading [bold]", console):
            pass
        if terminal:
            assert "loading [bold]" in console.file.getvalue()
        else:
            assert console.file.getvalue() == ""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_waiting_is_explained_on_the_terminal_and_not_in_the_results(numbers_run):
    ours, theirs = os.openpty()
    shown = bytearray()

    def read():  # all the time, because a terminal takes only 4 KB that nobody reads
        with contextlib.suppress(OSError), os.fdopen(ours, "rb", buffering=0) as terminal:  # OSError: it is closed
            while part := terminal.read(4096):
                shown.extend(part)

    reader = threading.Thread(target=read)
    reader.start()
    command = [sys.executable, "-m", "kformer", "translate", str(numbers_run)]
    answer = subprocess.run(command, input=b"one two\n", stdout=subprocess.PIPE, stderr=theirs, check=True)
    os.close(theirs)
    reader.join()
    assert answer.stdout == b"dos uno\n"
    assert b"loading " in shown


@pytest.mark.parametrize("size", [[], ["--size", "tiny"]])
def test_a_run_goes_on_by_its_own_command_though_what_it_began_with_is_gone(size, numbers_run, pairs_file, monkeypatch):
    stored = RunFolder(numbers_run)
    transformer, training = stored.transformer_config(), stored.training_config()
    calls = trained_with(monkeypatch)
    monkeypatch.setattr(RunFolder, "training_config", lambda run: training)
    options = ["--initialize-from", "gone", "--max-steps", 7, "--resume", *size]
    invoke("train", "--train", pairs_file, "--output", numbers_run, *options)
    assert calls[0]["transformer"] == transformer
    assert calls[0]["training"] == (TrainingConfig.of_size("tiny") if size else training).replace(max_steps=7)
    assert calls[0]["resume"]


def test_a_size_beside_resume_is_compared_with_the_run(numbers_run, pairs_file, monkeypatch):
    calls = trained_with(monkeypatch)
    invoke("train", "--train", pairs_file, "--output", numbers_run, "--size", "tiny", "--resume")
    assert calls[0]["transformer"] == TransformerConfig.of_size("tiny")


def test_more_hypotheses_than_beams_are_refused(numbers_run):
    with pytest.raises(ValueError, match="Received: n_best=5, beam_size=4. Widen the beam."):
        Model(numbers_run, n_best=5)
    assert Model(numbers_run, DecodingConfig(beam_size=5), n_best=5).n_best == 5


def test_a_current_folder_that_was_deleted_is_told(tmp_path):
    (tmp_path / "gone").mkdir()
    command = ["sh", "-c", 'rmdir ../gone; "$0" -m kformer plot masks --output masks.png', sys.executable]
    answer = subprocess.run(command, cwd=tmp_path / "gone", capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert answer.stderr.endswith(" (the current folder was deleted: go to another one)\n"), answer.stderr


def test_line_feeds_inside_a_translation_do_not_add_lines(tmp_path):
    with (tmp_path / "out").open("wb") as target:
        answer_lines(lambda texts: [[Hypothesis("x\ny\r", 0.0)] for _ in texts], input_lines([b"a", b"b"]), target)
    assert (tmp_path / "out").read_bytes() == b"x y \nx y \n"


def test_hypotheses_that_hold_the_separator_can_be_read_again(tmp_path):
    texts = ["one ||| two", "|||"]
    with (tmp_path / "out").open("wb") as target:
        answer_lines(
            lambda lines: [[Hypothesis(text, -1.5) for text in texts] for _ in lines],
            input_lines([b"a"]),
            target,
            NBest(2),
        )
    for line, text in zip((tmp_path / "out").read_text().splitlines(), texts, strict=True):
        number, rest = line.split(" ||| ", 1)
        assert (number, *rest.rsplit(" ||| ", 1)) == ("0", text, "-1.500000")


def test_many_lines_come_back_in_order(tmp_path):
    lines = [b"x" * (index * 7 % 31) + str(index).encode() for index in range(2500)]
    with (tmp_path / "out").open("wb") as target:
        answer_lines(lambda texts: [[Hypothesis(text.decode(), 0.0)] for text in texts], input_lines(lines), target)
    assert (tmp_path / "out").read_bytes().splitlines() == lines


@pytest.mark.slow
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
    # A translator that is kept runs without Keras. Only making one needs Keras on TensorFlow.
    assert kformer("translate", run, stdin=b"one\n", KERAS_BACKEND="jax").stdout.count(b"\n") == 1
    fresh = kformer("translate", run, stdin=b"one\n", KERAS_BACKEND="jax", KFORMER_CACHE=str(tmp_path / "fresh"))
    assert "Start with KERAS_BACKEND=tensorflow" in fresh.stderr.decode()


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
