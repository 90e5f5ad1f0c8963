"""Pairs of English and Brazilian Portuguese from a manual that Debian distributes: the help of LibreOffice.

    python -m benchmarks.quality.manuals --folder runs/multilingual/data

Needs Debian's tools, apt-get and dpkg-deb, but not root. The packages come from the release that is named below, by a
list of sources in the folder itself, so the machine's own lists are neither read nor changed.

The pages of both languages are made from the same files, so a paragraph has the same id in both. A pair is a paragraph
or a heading of a page with its translation. Code is left out, and what is only shown on some systems. The rules of
`CLEANING` do the rest: `kformer data` has the same. Of the different sources, one in 50 is held out for the test and as
many for the validation, so no pair of such a source is learned.

The folder gets `manuals.train.tsv`, `manuals.valid.tsv` and `manuals.test.tsv`, the licences, and a `README.md` that
says what the texts are. What is there already is not made again.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator

import lxml.html

from kformer.data import Cleaning, Pair
from kformer.data.cleaning import clean
from kformer.data.corpus import hold_out
from kformer.data.pairs import SelectedPairs
from kformer.files.writing import write_text

RELEASE = "bookworm"
PACKAGES = {"libreoffice-help-en-us": "en-US", "libreoffice-help-pt-br": "pt-BR"}
CLEANING = Cleaning(
    max_ratio=3,
    max_characters=600,
    min_letters=0.6,
    source_script="Latin",
    target_script="Latin",
    drop_copies=True,
    duplicates="sources",
)
_LICENCE = pathlib.Path("/usr/share/common-licenses/MPL-2.0")
_TEXTS = ".//*[self::p or self::h1 or self::h2 or self::h3 or self::h4 or self::h5][@id][not(contains(@class, 'code'))]"
_OF_SOME_SYSTEMS = ".//span[@hidden][not(starts-with(@id, 'default'))]"
_README = """\
# Pairs of English and Brazilian Portuguese

Paragraphs and headings of the help of LibreOffice and their translations, from these packages of Debian {release}:
{packages}. `python -m benchmarks.quality.manuals` took them out of the pages and left some out, see there.

The texts are those of the LibreOffice contributors and of those whom the files `*.copyright` name. They have the
Mozilla Public License 2.0 (`MPL-2.0`), with parts under the Apache License 2.0. Who passes them on keeps these files
with them.
"""


def make_pairs(folder: pathlib.Path) -> None:
    """Writes the pairs, the licences and the README into the folder, unless they are there."""
    readme = folder / "README.md"
    if readme.is_file():
        return
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        unpacked = pathlib.Path(place)
        packages = download(unpacked)
        help_folder = unpacked / "usr/share/libreoffice/help"
        pairs = list(pairs_of_pages(*(help_folder / language / "text" for language in PACKAGES.values())))
        for package in PACKAGES:
            shutil.copy(unpacked / "usr/share/doc" / package / "copyright", folder / f"{package}.copyright")
    shutil.copy(_LICENCE, folder)
    kept, report = clean(pairs, CLEANING)
    print("\n".join(report.lines(examples=True)))
    for part, found in split(list(SelectedPairs(pairs, kept))).items():
        write_pairs(folder / f"manuals.{part}.tsv", found)
        print(f"{part}: {len(found):,} pairs")
    write_text(readme, _README.format(release=RELEASE, packages=", ".join(packages)))  # last: it says that all is there


def download(folder: pathlib.Path) -> list[str]:
    """Unpacks the packages in the folder, and gives their names and versions."""
    missing = [tool for tool in ("apt-get", "dpkg-deb") if shutil.which(tool) is None]
    if missing or not _LICENCE.is_file():
        raise SystemExit(
            f"The pairs are made on Debian. Not found here: {', '.join(missing) or _LICENCE}. Make them on such a "
            "machine, or in a container of it, and copy the folder."
        )
    sources, lists = folder / "sources.list", folder / "lists"
    (lists / "partial").mkdir(parents=True)
    key = "/usr/share/keyrings/debian-archive-keyring.gpg"
    sources.write_text(f"deb [signed-by={key}] http://deb.debian.org/debian {RELEASE} main\n")
    options = {"Dir::Etc::sourcelist": sources, "Dir::Etc::sourceparts": "-", "Dir::State::lists": lists}
    options |= {"Dir::Cache": folder, "APT::Sandbox::User": "root"}
    apt = ["apt-get", "-q", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]
    subprocess.run([*apt, "update"], check=True)
    subprocess.run([*apt, "download", *PACKAGES], check=True, cwd=folder)
    found = sorted(folder.glob("*.deb"))
    for file in found:
        subprocess.run(["dpkg-deb", "-x", file, folder], check=True)
    shown = ["dpkg-deb", "--show", "--showformat", "${Package} ${Version}"]
    return [subprocess.run([*shown, file], check=True, capture_output=True, text=True).stdout for file in found]


def pairs_of_pages(sources: pathlib.Path, targets: pathlib.Path) -> Iterator[Pair]:
    """The texts of all pages that both folders have, in the order of their names."""
    for page in sorted(sources.rglob("*.html")):
        other = targets / page.relative_to(sources)
        if other.is_file():
            yield from pairs_of_page(page.read_text("utf-8"), other.read_text("utf-8"))


def pairs_of_page(source: str, target: str) -> list[Pair]:
    """The paragraphs and headings that both languages of a page have.

    Examples:
        >>> page = '<div id="DisplayArea"><p id="{}">{}</p></div>'
        >>> pairs_of_page(page.format("a", "one <b>two</b>"), page.format("a", "uno dos"))
        [('one two', 'uno dos')]
    """
    found, others = texts(source), texts(target)
    return [(text, others[name]) for name, text in found.items() if text and others.get(name)]


def texts(page: str) -> dict[str, str]:
    """The paragraphs and headings of a page by their ids, without what is only shown on some systems."""
    area = lxml.html.fromstring(page).get_element_by_id("DisplayArea")
    for hidden in area.xpath(_OF_SOME_SYSTEMS):
        hidden.drop_tree()
    return {element.get("id"): re.sub(r"\s+", " ", element.text_content()).strip() for element in area.xpath(_TEXTS)}


def split(pairs: list[Pair]) -> dict[str, list[Pair]]:
    """The parts of a corpus, none of which has a source of another one."""
    others, test = hold_out("manuals", pairs)
    train, valid = hold_out("manuals", list(others))
    return {"train": list(train), "valid": valid, "test": test}


def write_pairs(path: pathlib.Path, pairs: list[Pair]) -> None:
    """Writes a pair on each line: source, tab, target."""
    write_text(path, "".join(f"{source}\t{target}\n" for source, target in pairs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("runs/multilingual/data"))
    make_pairs(parser.parse_args().folder)


if __name__ == "__main__":
    main()
