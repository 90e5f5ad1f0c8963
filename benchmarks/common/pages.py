"""The programs of the pages of docs/, so that what is measured and tested is what a reader sees."""

import pathlib
import re

_DOCS = pathlib.Path(__file__).parents[2] / "docs"


def program_of(page: str, heading: str) -> str:
    """The only program in Python below a heading of a page."""
    section = (_DOCS / page).read_text("utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    (program,) = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    return program
