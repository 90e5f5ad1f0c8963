"""`kformer score` writes how probable given translations and texts are."""

import json

import pytest
from commands import refused, run
from servers import running
from typer.testing import CliRunner

from kformer.cli.main import app
from kformer.presets import find_preset
from kformer.serving.model_settings import ModelSettings
from kformer.serving.settings import ServerSettings
from kformer.tasks import LanguageModel

pytestmark = pytest.mark.tensorflow_only
PAIRS = [("one two", "dos uno"), ("one two", "uno dos"), ("six", "seis"), ("six", "seis seis seis")] * 20


@pytest.fixture
def file(tmp_path):
    """80 pairs, with a blank line before the last one."""
    path = tmp_path / "pairs.tsv"
    lines = ["\t".join(pair) for pair in PAIRS]
    path.write_text("".join(f"{line}\n" for line in [*lines[:-1], "", lines[-1]]))
    return path


@pytest.fixture(scope="module")
def expected(numbers_translator):
    """The log probabilities and numbers of tokens, by Keras."""
    sources, translations = zip(*PAIRS, strict=True)
    outputs = numbers_translator.score(sources, translations)
    return outputs["log_probability"].numpy(), outputs["tokens"].numpy()


def with_blank(values):
    return [*values[:-1], None, values[-1]]


def check(columns, expected):
    """Columns of text: of the log probability, and of the tokens if there are any."""
    for number, value in enumerate(with_blank(list(expected[0]))):
        if value is None:
            assert {*columns[number]} == {""}
            continue
        assert float(columns[number][0]) == pytest.approx(value, abs=2e-3)
        if len(columns[number]) > 1:
            assert int(columns[number][1]) == with_blank(list(expected[1]))[number]
    assert len(columns) == len(PAIRS) + 1


def test_a_right_translation_is_more_probable_than_a_wrong_one(expected):
    assert expected[0][0] > expected[0][1] + 1
    assert expected[0][2] > expected[0][3] + 1


def test_text_is_a_log_probability_for_each_line(numbers_run, file, expected, tmp_path):
    run("score", numbers_run, "--input", file, "--output", tmp_path / "out")
    check([[line] for line in (tmp_path / "out").read_text().splitlines()], expected)


@pytest.mark.parametrize("output", [pytest.param("out", marks=pytest.mark.slow), "job/"])
def test_columns_have_the_number_of_tokens(output, numbers_export, file, expected, tmp_path):
    run("score", numbers_export, "--input", file, "--output", f"{tmp_path}/{output}", "--format", "tsv")
    [written] = [tmp_path / "out"] if output == "out" else (tmp_path / "job").glob("part-*.tsv")
    check([line.split("\t") for line in written.read_text().splitlines()], expected)


def test_json_lines_have_source_and_translation_and_the_kept_field(numbers_run, expected, tmp_path):
    (tmp_path / "in.csv").write_text("id,es,en\n7,dos uno,one two\n8,uno dos,one two\n9,,\n")
    options = ["--fields", "en,es", "--keep", "id", "--format", "jsonl"]
    run("score", numbers_run, "--input", tmp_path / "in.csv", "--output", tmp_path / "out", *options)
    found = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert found[0].pop("log_probability") == pytest.approx(expected[0][0], abs=2e-3)
    tokens = int(expected[1][0])
    assert found[0] == {"line": 0, "text": "one two", "translation": "dos uno", "tokens": tokens, "kept": "7"}
    assert found[1]["log_probability"] == pytest.approx(expected[0][1], abs=2e-3)
    assert found[2] == {**{"line": 2, "text": "", "translation": "", "log_probability": None, "tokens": 0, "kept": "9"}}


def test_tables_need_no_names_where_the_fields_are_source_and_target(numbers_run, expected, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"source": "one two", "target": "dos uno"}\n')
    run("score", numbers_run, "--input", tmp_path / "in.jsonl", "--output", tmp_path / "out")
    assert float((tmp_path / "out").read_text()) == pytest.approx(expected[0][0], abs=2e-3)


@pytest.mark.parametrize("protocol", ["rest", pytest.param("grpc", marks=pytest.mark.slow)])
def test_a_server_gives_the_same(protocol, cold_export_folder, file, expected, tmp_path):
    settings = ServerSettings([ModelSettings("numbers", cold_export_folder)], rest_port=0, grpc_port=0)
    with running(settings) as server:
        urls = {"rest": f"{server.url}/v1/models/numbers", "grpc": f"grpc://{server.grpc_address}/numbers"}
        options = ["--server", urls[protocol], "--input", file, "--format", "tsv"]
        for output in ("out", "job/"):
            run("score", *options, "--output", f"{tmp_path}/{output}")
    for written in (tmp_path / "out", tmp_path / "job" / "part-000000000.tsv"):
        check([line.split("\t") for line in written.read_text().splitlines()], expected)


def test_lines_that_are_no_pairs_have_no_score_and_stop_nothing(numbers_run, tmp_path, capfd):
    lines = tmp_path / "in"
    bad = "one two three four five six\tone\ttwo\n"  # longer than the others: a batch of it would come first
    lines.write_text("one\tuno\n" + bad * 200 + "one\nsix\tseis\n")
    run("score", numbers_run, "--input", lines, "--output", tmp_path / "out")
    found = (tmp_path / "out").read_text().splitlines()
    assert float(found[0]) < 0
    assert float(found[-1]) < 0
    assert [*{*found[1:-1]}] == [""]
    run("score", numbers_run, "--input", lines, "--output", f"{tmp_path}/job/", "--format", "jsonl")
    rows = [json.loads(line) for line in (tmp_path / "job" / "part-000000000.jsonl").read_text().splitlines()]
    assert (rows[201]["text"], rows[201]["log_probability"]) == ("one", None)
    assert rows[201]["fault"] == "1 column, split by tabs, where 2 were expected"
    assert (rows[202]["translation"], "fault" in rows[202]) == ("seis", False)


def test_a_kept_field_stands_behind_the_tokens(numbers_run, tmp_path):
    (tmp_path / "in.csv").write_text("id,es,en\n7,dos uno,one two\n8,,\n")
    files = ["--input", tmp_path / "in.csv", "--fields", "en,es", "--keep", "id"]
    run("score", numbers_run, *files, "--format", "tsv", "--output", f"{tmp_path}/job/")
    first, second = (tmp_path / "job" / "part-000000000.tsv").read_text().splitlines()
    assert float(first.split("\t")[0]) < 0
    assert (first.split("\t")[2], second) == ("7", "\t\t8")


def test_what_a_person_should_know_of_lines_is_told(numbers_run, cold_export_folder, tmp_path):
    (tmp_path / "in").write_text("six\tseis\n" + "one " * 400 + "\tuno\n" + "six\n")
    with running(ServerSettings([ModelSettings("numbers", cold_export_folder)], rest_port=0, grpc_port=0)) as server:
        for model in ([numbers_run], ["--server", f"{server.url}/v1/models/numbers"]):
            for output in (tmp_path / "out", f"{tmp_path}/job-{len(model)}/"):
                command = ["score", *model, "--input", tmp_path / "in", "--output", output]
                result = CliRunner().invoke(app, [str(argument) for argument in command])
                assert result.exit_code == 0, result.exception
                assert "1 line has no answer" in result.stderr
                assert "1 column, split by tabs, where 2 were expected" in result.stderr
                assert "1 line is longer than the model reads, so that its end does not count" in result.stderr


def test_one_server_that_answers_is_enough(cold_export_folder, file, expected, tmp_path):
    with running(ServerSettings([ModelSettings("numbers", cold_export_folder)], rest_port=0, grpc_port=0)) as server:
        urls = f"http://127.0.0.1:9/v1/models/numbers,{server.url}/v1/models/numbers"
        said = run("score", "--server", urls, "--input", file, "--output", f"{tmp_path}/job/", "--format", "tsv")
    assert said.count("The job begins without it, and asks it again.") == 1
    check([line.split("\t") for line in (tmp_path / "job" / "part-000000000.tsv").read_text().splitlines()], expected)


@pytest.mark.slow  # in CI, a smaller language model in tests/tasks/test_answers.py stands for it
def test_a_language_model_finds_a_usual_text_more_probable(tmp_path):
    texts = ["In the beginning God created the heaven and the earth.", "Earth heaven the created God in the."]
    (tmp_path / "in").write_text("".join(f"{text}\n" for text in texts))
    files = ("--input", tmp_path / "in", "--output", tmp_path / "out")
    run("score", "--preset", "bible-english", *files, "--format", "tsv")
    rows = [line.split("\t") for line in (tmp_path / "out").read_text().splitlines()]
    usual, strange = (float(score) / int(tokens) for score, tokens in rows)
    assert usual > strange + 1
    right = LanguageModel.from_run(find_preset("bible-english").path).score(texts)
    assert [float(score) for score, _ in rows] == pytest.approx(right["log_probability"], abs=2e-3)
    assert [int(tokens) for _, tokens in rows] == [*right["tokens"]]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--on-error", "source"], "A line without a score gets an empty one. Received: --on-error source."),
        (["--keep", "id", "--fields", "a,b"], "Text has the scores alone. Give --format tsv or --format jsonl"),
        (["--fields", "a"], "--fields names the two fields of a pair, and --keep a third one. Received: --fields a."),
        (["--tag", "<2es>"], "<2es>"),
        (["--server", "http://127.0.0.1:9/v1/models/m"], "Name one model: --server URL names the server's."),
        (["--format", "xml"], "--format must be one of text, tsv, jsonl. Received: xml."),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, told, numbers_run, file, tmp_path):
    assert told in refused("score", numbers_run, "--input", file, "--output", tmp_path / "out", *options)
    assert not (tmp_path / "out").exists()


def test_models_without_scores_are_refused(numbers_plain_export, file):
    told = refused("score", numbers_plain_export, "--input", file)
    assert "has no signature score. Export it again with --signature score." in told
    told = refused("score", "--preset", "bible-books", "--input", file)
    assert "has learned the task classify, whose answers have their scores beside them" in told
