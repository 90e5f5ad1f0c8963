"""What a job tells of its progress where nobody sees a bar."""

from kformer.cli import job


def test_the_progress_is_told_each_minute(monkeypatch, capsys):
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    progress = job.Progress(10_000)
    progress(4_000)  # of an earlier process, at once
    for _ in range(250):
        now[0] += 0.5
        progress(10)
    assert capsys.readouterr().err.splitlines() == [
        "kformer: 5,200 of 10,000 lines, 87 a second, about 1 minute left",
        "kformer: 6,400 of 10,000 lines, 20 a second, about 3 minutes left",
    ]
