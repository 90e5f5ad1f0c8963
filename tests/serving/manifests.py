"""The files of export/ that start servers."""

import pathlib

import yaml

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "export"


def documents(name: str) -> list[dict]:
    """The YAML documents of a file."""
    return list(yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8")))
