"""Writes the address of the public repository wherever a reader needs it.

    make address REPOSITORY=https://github.com/OWNER/kformer

Each notebook gets a badge that opens it in Colab, and its first cell installs kformer from the repository; README.md
says what to clone, and setup.cfg where the project is. Run it again when the address changes. `make notebooks` follows.
"""

import argparse
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[1]
GITHUB = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+?)(?:\.git)?/?")
BADGE = "# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]"


def write_address(root: pathlib.Path, address: str) -> None:
    """Changes the files below `root`.

    Raises:
        ValueError: The address is no repository on GitHub, from which alone Colab opens notebooks.
    """
    found = GITHUB.fullmatch(address)
    if not found:
        raise ValueError(f"Colab opens notebooks of https://github.com/OWNER/NAME. Received: {address}.")
    repository = f"https://github.com/{found[1]}"
    for script in sorted(root.glob("notebooks/*.py")):
        text = re.sub(rf"{re.escape(BADGE)}.*\n#\n", "", script.read_text(encoding="utf-8"))
        notebook = f"{found[1]}/blob/main/notebooks/{script.stem}.ipynb"
        badge = f"{BADGE}(https://colab.research.google.com/github/{notebook})"
        text = re.sub(r"^(# %% \[markdown\]\n# # .*\n#\n)", rf"\1{badge}\n#\n", text, count=1, flags=re.MULTILINE)
        text = re.sub(
            r'^# Installs kformer from the clone .*\n# %pip install --quiet "[^\[]*(\[[\w,]+\])[^"]*"',
            rf'# This takes less than a minute in Colab.\n# %pip install --quiet "kformer\1 @ git+{repository}"',
            text,
            flags=re.MULTILINE,
        )
        text = re.sub(r'"kformer(\[[\w,]+\]) @ git\+[^"]*"', rf'"kformer\1 @ git+{repository}"', text)
        script.write_text(text, encoding="utf-8")
    _replace(root / "README.md", r"git clone (<[^>]*>|\S+)", f"git clone {repository}")
    _replace(root / "setup.cfg", r"^(url = .*\n)?license = ", f"url = {repository}\nlicense = ")


def _replace(file: pathlib.Path, pattern: str, text: str) -> None:
    changed, number = re.subn(pattern, lambda _: text, file.read_text(encoding="utf-8"), count=1, flags=re.MULTILINE)
    if not number:
        raise ValueError(f"{file} has no place for the address: {pattern} is not found.")
    file.write_text(changed, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository", help="https://github.com/OWNER/NAME")
    write_address(ROOT, parser.parse_args().repository)


if __name__ == "__main__":
    main()
