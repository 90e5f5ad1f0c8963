"""Every command takes a model that was imported, as one that was trained here."""

import json
from typing import NamedTuple

import pytest
from examples import FOLDER
from typer.testing import CliRunner

from kformer.cli.main import app

pytestmark = [pytest.mark.tensorflow_only, pytest.mark.slow]

TRANSLATORS = [
    "bart",
    "m2m100",
    "marian",
    "marian_separate",
    "mbart",
    "nllb",
    "opennmt-tf/train.yml",
    "opennmt-tf-relative/train.yml",
    "t5",
    "t5_gated",
]
LINES = ["In the beginning God made the heaven and the earth.", "And the earth was waste and without form.", "Light."]


class Use(NamedTuple):
    """What is done with a model.

    Attributes:
        task: What it is fine-tuned for.
        command: That answers texts; "" where there is none.
        targets: What fine-tuning learns for each line.
    """

    task: str
    command: str
    targets: list[str]


TRANSLATE = Use("translate", "translate", ["En el principio.", "Y la tierra estaba vacía.", "Luz."])
GENERATE = Use("language-model", "generate", [])
USES = {
    "gpt2": GENERATE,
    "llama": GENERATE,
    "bert": Use("masked-language-model", "", []),
    "bert_classifier": Use("classify", "classify", ["long", "long", "short"]),
    "bert_tagger": Use("tag", "tag", [" ".join("x" for _ in line.split()) for line in LINES]),
}


def run(*arguments):
    """Runs a command; what it prints."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, (arguments, result.output, result.exception)
    return result.stdout


def answers(use, model, texts):
    return run(use.command, model, "--input", texts).removesuffix("\n").split("\n")


@pytest.mark.parametrize("name", [*TRANSLATORS, *USES])
def test_an_imported_model_goes_through_every_command(name, tmp_path):
    use = USES.get(name, TRANSLATE)
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"{line}\n" for line in LINES))
    languages = ["--source-language", "eng_Latn", "--target-language", "spa_Latn"] if name == "nllb" else []
    run("import", FOLDER / name, tmp_path / "imported", "--samples", texts, *languages)

    corpus = tmp_path / "corpus.tsv"
    rows = [f"{line}\t{target}\n" for line, target in zip(LINES, use.targets, strict=True)] if use.targets else []
    corpus.write_text("".join(rows or texts.read_text()) * 20)
    if use.command:
        assert len(answers(use, tmp_path / "imported", texts)) == 3
        assert json.loads(run("evaluate", tmp_path / "imported", "--test", corpus, "--limit", 3))

    steps = ["--max-steps", 4, "--validation-steps", 2, "--max-length", 60, "--task", use.task]
    files = ["--train", corpus, "--valid", corpus]
    run("train", "--initialize-from", tmp_path / "imported", *files, *steps, "--output", tmp_path / "tuned")
    run("average", tmp_path / "tuned", tmp_path / "averaged")
    run("pack", tmp_path / "averaged", tmp_path / "packed", "--samples", texts)
    if not use.command:
        return
    expected = answers(use, tmp_path / "packed", texts)
    run("export", tmp_path / "packed", tmp_path / "float32")
    assert answers(use, tmp_path / "float32", texts) == expected
    for precision in ("bfloat16", "int8"):
        arguments = ["export", str(tmp_path / "packed"), str(tmp_path / precision), "--precision", precision]
        result = CliRunner().invoke(app, arguments)
        if result.exit_code:  # the scores of random weights are easily rounded too much
            assert "Export in float32" in str(result.exception)
        else:
            assert len(answers(use, tmp_path / precision, texts)) == len(LINES)
    if use.command == "translate":
        texts_read = ["--text", LINES[0], "--translation", LINES[0]]
        run("plot", "attention", tmp_path / "packed", *texts_read, "--output", tmp_path / "attention.png")
        assert (tmp_path / "attention.png").stat().st_size > 1000
