"""The package follows the data: a module imports only from the rows that the table below allows."""

import ast
import os
import pathlib
import subprocess
import sys

import pytest

import kformer

PACKAGE = pathlib.Path(kformer.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

# A row is a file or a folder directly below kformer/; a row may also import from itself. Rows stand from low to high.
# A new row is added here by hand, with what it may import.
MAY_IMPORT: dict[str, set[str]] = {
    "version": set(),
    "wording": set(),
    "process": set(),
    "files": set(),
    "indexing": set(),
    "layers": {"indexing"},
    "decoding": {"indexing"},
    "config": {"files", "wording"},
    "recipes": {"config", "wording"},
    "runtime": {"files", "process", "wording"},
    "writing_systems": set(),
    "tokenizers": {"files", "writing_systems"},
    "runs": {"config", "files", "tokenizers", "version"},
    "data": {"config", "files", "process", "writing_systems", "tokenizers", "version", "wording"},
    "losses": set(),
    "metrics": {"losses"},
    "schedules": set(),
    "models": {"config", "indexing", "layers", "losses"},
    "presets": {"config", "models", "runs", "version", "wording"},
    "text": {"config", "decoding", "files", "layers", "models", "process", "tokenizers", "wording", "writing_systems"},
    "client": {"config", "runtime", "text"},
    "evaluation": {"config", "data", "writing_systems", "text", "wording"},
    "tasks": {
        *("config", "data", "decoding", "layers", "losses", "metrics", "models", "presets", "process", "runs", "text"),
        "tokenizers",
    },
    "export": {
        *("config", "decoding", "files", "importing", "layers", "models", "runs", "runtime", "tasks", "text"),
        *("tokenizers", "wording"),  # A format that is also imported has one table of names, which the import keeps.
    },
    "inference": {
        *("config", "export", "files", "process", "runs", "runtime", "tasks", "text", "wording", "writing_systems"),
    },
}
MAY_IMPORT["jobs"] = {"client", "config", "data", "files", "inference", "presets", "runs", "text"}
MAY_IMPORT["importing"] = {"config", "files", "models", "process", "runs", "tokenizers", "wording"}
MAY_IMPORT["serving"] = {"client", "export", "files", "process", "runtime"}
MAY_IMPORT["visualization"] = {
    *("config", "decoding", "evaluation", "files", "layers", "losses", "runs", "schedules", "text", "wording"),
}
MAY_IMPORT["training"] = {*MAY_IMPORT} - {
    "client",
    "importing",
    "jobs",
    "recipes",
    "serving",
    "version",
    "visualization",
}
ANYTHING = {"__init__", "__main__", "cli"}  # What a person starts or imports sees all rows.

HEAVY = {"jax", "keras", "keras_nlp", "matplotlib", "pandas", "sentencepiece", "tensorflow", "tensorflow_text"}


def row_of(path: pathlib.PurePath) -> str:
    """The row of a file below kformer/: layers/masks.py and layers/__init__.py belong to layers."""
    return path.parts[0].removesuffix(".py")


def imported_modules(source: str, package: str) -> list[str]:
    """Full names in every import statement, also inside functions; `package` resolves relative imports.

    `from a import b` gives `a.b`: b may be a module.
    """
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: 1 - node.level or None] if node.level else []
            module = ".".join([*parents, *filter(None, [node.module])])
            names += [f"{module}.{alias.name}" for alias in node.names]
    return names


def imported_rows(source: str, package: str) -> set[str]:
    """The rows of kformer that a module's source imports; `__init__` for the package itself."""
    rows = set()
    for name in imported_modules(source, package):
        top, *below = name.split(".")
        if top == "kformer":
            is_row = below and (below[0] in MAY_IMPORT | dict.fromkeys(ANYTHING))
            rows.add(below[0] if is_row else "__init__")
    return rows


def forbidden_rows(row: str, source: str, package: str) -> set[str]:
    return imported_rows(source, package) - MAY_IMPORT[row] - {row}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(PACKAGE).as_posix())
def test_a_module_imports_only_from_rows_above_its_own(file):
    relative = file.relative_to(PACKAGE)
    row = row_of(relative)
    if row in ANYTHING:
        return
    assert row in MAY_IMPORT, f"{relative} belongs to no row: add {row!r} to MAY_IMPORT, and to CONTRIBUTING.md"
    package = ".".join(("kformer", *relative.parts[:-1]))
    forbidden = forbidden_rows(row, file.read_text(encoding="utf-8"), package)
    assert not forbidden, f"{relative} imports {sorted(forbidden)}; {row} may import {sorted(MAY_IMPORT[row])}"


@pytest.mark.parametrize(
    ("row", "source", "forbidden"),
    [
        ("layers", "import kformer.models", {"models"}),
        ("layers", "from kformer.models.transformer import build_transformer", {"models"}),
        ("layers", "from kformer import config", {"config"}),
        ("layers", "def late():\n    from kformer import training", {"training"}),
        ("layers", "from ..models import build_transformer", {"models"}),
        ("layers", "from .. import decoding", {"decoding"}),
        ("layers", "from . import masks\nfrom .masks import causal_mask\nfrom kformer.layers import masks", set()),
        ("layers", "import keras\nfrom keras import layers, models", set()),
        ("models", "from kformer.layers import masks\nfrom kformer.config import TransformerConfig", set()),
        ("decoding", "import kformer", {"__init__"}),
        ("decoding", "from kformer import Translator", {"__init__"}),
        ("runs", "from kformer.version import __version__", set()),
    ],
)
def test_the_rule_finds_imports_however_they_are_written(row, source, forbidden):
    assert forbidden_rows(row, source, f"kformer.{row}") == forbidden


def test_the_table_has_no_circle_and_no_row_without_a_module():
    assert all((PACKAGE / row).is_dir() or (PACKAGE / f"{row}.py").is_file() for row in MAY_IMPORT)
    assert set().union(*MAY_IMPORT.values()) <= MAY_IMPORT.keys()
    assert not circles(MAY_IMPORT), "these rows import each other in a circle, or import rows that do"


def circles(imports: dict[str, set[str]]) -> set[str]:
    """What is left after taking away, again and again, each module that imports only what was taken away before."""
    settled: set[str] = set()
    while ready := {name for name in imports.keys() - settled if imports[name] & imports.keys() <= settled}:
        settled |= ready
    return imports.keys() - settled


def test_no_two_files_import_each_other_not_even_for_types_or_late():
    """The `__init__` of a folder is left out: it names what the folder has."""
    imports = {}
    for file in FILES:
        parts = ("kformer", *file.relative_to(PACKAGE).with_suffix("").parts)
        names = imported_modules(file.read_text(encoding="utf-8"), ".".join(parts[:-1]))
        # A name may be a module, or stand in one.
        imports[".".join(parts)] = {*names, *(name.rpartition(".")[0] for name in names)}
    modules = {name: found for name, found in imports.items() if not name.endswith("__init__")}
    assert not circles(modules)


def test_circles_are_found():
    assert circles({"a": {"b", "os"}, "b": {"c"}, "c": set()}) == set()
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == {"a", "b", "c"}


def heavy_imports(source: str) -> set[str]:
    """Heavy packages that come in with the module: imports inside functions are not counted."""
    outside = [node for node in ast.parse(source).body if isinstance(node, ast.Import | ast.ImportFrom)]
    text = "\n".join(ast.unparse(node) for node in outside)
    return {name.split(".")[0] for name in imported_modules(text, "kformer")} & (HEAVY | {"kformer"})


@pytest.mark.parametrize("row", ["__init__", "config", "files", "process", "version"])
def test_light_modules_import_nothing_heavy(row):
    files = [path for path in FILES if row_of(path.relative_to(PACKAGE)) == row]
    assert files
    for path in files:
        assert heavy_imports(path.read_text(encoding="utf-8")) <= {"kformer"}, path


def test_heavy_imports_are_found():
    assert heavy_imports("import keras\nfrom matplotlib import pyplot\ndef late():\n    import jax") == {
        "keras",
        "matplotlib",
    }


@pytest.mark.parametrize(
    ("program", "heavy"),
    [
        ("import kformer", "tensorflow_text tensorflow_datasets keras_nlp keras_hub sentencepiece"),
        ("from kformer.client import Client, ServerError", "tensorflow keras grpc requests starlette uvicorn"),
        ("import kformer.client\nkformer.client.Client('http://h/v1/models/m')", "tensorflow keras grpc starlette"),
    ],
)
def test_what_loads_at_once_loads_nothing_heavy(program, heavy):
    paths = [str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    program += f"\nimport sys\nprint(sorted({set(heavy.split())} & set(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "[]"


def test_importing_every_module_does_not_start_tensorflow():
    """Settings such as the number of threads can be made until then: no module may hold a tensor."""
    modules = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in FILES]
    for engine in ("beam", "ray"):  # which need packages that others do not
        modules.remove(f"kformer.inference.{engine}")
    program = "\n".join(f"import {name}" for name in modules if not name.endswith(("__init__", "__main__")))
    program += "\nimport tensorflow as tf\ntf.config.threading.set_intra_op_parallelism_threads(1)"
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "KERAS_BACKEND": "tensorflow"}
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr[-500:]


@pytest.mark.parametrize(
    "file", [file for file in FILES if file.parent.name in ("layers", "models")], ids=lambda f: f.stem
)
def test_a_file_that_people_learn_from_is_short(file):
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 300
