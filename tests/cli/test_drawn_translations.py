"""`kformer translate` draws translations, and writes them as pairs for the other direction."""

import io

import pytest
from commands import refused, run
from servers import running

from kformer.data import TsvFile
from kformer.inference.line_forms import TextColumns
from kformer.inference.lines import answer_lines, input_lines
from kformer.serving.model_settings import ModelSettings
from kformer.serving.settings import ServerSettings
from kformer.text.batches import Hypothesis, RefusedTextError, with_tag

pytestmark = pytest.mark.tensorflow_only

HOT = ["--temperature", 3, "--seed", 7]


@pytest.fixture
def lines(tmp_path):
    """150 lines, which are drawn in several batches; each 7th is blank."""
    words = ["one", "two", "three", "four", "five", "six"]
    path = tmp_path / "lines"
    path.write_text(
        "".join(f"{'' if number % 7 == 0 else ' '.join(words[: number % 6 + 1])}\n" for number in range(150))
    )
    return path


@pytest.fixture
def translated(tmp_path):
    """What the command writes, with these arguments."""

    def written(*arguments):
        run("translate", *arguments, "--output", tmp_path / "out")
        return (tmp_path / "out").read_text()

    return written


def test_a_seed_draws_the_same_translations_again_and_another_seed_others(numbers_run, lines, translated):
    arguments = [numbers_run, "--input", lines]
    drawn = translated(*arguments, *HOT)
    assert translated(*arguments, *HOT) == drawn
    assert translated(*arguments, "--temperature", 3, "--seed", 8) != drawn
    assert drawn.count("\n") == 150
    likeliest = translated(*arguments, *HOT, "--top-k", 1)
    assert translated(*arguments, "--temperature", 1, "--top-p", 1e-6) == likeliest != drawn


def test_equal_lines_of_different_batches_are_drawn_differently(numbers_run, tmp_path, translated):
    (tmp_path / "same").write_text("one two three\n" * 130)
    drawn = translated(numbers_run, "--input", tmp_path / "same", *HOT).split("\n")
    assert drawn[:64] != drawn[64:128]


def test_pairs_have_the_translation_first_and_no_line_is_shifted(numbers_run, lines, tmp_path, translated):
    plain = translated(numbers_run, "--input", lines).splitlines()
    translated(numbers_run, "--input", lines, "--pairs")
    pairs = list(TsvFile(tmp_path / "out"))
    assert [source for source, _ in pairs] == plain
    assert [target for _, target in pairs] == lines.read_text().splitlines()
    assert pairs[7] == ("", "") != pairs[8]


def test_alignments_are_of_the_text_without_its_tag():
    """The model reads the tag as word 0."""
    answer = with_tag(lambda texts: [[Hypothesis("uno dos", -1.0, "0-0 1-0 2-1")] for _ in texts], "<2es>")
    assert [found[0].alignment for found in answer([b"one two", b""])] == ["0-0 1-1", "0-0 1-0 2-1"]


def test_pairs_can_be_read_whatever_the_texts_hold(tmp_path):
    lines = [b"one\ttwo", b"six \xff five", b"three"]
    texts = iter(["uno\tdos", "seis\0", "tres\n"])
    with (tmp_path / "pairs").open("wb") as target:
        answer_lines(
            lambda batch: [[Hypothesis(next(texts), 0.0)] for _ in batch],
            input_lines(lines),
            target,
            TextColumns(line=True),
            1,
        )
    assert list(TsvFile(tmp_path / "pairs")) == [
        ("uno dos", "one two"),
        ("seis ", "six \ufffd five"),
        ("tres ", "three"),
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seed", 1], "--top-k, --top-p and --seed are for tokens that are drawn at random. Give --temperature, too"),
        (
            [*HOT, "--n-best", 2, "--beam-size", 3],
            "With --temperature there is no search: tokens are drawn, and each line has one answer. Leave out "
            "--beam-size and --n-best.",
        ),
        ([*HOT, "--length-penalty", 1], "Leave out --length-penalty."),
        (["--pairs", "--n-best", 2], "--pairs writes one translation of each line. Leave out --n-best."),
    ],
)
def test_what_does_not_go_together_is_told_before_the_model_is_read(options, message, lines):
    assert message in refused("translate", "nowhere", "--input", lines, *options)


@pytest.mark.parametrize("option", ["--beam-size", "--length-penalty"])
def test_generate_refuses_a_search_beside_a_temperature(option, lines):
    said = refused("generate", "nowhere", "--input", lines, *HOT, option, 2)
    assert (
        f"With --temperature there is no search: tokens are drawn, and each line has one answer. Leave out {option}."
        in said
    )
    assert "nowhere" in refused("generate", "nowhere", "--input", lines, "--max-length", 9, option, 2)


@pytest.mark.slow
def test_a_run_an_export_and_a_server_draw_the_same(
    numbers_run, numbers_export, cold_export_folder, tmp_path, translated
):
    """In one batch: a server takes fewer lines at once, and each batch has its own seed."""
    (tmp_path / "lines").write_text("one two three\n\nsix\n" * 5)
    options = ["--input", tmp_path / "lines", "--pairs", *HOT]
    drawn = translated(numbers_run, *options)
    assert [line.split("\t")[1] for line in drawn.split("\n")[:-1]] == ["one two three", "", "six"] * 5
    assert translated(numbers_export, *options) == drawn
    with running(ServerSettings([ModelSettings("numbers", cold_export_folder)], rest_port=0, grpc_port=0)) as server:
        for url in (f"{server.url}/v1/models/numbers", f"grpc://{server.grpc_address}/numbers"):
            assert translated("--server", url, *options) == drawn


def test_the_answers_before_a_line_that_is_refused_are_written_also_with_a_tag():
    def answer(texts):
        if b"<2es> bad" in texts:
            raise RefusedTextError("It is refused.", b"<2es> bad")
        return [[Hypothesis(text.decode().upper(), 0.0)] for text in texts]

    target = io.BytesIO()
    with pytest.raises(RefusedTextError, match="^Line 3: It is refused") as refused:
        answer_lines(with_tag(answer, "<2es>"), input_lines([b"one", b"", b"bad", b"two"]), target)
    assert target.getvalue() == b"<2ES> ONE\n\n"
    assert refused.value.text == b"bad"
