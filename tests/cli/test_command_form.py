"""What all commands have in common: their help can be read at 80 columns, and no option of one value is given twice."""

import re

import pytest
import typer
from typer.testing import CliRunner

from kformer.cli.main import app


def commands(command, words=()):
    """Every command below one, with the words that call it."""
    below = getattr(command, "commands", {})
    found = [] if below else [(words, command)]
    return found + [one for name, sub in below.items() for one in commands(sub, (*words, name))]


COMMANDS = commands(typer.main.get_command(app))
OPTIONS = [
    (words, option)
    for words, command in COMMANDS
    for option in command.params
    if option.param_type_name == "option" and not option.is_flag
]


def invoke(*words):
    return CliRunner().invoke(app, words, env={"COLUMNS": "80"})


def test_the_program_alone_shows_its_commands():
    assert "Usage: " in invoke().output
    assert "translate" in invoke().output


def test_there_are_commands_with_options():
    assert {"train", "serve", "plot attention"} <= {" ".join(words) for words, _ in COMMANDS}
    assert len(OPTIONS) > 50


@pytest.mark.parametrize(("words", "command"), COMMANDS, ids=[" ".join(words) for words, _ in COMMANDS])
def test_the_help_at_80_columns_has_every_option_whole(words, command):
    shown = invoke(*words, "--help").output
    assert max(map(len, shown.splitlines())) <= 80
    names = {name for option in command.params for name in (*option.opts, *option.secondary_opts) if name[0] == "-"}
    assert names <= {*re.findall(r"--[a-z0-9-]+(?<!-)", shown)}


@pytest.mark.parametrize(
    ("name", "panels"),
    [
        ("train", ["Run", "Data", "Cleaning", "Model", "Machines", "Training", "Stopping"]),
        ("prepare", ["Data", "Cleaning", "Model", "Training", "Stopping"]),
        ("data", ["Arguments", "Data", "Cleaning", "Vocabulary"]),
        ("translate", ["Arguments", "Model", "Input and output", "Search", "Sampling"]),
        ("generate", ["Arguments", "Model", "Input and output", "Search", "Sampling"]),
        ("evaluate", ["Arguments", "Model", "Data", "Search", "Scores"]),
        ("export", ["Arguments", "Model", "Search", "Format", "SavedModel"]),
        ("serve", ["Arguments", "Model", "Batches and limits", "Monitoring", "Addresses", "Access"]),
    ],
)
def test_the_help_has_every_option_in_a_panel(name, panels):
    _, *shown = re.split(r"^(\w[\w ]*):$", invoke(name, "--help").output, flags=re.MULTILINE)
    options = {
        title: re.findall(r"^  (--\S+)", text, flags=re.MULTILINE)
        for title, text in zip(shown[::2], shown[1::2], strict=True)
    }
    assert [*options] == [*panels, "Options"]
    assert options["Options"] == ["--help"]


@pytest.mark.parametrize(
    ("words", "option"), OPTIONS, ids=[f"{' '.join(words)} {option.opts[0]}" for words, option in OPTIONS]
)
def test_an_option_of_one_value_is_refused_twice(words, option, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a command that is not refused would write
    name = option.opts[0]
    answer = invoke(*words, name, "1", name, "2")
    refused = f"{name} takes one value, and was given 2 times. Give it once." in " ".join(answer.output.split())
    assert refused is not option.multiple
    assert answer.exit_code != 0


def test_a_switch_and_its_opposite_are_refused_and_a_switch_may_be_repeated():
    answer = invoke("train", "--no-train-embeddings", "--train-embeddings")
    assert "--train-embeddings/--no-train-embeddings takes one value, and was given 2 times." in " ".join(
        answer.output.split()
    )
    assert "takes one value" not in invoke("train", "--resume", "--resume").output


PRESETS = {"translate": {"bible-en-es", "cmudict"}, "classify": {"bible-books"}, "generate": {"bible-english"}}


@pytest.mark.parametrize(
    ("command", "names"),
    [*PRESETS.items(), ("tag", {"none yet"}), ("evaluate", {name for names in PRESETS.values() for name in names})],
)
def test_a_command_offers_the_presets_that_it_can_use(command, names):
    (option,) = [option for words, option in OPTIONS if words == (command,) and option.name == "preset"]
    _, offered = option.help.removesuffix(".").split("instead of MODEL: ")
    assert {*offered.split(", ")} == names
