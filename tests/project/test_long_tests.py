"""The list of long tests names tests that exist: one with a new name would go back to the fast suite unseen."""

import pathlib

ROOT = pathlib.Path(__file__).parents[2]


def test_every_listed_test_exists():
    listed = (ROOT / "tests" / "long_tests.txt").read_text().splitlines()
    sources = {path: (ROOT / path).read_text() for path in {function.split("::")[0] for function in listed}}
    for function in listed:
        path, *classes, name = function.split("::")
        assert f"def {name}(" in sources[path], function
        assert all(f"class {each}" in sources[path] for each in classes), function
