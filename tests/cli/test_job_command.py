"""Jobs as a person begins them: `kformer translate --input FILE --output FOLDER/`.

The environment variable KFORMER_STOPS sets how often processes are killed.
"""

import contextlib
import csv
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest
from commands import refused, run
from scripted_rest import ScriptedRest
from servers import running
from typer.testing import CliRunner

from kformer.cli.main import app
from kformer.jobs import JobReport
from kformer.jobs.processes import ProcessWorkers
from kformer.runs.exit_status import RESUME, USER_ERROR, exit_status
from kformer.serving.model_settings import ModelSettings
from kformer.serving.settings import ServerSettings

pytestmark = pytest.mark.tensorflow_only
STOPS = int(os.environ.get("KFORMER_STOPS", 3))
WORDS = ["one", "two", "three", "four", "five", "six"]


@pytest.fixture
def lines(tmp_path):
    """300 lines; each 7th is blank."""
    path = tmp_path / "lines.txt"
    texts = ["" if number % 7 == 0 else " ".join(WORDS[: number % 4 + 1]) for number in range(300)]
    path.write_text("".join(f"{text}\n" for text in texts))
    return path


def answers(folder):
    return "".join(file.read_text() for file in sorted(pathlib.Path(folder).glob("part-*")))


def test_a_job_writes_what_the_command_writes_without_one(numbers_run, lines, tmp_path):
    run("translate", numbers_run, "--input", lines, "--output", tmp_path / "plain")
    more = tmp_path / "more.txt"
    more.write_text("six\nfive six\n")
    run(
        *("translate", numbers_run, "--input", lines, "--input", more, "--output", tmp_path / "job"),
        *("--lines-per-part", 70, "--processes", 2),
    )
    assert answers(tmp_path / "job") == (tmp_path / "plain").read_text() + "seis\nseis cinco\n"
    sizes = [len(file.read_text().splitlines()) for file in sorted((tmp_path / "job").glob("part-*"))]
    assert sizes == [70, 70, 70, 70, 20, 2]
    options = ["--input", lines, "--input", more, "--output", tmp_path / "job", "--processes", 1]
    told = refused("translate", numbers_run, *options, "--beam-size", 1)
    assert "holds another job. model: there {" in told
    assert "lines_per_part: there 70, now 10000" in told


def test_json_lines_have_scores_alignments_and_the_kept_field(numbers_export, tmp_path):
    table = tmp_path / "table.csv"
    table.write_text('id,text\n17,one two\n18,"three, four"\n19,six\n')
    options = ["--fields", "text", "--keep", "id", "--format", "jsonl", "--alignments"]
    (tmp_path / "job").mkdir()
    run("translate", numbers_export, "--input", table, "--output", tmp_path / "job", *options)
    found = [json.loads(line) for line in answers(tmp_path / "job").splitlines()]
    assert [one["kept"] for one in found] == ["17", "18", "19"]
    assert [one["line"] for one in found] == [0, 1, 2]
    assert found[0]["text"] == "one two"
    assert found[0]["translation"] == "dos uno"
    assert all(one["score"] < 0 for one in found)
    assert found[2]["alignment"] == "0-0"
    run("translate", numbers_export, "--input", table, "--output", tmp_path / "plain", *options)
    plain = [json.loads(line) for line in (tmp_path / "plain").read_text().splitlines()]
    for one, other in zip(found, plain, strict=True):
        assert one.pop("score") == pytest.approx(other.pop("score"), abs=1e-5)
        assert one == other


def test_a_job_of_servers_goes_on_with_the_same_version_alone(tmp_path):
    """Versions of a model have the same name: the label or the number tells them apart."""
    (tmp_path / "lines.txt").write_text("one\ntwo\n")
    options = ["--input", tmp_path / "lines.txt", "--output", f"{tmp_path}/job/", "--server"]
    with ScriptedRest() as server, ScriptedRest() as another:
        run("translate", *options, f"{server.url}/labels/stable")
        for other in ("", "/labels/canary", "/versions/3"):
            told = refused("translate", *options, f"{server.url}{other}")
            assert "holds another job. model: there" in told
            assert "m stable" in told
        run("translate", *options, f"{another.url}/labels/stable")  # the same model at another address
    assert answers(tmp_path / "job") == "ONE\nTWO\n"


@pytest.mark.parametrize("command", ["translate", "score"])
@pytest.mark.parametrize(("status", "code"), [(None, RESUME), (503, RESUME), (404, USER_ERROR)])
def test_a_job_that_no_server_answers_may_be_repeated_if_one_may_come(command, status, code, tmp_path):
    """None: the server ends the connection."""
    (tmp_path / "lines.txt").write_text("one\n")
    with ScriptedRest([(status, "{}")] * 9) as server:
        words = [command, "--input", tmp_path / "lines.txt", "--output", f"{tmp_path}/job/", "--server", server.url]
        result = CliRunner().invoke(app, [str(word) for word in words])
    assert exit_status(result.exception) == code
    assert server.url in str(result.exception)


@pytest.mark.parametrize("statuses", [(503, 404), (404, 503)])
def test_a_job_is_not_to_be_repeated_where_a_server_has_no_such_model(statuses, tmp_path):
    """The other server is busy, and may answer later."""
    (tmp_path / "lines.txt").write_text("one\n")
    first, second = (ScriptedRest([(status, "{}")] * 9) for status in statuses)
    with first, second:
        words = ["translate", "--input", tmp_path / "lines.txt", "--output", f"{tmp_path}/job/", "--server"]
        result = CliRunner().invoke(app, [*map(str, words), f"{first.url},{second.url}"])
    assert exit_status(result.exception) == USER_ERROR


@pytest.fixture
def two_lines(tmp_path):
    """The options of a job of two lines."""
    (tmp_path / "lines.txt").write_text("one\ntwo\n")
    return ["translate", "--input", tmp_path / "lines.txt", "--output", f"{tmp_path}/job/"]


def test_a_job_tells_how_many_lines_were_answered_before(two_lines, tmp_path):
    with ScriptedRest() as server:
        told = [run(*two_lines, "--server", server.url) for _ in range(2)]
    assert [one.partition("kformer: ")[2] for one in told] == [
        f"{tmp_path}/job has the answers to 2 lines.\n",
        f"{tmp_path}/job has the answers to 2 lines, 2 of them before.\n",
    ]


def test_a_job_that_is_stopped_says_how_to_go_on(two_lines, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("kformer.cli.job.run_job", stop)
    with ScriptedRest() as server:
        result = CliRunner().invoke(app, [*map(str, two_lines), "--server", server.url])
    assert f"kformer: stopped. The same command goes on in {tmp_path}/job.\n" in result.output
    assert result.exit_code != 0


@pytest.fixture
def workers(monkeypatch):
    """What the workers of jobs are made with. Nothing is answered."""
    made = []
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 2, 5})

    def processes(*given):
        workers = ProcessWorkers(*given)
        made.append((workers.processes, workers.seconds))

    monkeypatch.setattr("kformer.cli.job.ProcessWorkers", processes)
    monkeypatch.setattr("kformer.cli.job.ServerWorkers", lambda sources, *given: made.append(given))
    monkeypatch.setattr("kformer.cli.job.run_job", lambda *_: JobReport(2, 1, 0, 0, "", {}))
    return made


@pytest.mark.parametrize(("options", "expected"), [([], 3), (["--processes", 2], 2)])
def test_a_job_has_a_process_for_each_core_that_it_may_use(options, expected, workers, two_lines, numbers_plain_export):
    run(*two_lines, numbers_plain_export, *options)
    assert workers == [(expected, 120)]  # seconds for a batch


@pytest.mark.parametrize(("seconds", "patience"), [(9, 600), (200, 1000)])
def test_a_job_waits_for_servers_for_ten_minutes_or_for_as_long_as_five_batches_take(
    seconds, patience, workers, two_lines
):
    with ScriptedRest() as server:
        run(*two_lines, "--server", server.url, "--batch-seconds", seconds)
    assert workers == [(patience,)]


def test_options_of_a_job_are_refused_without_one(tmp_path):
    (tmp_path / "lines.txt").write_text("one\n")
    for option in (["--processes", 2], ["--batch-seconds", 9], ["--lines-per-part", 9]):
        told = refused("translate", "--preset", "cmudict", "--input", tmp_path / "lines.txt", *option)
        assert "--processes and --batch-seconds are for a job. Name its folder by --output FOLDER/" in told


def test_columns_can_be_read_again(numbers_plain_export, tmp_path):
    table = tmp_path / "table.tsv"
    table.write_text("text\tid\none two\ta b\nsix\tc\n")
    run(
        *("translate", numbers_plain_export, "--input", table, "--fields", "text", "--keep", "id", "--format", "tsv"),
        *("--output", f"{tmp_path}/job/"),
    )
    with (tmp_path / "job" / "part-000000000.tsv").open() as file:
        rows = list(csv.reader(file, delimiter="\t"))
    assert [(row[0], row[2]) for row in rows] == [("dos uno", "a b"), ("seis", "c")]
    assert all(float(row[1]) < 0 for row in rows)


@pytest.mark.parametrize(
    ("what", "texts", "output"),
    [
        ("drop", ["one two", "six"], "job/"),
        ("keep", ["one <b>two</b>", "six"], "plain"),
        pytest.param("drop", ["one two", "six"], "plain", marks=pytest.mark.slow),
        pytest.param("keep", ["one <b>two</b>", "six"], "job/", marks=pytest.mark.slow),
    ],
)
def test_inline_tags_of_a_memory_are_read_as_asked(what, texts, output, numbers_plain_export, tmp_path):
    tagged = 'one <bpt i="1">&lt;b&gt;</bpt>two<ept i="1">&lt;/b&gt;</ept>'
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{text}</seg></tuv><tuv xml:lang="es"><seg>x</seg></tuv></tu>'
        for text in (tagged, "six")
    )
    memory = tmp_path / "memory.tmx"
    memory.write_text(f'<tmx version="1.4"><header srclang="en"/><body>{units}</body></tmx>')
    options = ["--input", memory, "--output", f"{tmp_path}/{output}", "--inline-tags", what, "--format", "jsonl"]
    run("translate", numbers_plain_export, *options)
    written = (tmp_path / "plain").read_text() if output == "plain" else answers(tmp_path / "job")
    assert [json.loads(line)["text"] for line in written.splitlines()] == texts


def test_hostile_lines_do_not_hold_up_the_others(numbers_plain_export, tmp_path):
    lines = tmp_path / "lines.txt"
    lines.write_text(f"one\n{'A' * 40_000}\n{'.' * 2_000}\ndata:image/png;base64,{'iVBORw0KGgo' * 900}\ntwo\n")
    run("translate", numbers_plain_export, "--input", lines, "--output", tmp_path / "plain", "--on-error", "source")
    run("translate", numbers_plain_export, "--input", lines, "--output", f"{tmp_path}/job/", "--on-error", "source")
    found = (tmp_path / "plain").read_text().splitlines()
    assert answers(tmp_path / "job").splitlines() == found
    assert (found[0], found[4]) == ("uno", "dos")
    assert found[1:4] == lines.read_text().splitlines()[1:4]


def test_lines_without_an_answer_are_told(numbers_plain_export, tmp_path):
    lines = tmp_path / "lines.txt"
    lines.write_text(f"one\n{'.' * 2_000}\n")
    for output in ("plain", "job/"):
        found = _kformer("translate", numbers_plain_export, "--input", lines, "--output", f"{tmp_path}/{output}")
        assert found.returncode == 0, found.stderr
        assert "warning: 1 line has no answer: an empty one stands in its place. The first is line 2" in found.stderr
        assert "a word of 2,000 characters, where the longest may have 1,000. --on-error says" in found.stderr
    assert (tmp_path / "plain").read_text() == answers(tmp_path / "job") == "uno\n\n"


KEPT = ["--input", "a.csv", "--fields", "text", "--keep", "id"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--output", "job/"], "A job reads files. Name each by --input FILE"),
        (["--input", "a", "--input", "b"], "The answers to several files go into a folder. Name it: --output FOLDER/."),
        (["--input", "a", "--keep", "id", "--format", "tsv"], "--keep names a second field of a table"),
        (["--format", "xml"], "--format must be one of text, tsv, jsonl. Received: xml."),
        (["--on-error", "stop"], "--on-error must be one of empty, source, keep. Received: stop."),
        (["--alignments"], "Text has the answers alone. Give --format tsv or --format jsonl"),
        (
            ["--alignments", "--format", "tsv", "--n-best", 2],
            "--alignments are for one translation, found by a search.",
        ),
        (["--n-best", 2, "--format", "tsv"], "Several answers per line have no columns. Give --format jsonl"),
        ([*KEPT, "--n-best", 2], "Several answers per line have no columns. Give --format jsonl"),
        (KEPT, "Text has the answers alone. Give --format tsv or --format jsonl"),
        (["--pairs", "--format", "jsonl"], "--pairs writes tab-separated pairs, and jsonl has the line by itself."),
        (["--input", "missing", "--output", "job/"], "missing does not exist."),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, told, numbers_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "a.csv"):
        (tmp_path / name).write_text("text,id\none,7\n")
    began = time.monotonic()
    assert told in refused("translate", numbers_run, *options)
    assert time.monotonic() - began < 1
    assert {entry.name for entry in tmp_path.iterdir()} == {"a", "b", "a.csv"}


@pytest.mark.slow
def test_any_process_may_be_killed_at_any_time(numbers_plain_export, tmp_path):
    lines = tmp_path / "lines.txt"
    texts = [" ".join(WORDS[: number % 4 + 1]) + f" {WORDS[number % 6]}" for number in range(2000)]
    lines.write_text("".join(f"{text}\n" for text in texts))
    command = ["translate", numbers_plain_export, "--input", lines]
    command += ["--lines-per-part", 40, "--processes", 2, "--output"]
    run(*command, f"{tmp_path}/whole/")
    moments = random.Random(7)
    kills = 0
    while kills < STOPS:
        leader = _started(*command, f"{tmp_path}/job/")
        time.sleep(moments.uniform(0.5, 4))
        living = [leader.pid, *_children(leader.pid)]
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(moments.choice(living), signal.SIGKILL)
        kills += 1
        time.sleep(moments.uniform(0, 1))
        leader.kill()  # which may be the second kill of this turn
        leader.communicate()
    ended = _kformer(*command, f"{tmp_path}/job/")
    assert ended.returncode == 0, ended.stderr
    assert answers(tmp_path / "job") == answers(tmp_path / "whole")
    numbers = [json.loads(line)["number"] for line in (tmp_path / "job" / "manifest.jsonl").read_text().splitlines()]
    assert sorted(numbers) == list(range(50))


@pytest.mark.slow
def test_a_pool_of_servers_survives_one_that_dies(numbers_plain_export, plain_export_folder, lines, tmp_path):
    run("translate", numbers_plain_export, "--input", lines, "--output", tmp_path / "plain")
    settings = ServerSettings([ModelSettings("numbers", plain_export_folder)], rest_port=0, grpc_port=0)
    with running(settings) as lasting:
        with running(settings) as dying:
            urls = ",".join(f"{server.url}/v1/models/numbers" for server in (lasting, dying))
            command = [
                "translate",
                "--server",
                urls,
                "--input",
                lines,
                "--lines-per-part",
                25,
                "--output",
                f"{tmp_path}/job/",
            ]
            job = _started(*command)
            _wait_until(lambda: len(answers(tmp_path / "job").splitlines()) >= 25)
        _, errors = job.communicate(timeout=300)
        assert job.returncode == 0, errors
    assert answers(tmp_path / "job") == (tmp_path / "plain").read_text()


def _command(arguments):
    return [sys.executable, "-m", "kformer", *map(str, arguments)]


def _kformer(*arguments):
    return subprocess.run(_command(arguments), capture_output=True, text=True, check=False)


def _started(*arguments):
    return subprocess.Popen(_command(arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _children(process):
    """The worker processes of a job that live; multiprocessing has a further process."""
    with contextlib.suppress(OSError):
        children = pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split()
        return [int(child) for child in children if b"--multiprocessing-fork" in _command_line(child)]
    return []


def _command_line(process):
    with contextlib.suppress(OSError):  # it has just ended
        return pathlib.Path(f"/proc/{process}/cmdline").read_bytes()
    return b""


def _wait_until(condition, seconds=60):
    last = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < last
        time.sleep(0.05)
