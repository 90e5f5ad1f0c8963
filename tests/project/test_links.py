"""Links between the project's pages lead to files that a clone has; `make docs` checks those of the site."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("export/**/*.md")]


def linked_files(page: pathlib.Path) -> list[str]:
    """The files that a page links to or shows, as the page writes them; addresses of other sites are left out."""
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)
    return [link.split("#")[0] for link in links if not re.match(r"#|\w+:", link)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_of_the_clone(page):
    assert [link for link in linked_files(page) if not (page.parent / link).exists()] == []


def test_links_are_found(tmp_path):
    (tmp_path / "page.md").write_text('[a](a.md#part) ![b](../b.png) [c](https://c) [d](#d)\n<img src="e.png">')
    assert linked_files(tmp_path / "page.md") == ["a.md", "../b.png", "e.png"]
