"""The table "Where is it done?" of CONTRIBUTING.md names files and definitions that exist."""

import ast
import pathlib
import re
from typing import NamedTuple

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PACKAGE = ROOT / "kformer"
HEADING = "## Where is it done?"


class Row(NamedTuple):
    question: str
    files: list[str]
    names: list[str]


def rows_of(page: str) -> list[Row]:
    """The rows of the table in a page; titles of groups, whose other cells are empty, are left out."""
    section = page.partition(HEADING + "\n")[2].partition("\n## ")[0]
    cells = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][2:]
    return [Row(row[0], *(re.findall("`([^`]+)`", cell) for cell in row[1:])) for row in cells if len(row) == 3]


def definitions(source: str) -> set[str]:
    """The functions, classes and constants that a module defines, and `Class.method`; imported names are none."""
    found = set()
    for node in ast.parse(source).body:
        for name in _names(node):
            found.add(name)
            if isinstance(node, ast.ClassDef):
                found |= {f"{name}.{member}" for inner in node.body for member in _names(inner)}
    return found


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


ROWS = rows_of((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))


def test_the_table_is_found():
    assert len(ROWS) > 50


@pytest.mark.parametrize("row", ROWS, ids=[row.question for row in ROWS])
def test_a_row_names_files_and_what_they_define(row):
    assert row.files
    assert row.names
    missing = [file for file in row.files if not (PACKAGE / file).is_file()]
    assert not missing, f"{row.question}: there is no {missing}"
    defined = [definitions((PACKAGE / file).read_text(encoding="utf-8")) for file in row.files]
    for name in row.names:
        assert any(name in names for names in defined), f"{row.question}: {row.files} define no {name}"
    for file, names in zip(row.files, defined, strict=True):
        assert names & set(row.names), f"{row.question}: no name of the row is in {file}"


def test_rows_and_definitions_are_found():
    page = f"# Page\n{HEADING}\n\n| | file | name |\n| --- | --- | --- |\n| **a group** | | |\n"
    page += "| a | `x.py` | `f`, `C.m` |\n| b, c | `y.py`, `z.py` | `D` |\n\n## Next\n| d | `w.py` | `g` |\n"
    assert rows_of(page) == [Row("a", ["x.py"], ["f", "C.m"]), Row("b, c", ["y.py", "z.py"], ["D"])]
    source = "from x import y\nN: int = 1\nK = 2\nasync def f(): ...\nclass C:\n    a: int\n    def m(self): b = 1\n"
    assert definitions(source) == {"N", "K", "f", "C", "C.a", "C.m"}
