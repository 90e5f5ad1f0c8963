"""Adds to `long_tests.txt` the tests that take too long for the fast suite.

    make test
    python tests/list_long_tests.py build/tests-tensorflow.xml build/tests-jax.xml

Tracing a search takes seconds, and the first test that needs a trace or a fixture pays for it. Which one that is
changes with the tests around it, so the list is measured, and grows until `make test` takes ten minutes. Lines that
name a file are written by hand: each of its tests needs a server, a browser or an import that takes long.
`conftest.py` gives the listed tests the marks `slow` and `in_ci`.
"""

import pathlib
import sys
import xml.etree.ElementTree

LONGEST_SECONDS = 2.0  # on two cores of an Intel Xeon with AMX
LIST = pathlib.Path(__file__).with_name("long_tests.txt")


def function_of(case: xml.etree.ElementTree.Element) -> str:
    """The name by which pytest knows the function of a case, without the parameters."""
    parts = case.attrib["classname"].split(".")
    file = next(place for place, part in enumerate(parts) if part.startswith("test_"))
    path = "/".join(parts[: file + 1]) + ".py"
    return "::".join([path, *parts[file + 1 :], case.attrib["name"].split("[")[0]])


if __name__ == "__main__":
    cases = (case for report in sys.argv[1:] for case in xml.etree.ElementTree.parse(report).iter("testcase"))
    long = {function_of(case) for case in cases if float(case.attrib["time"]) > LONGEST_SECONDS}
    listed = {*LIST.read_text().splitlines(), *long}
    files = {line for line in listed if "::" not in line}
    kept = files | {line for line in listed if line.split("::")[0] not in files}
    LIST.write_text("".join(f"{line}\n" for line in sorted(kept)))
