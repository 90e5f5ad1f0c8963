"""Every command that the pages name exists, with the options that it is given there."""

import pathlib
import re

import pytest
import typer

from kformer.cli.main import app

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "export/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
# A block, or `kformer ...` within a sentence.
CODE = re.compile(r"```[a-z]*\n(?P<block>.*?)```|`(?P<inline>kformer [^`]+)`", flags=re.DOTALL)
PARTS = re.compile(r"\||&&|;|\$\(|\)|\n")  # of a line with several commands


def commands_of(text):
    """The arguments of each `kformer` of a page."""
    for found in CODE.finditer(text):
        code = (found["block"] or found["inline"].replace("\n", " ")).replace("\\\n", " ")
        for part in PARTS.split(code):
            words = part.split("#")[0].split()
            if "kformer" in words[:2]:  # the first word may set a variable
                yield words[words.index("kformer") + 1 :]


def unknown_words(words, command):
    """What of a command line the command does not have: its own name, or options."""
    while words and hasattr(command, "commands") and re.fullmatch(r"[a-z][a-z-]*", words[0]):
        if words[0] not in command.commands:
            return words[:1]
        command, words = command.commands[words[0]], words[1:]
    known = {"--help"} | {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    given = [re.match(r"--?[a-zA-Z][\w-]*", word) for word in words]
    return [name[0] for name in given if name and name[0] not in known]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_exist(page):
    kformer = typer.main.get_command(app)
    wrong = [(words, unknown_words(words, kformer)) for words in commands_of(page.read_text("utf-8"))]
    assert [(" ".join(words), unknown) for words, unknown in wrong if unknown] == []


def test_a_wrong_command_or_option_is_found():
    kformer = typer.main.get_command(app)
    block = "A=1 kformer translate RUN --beam-sise 3 \\\n  --n-best 2 | kformer tranlate\nkformer lint DIR"
    found = commands_of(f"```sh\n{block}\n```\nor `kformer plot run A --wrong`.")
    assert [unknown_words(words, kformer) for words in found] == [["--beam-sise"], ["tranlate"], [], ["--wrong"]]
