"""`kformer data`: what a corpus consists of, and what rules would leave out."""

import pytest
from commands import refused
from typer.testing import CliRunner

from kformer.cli.main import app
from kformer.data.corpus_description import describe
from kformer.tokenizers import SentencePieceTokenizer


def run(*arguments):
    result = CliRunner().invoke(app, ["data", *map(str, arguments)])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("one two\tодин два\n" * 3 + "one\tone\n" + "a b c d e\tx y\n" + "blank\t \n" + "12 13\t14\n")
    return path


def test_what_is_kept_is_described_and_what_is_there_twice_is_counted(file):
    left_out, kept = run(file).split("What is kept:\n")
    assert left_out.startswith("3 of 7 pairs are left out\n")
    assert "2  28.57%  the same pair is there before\n" in left_out
    assert "1  14.29%  source and target are the same\n" in left_out
    assert "'one two' - 'один два'" in left_out
    lines = kept.splitlines()
    assert lines[0] == "4 pairs, 1 with a blank side"
    # one two, a b c d e, blank, 12 13: 2 + 5 + 1 + 2 words, 6 + 5 + 5 letters
    assert lines[2] == "  10 different words, 14 different characters"
    assert lines[1] == ("source: 10 words, 26 characters; 2.5 words on average, at most 5; letters: Latin 100.0%")
    # один два, x y, 14: 7 Cyrillic letters and 2 Latin ones
    assert "letters: Cyrillic 77.8%, Latin 22.2%" in kept
    assert [line.split() for line in lines[3:7]] == [
        ["1", "words", "█" * 20, "1"],
        ["2", "words", "█" * 40, "2"],
        ["3", "to", "4", "words", "0"],
        ["5", "to", "8", "words", "█" * 20, "1"],
    ]


def test_rules_arrive_in_place_of_the_usual_ones(file):
    assert run(file, "--max-ratio", 2.5).startswith("1 of 7 pairs are left out\n")
    assert run(file, "--min-letters", 0.5).startswith("1 of 7 pairs are left out\n")


def test_bad_lines_of_parallel_files_are_left_out_with_their_partners(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\n\xff\ntwo\n")
    (tmp_path / "b.txt").write_text("uno\nx\ndos\n")
    said = run(tmp_path / "a.txt", tmp_path / "b.txt", "--skip-bad-lines").splitlines()
    assert "0 of 2 pairs are left out" in said
    assert "a.txt, line 2: byte 0xff" in said[1]


def test_plain_text_parallel_files_and_named_fields_are_read(tmp_path, file):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "b.txt").write_text("uno\ndos tres\n")
    (tmp_path / "c.csv").write_text("en,es\none,uno\n")
    assert "target: no text" in run(tmp_path / "a.txt", "--plain-text")
    assert "target: 3 words" in run(tmp_path / "a.txt", tmp_path / "b.txt")
    assert "1 pair, 0 with a blank side" in run(tmp_path / "c.csv", "--fields", "en,es")
    result = CliRunner().invoke(app, ["data", *map(str, (file, file, file))])
    assert "data takes one file of pairs, or two parallel files" in str(result.exception)
    result = CliRunner().invoke(app, ["data", str(file), str(file), "--fields", "a,b"])
    assert "without --columns, --fields" in str(result.exception)


def test_the_most_frequent_words_cover_a_share_of_the_text(tmp_path):
    # 8,001 words, of which the first is there 2,000 times: the 8,000 most frequent ones are all but one of 10,000.
    (tmp_path / "a.txt").write_text("".join(f"w{max(0, number - 1999)}\n" for number in range(10_000)))
    said = run(tmp_path / "a.txt", "--plain-text", "--duplicates", "keep", "--max-characters", 99)
    assert "  8,001 different words, 11 different characters; share of the text that the most frequent words" in said
    assert "make up: 8,000 words 100.0%\n" in said
    (tmp_path / "a.txt").write_text("".join(f"w{number}\n" for number in range(16_001)))
    said = run(tmp_path / "a.txt", "--plain-text")
    assert "8,000 words 50.0%, 16,000 words 100.0%\n" in said


def test_pairs_of_a_test_set_are_counted_and_left_out(tmp_path, file):
    test = tmp_path / "test.csv"
    test.write_text("source,target\none two,один два\na b c d e,x\nnothing,x\n")
    said = run(file, "--without", test)
    assert said.startswith("4 of 7 pairs are left out\n")
    assert f"3  42.86%  the pair is also in {test}\n" in said
    assert f"1  14.29%  the source is also in {test}\n" in said
    assert "What is kept:\n3 pairs, 1 with a blank side" in said


def test_a_test_set_may_have_named_fields(tmp_path, file):
    """Two test sets, of which the second has the usual fields."""
    test, other = tmp_path / "test.jsonl", tmp_path / "other.csv"
    test.write_text('{"no": 1, "en": "one two", "ru": "один два"}\n{"no": 2, "en": "a b c d e", "ru": "x"}\n')
    other.write_text("source,target\nnothing,x\n")
    said = run(file, "--without", test, "--without", other, "--without-fields", "en,ru", "--without-fields", "")
    assert said.startswith("4 of 7 pairs are left out\n")
    assert f"3  42.86%  the pair is also in {test}\n" in said
    assert run(file, "--without", test, "--without-fields", "en,ru") == said


@pytest.mark.parametrize(
    ("given", "numbers"),
    [
        (["--without-fields", "en,ru"], "1, and 0 of those"),
        (["--without", "a.csv", "--without-fields", "en", "--without-fields", "ru"], "2, and 1 of those"),
    ],
)
def test_fields_of_test_sets_are_one_for_each(file, given, numbers):
    said = refused("data", file, *given)
    assert (
        f"There must be as many --without-fields as --without, in their order, or one for all. Received: {numbers}"
        in said
    )


def test_a_test_set_may_be_sources_alone(tmp_path, file):
    (tmp_path / "test.txt").write_text("one two\na b c d e\n")
    said = run(file, "--without", tmp_path / "test.txt")
    assert said.startswith("4 of 7 pairs are left out\n")
    assert f"4  57.14%  the source is also in {tmp_path / 'test.txt'}\n" in said


@pytest.mark.tensorflow_only
class TestTokens:
    @pytest.fixture
    def models(self, tmp_path):
        """Files of two SentencePiece models, of "low lower lowest" and of "один два"."""
        for name, text, size in (("en", "low lower lowest", 271), ("ru", "один два", 269)):
            (tmp_path / f"{name}.model").write_bytes(SentencePieceTokenizer.train([text], size).model_bytes)
        return tmp_path / "en.model", tmp_path / "ru.model"

    def test_what_the_vocabularies_make_of_the_texts_is_told_by_side(self, tmp_path, models):
        (tmp_path / "pairs.tsv").write_text("low low\tодин два\nlow lé e\u0301\tдва\n")
        said = run(tmp_path / "pairs.tsv", "--source-tokenizer", models[0], "--target-tokenizer", models[1])
        source, target = said.split("\nIn tokens:\n")[1].splitlines()
        # low is a token; lé is a blank, l and two bytes, é is a blank and two bytes. 5 words, 16 characters.
        assert source == (
            "source: 10 tokens, 2.00 for each word and 0.62 for each character; "
            "50.0% of the texts have what the vocabulary lacks: é 2"
        )
        assert target.startswith("target: ")
        assert target.endswith("0.0% of the texts have what the vocabulary lacks")
        assert "50.0% of the texts have" in run(tmp_path / "pairs.tsv", "--source-tokenizer", models[0])

    def test_a_model_that_comes_with_kformer(self, tmp_path):
        (tmp_path / "pairs.tsv").write_text("c a t\tK AE T\nc 7 t\tK X X\n")
        source, target = run(tmp_path / "pairs.tsv", "--model", "cmudict").splitlines()[-2:]
        assert "6 tokens, 1.00 for each word" in source
        assert source.endswith("50.0% of the texts have what the vocabulary lacks: 7 1")
        assert target.endswith("50.0% of the texts have what the vocabulary lacks: X 2")

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--model", "cmudict", "--source-tokenizer", "a.model"], "data takes --model, or --source-tokenizer"),
            (["--model", "cmudict", "--target-tokenizer", "a.model"], "Leave out the others"),
            (["--target-tokenizer", "a.model"], "data takes --model, or --source-tokenizer"),
            (["--model", "cmudic"], "Did you mean 'cmudict'"),
            (["--source-tokenizer", "a.model"], "There is no file a.model"),
        ],
    )
    def test_other_choices_are_refused_before_the_file_is_read(self, options, message):
        assert message in str(CliRunner().invoke(app, ["data", "missing.tsv", *options]).exception)


def test_a_million_different_words_are_held_and_those_go_on_to_be_counted():
    many = " ".join(f"{number:x}" for number in range(1 << 20))
    lines = describe([(many, ""), ("0 new 0", ""), ("newer", "")]).lines()
    assert "  more than 1,048,576 different words, 19 different characters; share of the text" in lines[2]
    # 0 is there three times. 8,002 of 2^20 + 4 words are 0.763%.
    assert "8,000 words 0.8%, 16,000 words 1.5%, 32,000 words 3.1%" in lines[2]
