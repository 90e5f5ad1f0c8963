"""Jobs, with a worker whose answers a reader can tell."""

import dataclasses
import json
import subprocess

import pytest
from job_fakes import REFUSED, OneWorker, capitals, read

from kformer.inference.line_forms import JsonLines, TextColumns
from kformer.inference.line_limits import LineLimits
from kformer.inference.lines import InputLine
from kformer.jobs import JobSettings, run_job
from kformer.runs.ownership import RunInUseError, owned

LINES = [f"line {number} {'x' * (number * 7 % 13)}" for number in range(23)]


@pytest.fixture
def files(tmp_path):
    """Two files, of 23 and of 5 lines."""
    one, two = tmp_path / "one.txt", tmp_path / "two.txt"
    one.write_text("".join(f"{line}\n" for line in LINES))
    two.write_text("a\nb\nodd c\nd\n\n")
    return one, two


@pytest.fixture
def settings(files):
    return JobSettings(files, {"name": "capitals"}, lines_per_part=7)


def answers(folder):
    return "".join(file.read_text() for file in sorted(folder.glob("part-*")))


WHOLE = "".join(f"{line.upper()}\n" for line in [*LINES, "a", "b", "odd c", "d", ""])


def test_every_line_is_answered_once_and_in_order(tmp_path, settings):
    report = run_job(tmp_path / "job", settings, read, OneWorker())
    assert answers(tmp_path / "job") == WHOLE
    assert (report.lines, report.parts, report.before, report.faults) == (28, 5, 0, 0)
    assert report.notes == {"odd": (1, f"line 3 of {tmp_path / 'two.txt'}")}
    sizes = [len(file.read_text().splitlines()) for file in sorted((tmp_path / "job").glob("part-*"))]
    assert sizes == [7, 7, 7, 2, 5]  # a part has lines of one file
    checked = subprocess.run(
        ["sha256sum", "--check", "SHA256SUMS"], cwd=tmp_path / "job", capture_output=True, text=True
    )
    assert checked.returncode == 0
    assert checked.stdout.count("OK") == 7


def test_the_manifest_says_what_each_part_holds(tmp_path, settings):
    run_job(tmp_path / "job", settings, read, OneWorker())
    parts = [json.loads(line) for line in (tmp_path / "job" / "manifest.jsonl").read_text().splitlines()]
    assert [(part["file"].rsplit("/", 1)[1], part["first"], part["before"], part["lines"]) for part in parts] == [
        ("one.txt", 0, 0, 7),
        ("one.txt", 7, 7, 7),
        ("one.txt", 14, 14, 7),
        ("one.txt", 21, 21, 2),
        ("two.txt", 0, 23, 5),
    ]


def test_lines_are_numbered_over_all_parts_and_files(tmp_path, settings):
    run_job(tmp_path / "job", dataclasses.replace(settings, form=JsonLines("translate")), read, OneWorker())
    found = [json.loads(line)["line"] for line in answers(tmp_path / "job").splitlines()]
    assert found == [*range(28)]


def test_the_name_of_an_input_need_not_be_utf_8(tmp_path):
    file = tmp_path / "caf\udce9.txt"  # as Python has the name with this byte
    file.write_text("a\nb\n")
    settings = JobSettings((file,), {"name": "capitals"}, lines_per_part=1)
    assert run_job(tmp_path / "job", settings, read, OneWorker()).lines == 2
    worker = OneWorker()
    assert run_job(tmp_path / "job", settings, read, worker).lines == 2
    assert (answers(tmp_path / "job"), worker.asked) == ("A\nB\n", [])


def test_what_is_noted_of_lines_is_counted_over_all_parts_with_the_first_line(tmp_path):
    """The longest line of a part is asked first."""
    file = tmp_path / "lines.txt"
    file.write_text("one\nodd a\nodd longer\ntwo\nodd b\n")
    report = run_job(tmp_path / "job", JobSettings((file,), {}, lines_per_part=3), read, OneWorker())
    assert report.notes == {"odd": (3, f"line 2 of {file}")}
    parts = [json.loads(line) for line in (tmp_path / "job" / "manifest.jsonl").read_text().splitlines()]
    assert [part["notes"] for part in parts] == [{"odd": [2, 2]}, {"odd": [1, 5]}]


@pytest.mark.parametrize("on_fault", ["empty", "source", "keep"])
def test_the_progress_counts_each_line_once(on_fault, tmp_path):
    """Answered, refused by the model, beyond the limits of a line; and all at once where the job is repeated."""
    file = tmp_path / "lines.txt"
    file.write_text(f"one\n{REFUSED.decode()}\n{10 * 'x'}\n")
    settings = JobSettings((file,), {}, on_fault=on_fault, limits=LineLimits(line=9, word=9))
    done, again = [], []
    run_job(tmp_path / "job", settings, read, OneWorker(refusing), done.append)
    run_job(tmp_path / "job", settings, read, None, again.append)
    assert (sum(done), again) == (3, [3])


@pytest.mark.parametrize("stopped_after", range(1, 6))
def test_a_stopped_job_goes_on_and_ends_with_the_same_files(stopped_after, tmp_path, settings):
    class Stopped(OneWorker):
        def wait(self):
            if len(self.asked) > stopped_after:
                raise KeyboardInterrupt
            return super().wait()

    whole, job = tmp_path / "whole", tmp_path / "job"
    run_job(whole, settings, read, OneWorker())
    if stopped_after < 5:  # a batch for each part
        with pytest.raises(KeyboardInterrupt):
            run_job(job, settings, read, Stopped())
    worker = OneWorker()
    report = run_job(job, settings, read, worker)
    assert {file.name: file.read_bytes() for file in job.glob("part-*")} == {
        file.name: file.read_bytes() for file in whole.glob("part-*")
    }
    if stopped_after < 5:
        assert report.before == min(7 * stopped_after, 23)
        assert len(worker.asked) == 5 - stopped_after  # nothing is answered twice


def test_a_finished_job_starts_no_worker(tmp_path, settings):
    run_job(tmp_path / "job", settings, read, OneWorker())
    assert run_job(tmp_path / "job", settings, read, workers=None).before == 28


@pytest.mark.parametrize("damage", ["changed", "removed"])
def test_a_damaged_part_is_made_again(damage, tmp_path, settings):
    job = tmp_path / "job"
    run_job(job, settings, read, OneWorker())
    part = job / "part-000000002.txt"
    part.write_text(part.read_text().replace("LINE", "LIME")) if damage == "changed" else part.unlink()
    worker = OneWorker()
    run_job(job, settings, read, worker)
    assert answers(job) == WHOLE
    assert [batch.part for batch in worker.asked] == [2]


def test_what_a_kill_leaves_of_the_manifest_is_cut_off(tmp_path, settings):
    job = tmp_path / "job"
    run_job(job, settings, read, OneWorker())
    manifest = job / "manifest.jsonl"
    manifest.write_bytes(manifest.read_bytes()[:-9])
    worker = OneWorker()
    run_job(job, settings, read, worker)
    assert len(worker.asked) == 1
    assert answers(job) == WHOLE
    assert [json.loads(line)["number"] for line in manifest.read_text().splitlines()] == [0, 1, 2, 3, 4]
    run_job(job, settings, read, workers=None)  # nothing is left to do


@pytest.mark.parametrize("place", [5, 60, 200])
def test_a_flipped_bit_of_the_manifest_is_told(place, tmp_path, settings):
    job = tmp_path / "job"
    run_job(job, settings, read, OneWorker())
    manifest = job / "manifest.jsonl"
    content = bytearray(manifest.read_bytes())
    content[place] ^= 1
    manifest.write_bytes(content)
    with pytest.raises(
        ValueError, match=r"manifest.jsonl, line 1, is damaged. Restore the file from a copy; or remove"
    ):
        run_job(job, settings, read, OneWorker())


def test_a_file_that_has_changed_is_refused(tmp_path, settings, files):
    run_job(tmp_path / "job", settings, read, OneWorker())
    files[0].write_text(files[0].read_text().replace("line 8", "line eight"))
    with pytest.raises(
        ValueError, match=r"one.txt has changed since .*part-000000001.txt was written: lines 8 to 14 are o"
    ):
        run_job(tmp_path / "job", settings, read, OneWorker())


@pytest.mark.parametrize(
    ("before", "after"),
    [(["ab", "c"], ["a", "bc"]), (["a id 1", "b id 2"], ["a id 1", "b id 3"])],
    ids=["divided otherwise", "kept beside the text"],
)
def test_whatever_has_changed_of_the_lines_is_refused(before, after, tmp_path):
    def with_ids(path):
        for line in path.read_text().splitlines():
            text, _, kept = line.partition(" ")
            yield InputLine(text.encode(), kept)

    file = tmp_path / "lines.txt"
    file.write_text("\n".join(before))
    settings = JobSettings((file,), {}, form=TextColumns(kept=True))
    run_job(tmp_path / "job", settings, with_ids, OneWorker())
    run_job(tmp_path / "job", settings, with_ids, workers=None)
    file.write_text("\n".join(after))
    with pytest.raises(ValueError, match="lines.txt has changed since .*: lines 1 to 2 are other ones"):
        run_job(tmp_path / "job", settings, with_ids, workers=None)


def test_fewer_lines_than_before_are_refused(tmp_path, settings, files):
    run_job(tmp_path / "job", settings, read, OneWorker())
    files[1].write_text("")
    with pytest.raises(ValueError, match=r"The files have fewer lines than when .*part-000000004.txt was written."):
        run_job(tmp_path / "job", settings, read, OneWorker())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"model": {"name": "others"}}, "model: there {'name': 'capitals'}, now {'name': 'others'}"),
        ({"lines_per_part": 8}, "lines_per_part: there 7, now 8"),
        ({"form": JsonLines("translate")}, "form: there {'TextColumns'"),
        ({"on_fault": "source"}, "on_fault: there empty, now source"),
        ({"seed": 1}, "seed: there 0, now 1"),
        ({"reading": {"fields": "en"}}, "reading: there {}, now {'fields': 'en'}"),
        ({"limits": LineLimits(word=9)}, "limits: there {'line': 50000, 'word': 1000, 'columns': None}, now"),
    ],
)
def test_another_job_in_the_same_folder_is_refused(change, told, tmp_path, settings):
    run_job(tmp_path / "job", settings, read, OneWorker())
    with pytest.raises(ValueError, match=r"holds another job.*or name a new folder by --output") as refused:
        run_job(tmp_path / "job", dataclasses.replace(settings, **change), read, OneWorker())
    assert told in str(refused.value)
    assert answers(tmp_path / "job") == WHOLE


def test_a_damaged_description_of_a_job_is_told(tmp_path, settings):
    run_job(tmp_path / "job", settings, read, OneWorker())
    (tmp_path / "job" / "job.json").write_text("{")
    with pytest.raises(ValueError, match=r"job.json is damaged \(.*\). Name a new folder by --output."):
        run_job(tmp_path / "job", settings, read, OneWorker())


def test_a_job_has_a_file_and_a_part_has_a_line(files):
    with pytest.raises(ValueError, match=r"A job needs at least one file. Name it by --input FILE."):
        JobSettings((), {})
    with pytest.raises(ValueError, match=r"lines_per_part must be at least 1. Received: 0."):
        JobSettings(files, {}, lines_per_part=0)


def test_a_folder_with_other_files_is_refused(tmp_path, settings):
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "thesis.tex").write_text("")
    with pytest.raises(ValueError, match=r"job is no folder of a job: it holds thesis.tex. Name a new folder"):
        run_job(tmp_path / "job", settings, read, OneWorker())


def test_what_a_kill_leaves_of_the_description_does_not_matter(tmp_path, settings):
    (tmp_path / "job" / ".kformer-job.json-abc").mkdir(parents=True)
    run_job(tmp_path / "job", settings, read, OneWorker())
    assert answers(tmp_path / "job") == WHOLE


def test_a_resumed_job_that_begins_with_bad_lines_goes_on(tmp_path):
    """The model has answered before, so that ten lines without an answer are no fault of the model."""
    file = tmp_path / "lines.txt"
    file.write_text("one\n" * 10 + f"{REFUSED.decode()}\n" * 12)
    settings = JobSettings((file,), {}, lines_per_part=10)

    class Stopped(OneWorker):
        def wait(self):
            if self.asked[-1].part == 1:
                raise KeyboardInterrupt
            return super().wait()

    with pytest.raises(KeyboardInterrupt):
        run_job(tmp_path / "job", settings, read, Stopped(refusing))
    report = run_job(tmp_path / "job", settings, read, OneWorker(refusing))
    assert (report.lines, report.faults, report.before) == (22, 12, 10)


def test_lines_that_are_tried_alone_have_seeds_of_their_own(tmp_path):
    file = tmp_path / "lines.txt"
    file.write_text("a\na\na\n" + REFUSED.decode() + "\n")
    worker = OneWorker(refusing)
    run_job(tmp_path / "job", JobSettings((file,), {}, seed=3), read, worker)
    alone = [batch.seed for batch in worker.asked if len(batch.texts) == 1]
    assert len({*alone}) == 4


def test_two_processes_do_not_work_in_one_folder(tmp_path, settings):
    with owned(tmp_path / "job"), pytest.raises(RunInUseError, match="Another process works in "):
        run_job(tmp_path / "job", settings, read, OneWorker())


# Faults


def hostile(tmp_path, on_fault, worker, form=None):
    """A job of one file: two good lines, and three bad ones between them."""
    file = tmp_path / "lines.txt"
    lines = ["one", "." * 20, "x" * 31, REFUSED.decode(), "two"]
    file.write_text("".join(f"{line}\n" for line in lines))
    settings = JobSettings(
        (file,), {}, on_fault=on_fault, limits=LineLimits(line=30, word=10), form=form or TextColumns()
    )
    report = run_job(tmp_path / "job", settings, read, worker)
    return answers(tmp_path / "job").splitlines(), report


def refusing(texts, seed):
    if REFUSED in texts:
        raise ValueError("it is a bad word")
    return capitals(texts, seed)


@pytest.mark.parametrize(
    ("on_fault", "expected"),
    [
        ("empty", ["ONE", "", "", "", "TWO"]),
        ("source", ["ONE", "." * 20, "x" * 31, "refused", "TWO"]),
        ("keep", ["ONE", "." * 10, "X" * 10, "", "TWO"]),
    ],
)
def test_a_bad_line_does_not_hold_up_the_others(on_fault, expected, tmp_path):
    found, report = hostile(tmp_path, on_fault, OneWorker(refusing))
    assert found == expected
    assert report.faults == 3
    assert (
        report.first_fault == f"line 2 of {tmp_path}/lines.txt: a word of 20 characters, where the longest may have 10"
    )
    faults = json.loads((tmp_path / "job" / "manifest.jsonl").read_text())["faults"]
    assert [number for number, _ in faults] == [2, 3, 4]
    assert faults[-1][1] == "it is a bad word"


def test_json_lines_say_what_is_wrong(tmp_path):
    found, _ = hostile(tmp_path, "empty", OneWorker(refusing), JsonLines("translate"))
    assert json.loads(found[3]) == {
        **{"line": 3, "text": "refused", "translation": "", "score": None},
        "fault": "it is a bad word",
    }
    answered = json.loads(found[4])
    assert answered.pop("score") > 0  # the seed of its batch
    assert answered == {"line": 4, "text": "two", "translation": "TWO"}


def test_a_model_that_answers_nothing_ends_the_job(tmp_path, settings):
    def refuse(texts, seed):
        raise ValueError("wrong signature")

    with pytest.raises(ValueError, match=r"The model answers nothing. It says: wrong signature"):
        run_job(tmp_path / "job", settings, read, OneWorker(refuse))


@pytest.mark.parametrize("number", [12, 100])
def test_lines_too_long_for_the_model_do_not_end_the_job(number, tmp_path):
    """The longest lines are asked first, and the model refuses them before it has answered another one."""

    def answer(texts, seed):
        if any(len(text) > 99 for text in texts):
            raise ValueError("it is too long")
        return capitals(texts, seed)

    file, lines = tmp_path / "lines.txt", [*(f"line {place} ".ljust(100, "x") for place in range(number)), "a", "b"]
    file.write_text("".join(f"{line}\n" for line in lines))
    report = run_job(tmp_path / "job", JobSettings((file,), {}), read, OneWorker(answer))
    assert answers(tmp_path / "job") == "\n" * number + "A\nB\n"
    assert report.faults == number


def test_a_model_that_ends_its_worker_with_every_batch_ends_the_job(tmp_path, settings):
    def answer(texts, seed):
        raise EOFError("its process ended")

    with pytest.raises(ValueError, match="The model answers nothing. It says: its process ended"):
        run_job(tmp_path / "job", settings, read, OneWorker(answer))


def test_parts_whose_lines_have_other_numbers_now_are_refused(tmp_path, settings, files):
    """The first file has grown, whose part is not written."""
    run_job(tmp_path / "job", settings, read, OneWorker())
    job = tmp_path / "job"
    manifest = (job / "manifest.jsonl").read_text().splitlines(keepends=True)
    (job / "manifest.jsonl").write_text("".join(line for line in manifest if json.loads(line)["number"] != 3))
    with files[0].open("a") as file:
        file.write("line 23\n")
    with pytest.raises(ValueError, match="two.txt has changed since .*part-000000004.txt was written"):
        run_job(job, settings, read, OneWorker())


def test_a_batch_whose_worker_is_lost_is_tried_again_whole_and_then_line_by_line(tmp_path):
    def lose(texts, seed):
        if b"two" in texts:
            raise EOFError("its process ended (SIGKILL)")
        return capitals(texts, seed)

    file = tmp_path / "lines.txt"
    file.write_text("one\ntwo\nthree\n")
    worker = OneWorker(lose)
    report = run_job(tmp_path / "job", JobSettings((file,), {}), read, worker)
    assert [sorted(batch.texts) for batch in worker.asked] == [
        [b"one", b"three", b"two"],
        [b"one", b"three", b"two"],
        [b"two"],
        [b"two"],
        [b"one"],
        [b"three"],
    ]
    assert answers(tmp_path / "job") == "ONE\n\nTHREE\n"
    assert report.first_fault == f"line 2 of {tmp_path}/lines.txt: its process ended (SIGKILL)"


def test_a_batch_that_reached_no_worker_is_tried_until_it_does(tmp_path, settings):
    faults = iter(range(50))

    def unreached(texts, seed):
        if next(faults, None) is not None:
            raise ConnectionError("no server")
        return capitals(texts, seed)

    assert run_job(tmp_path / "job", settings, read, OneWorker(unreached)).faults == 0
    assert answers(tmp_path / "job") == WHOLE


# What goes with a line


def test_each_batch_has_a_seed_of_its_own_that_does_not_depend_on_stops(tmp_path, settings):
    settings = dataclasses.replace(settings, seed=5, form=TextColumns(score=True))
    worker = OneWorker()
    run_job(tmp_path / "job", settings, read, worker)
    seeds = {batch.part: batch.seed for batch in worker.asked}
    assert seeds == {0: 5, 1: 5 + (7 << 32), 2: 5 + (14 << 32), 3: 5 + (21 << 32), 4: 5 + (23 << 32)}
    part = tmp_path / "job" / "part-000000003.tsv"
    before = part.read_text()
    part.unlink()
    run_job(tmp_path / "job", settings, read, OneWorker())
    assert part.read_text() == before
    assert str(5 + (21 << 32)) in before


def test_a_field_is_kept_beside_the_answer(tmp_path, files):
    def with_numbers(path):
        return (InputLine(line.text, f"id {number}") for number, line in enumerate(read(path)))

    settings = JobSettings(files[1:], {}, form=TextColumns(kept=True))
    run_job(tmp_path / "job", settings, with_numbers, OneWorker())
    assert answers(tmp_path / "job").splitlines()[:3] == ["A\tid 0", "B\tid 1", "ODD C\tid 2"]


def test_only_a_few_parts_are_in_memory(tmp_path):
    """A job reads no further than its workers need."""
    file = tmp_path / "lines.txt"
    file.write_text("x\n" * 1000)
    taken = []

    def counting(path):
        for line in read(path):
            taken.append(line)
            yield line

    class Looking(OneWorker):
        def wait(self):
            written = len(list((tmp_path / "job").glob("part-*")))
            assert len(taken) <= 10 * (written + 1)
            return super().wait()

    run_job(tmp_path / "job", JobSettings((file,), {}, lines_per_part=10), counting, Looking())
    assert len(taken) == 1000
