"""The list of long tests names tests that exist: one with a new name would go back to the fast suite unseen."""

import pathlib

ROOT = pathlib.Path(__file__).parents[2]


def test_every_listed_test_exists():
    listed = (ROOT / "tests" / "long_tests.txt").read_text().splitlines()
    sources = {path: (ROOT / path).read_text() for path in {function.split("::")[0] for function in listed}}
    for function in listed:
        path, *names = function.split("::")
        wanted = [*(f"class {each}" for each in names[:-1]), *(f"def {name}(" for name in names[-1:])]
        assert all(text in sources[path] for text in wanted), function
