"""One command writes the public address of the repository into notebooks, README and setup.cfg."""

import configparser
import pathlib
import shutil
import sys

import jupytext
import pytest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.append(str(ROOT / "docs"))
from address import write_address  # noqa: E402 (the folder is no package)

pytestmark = pytest.mark.tensorflow_only  # that is: once
BADGE = "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]"


@pytest.fixture
def copy(tmp_path):
    for name in ("README.md", "setup.cfg"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "notebooks", tmp_path / "notebooks")
    return tmp_path


def test_notebooks_get_a_badge_and_install_from_the_repository(copy):
    write_address(copy, "https://github.com/first/kformer.git")
    write_address(copy, "https://github.com/owner/kformer/")
    scripts = sorted((copy / "notebooks").glob("*.py"))
    assert len(scripts) == 5
    for script in scripts:
        title, install = jupytext.read(script).cells[:2]
        link = f"https://colab.research.google.com/github/owner/kformer/blob/main/notebooks/{script.stem}.ipynb"
        assert title.source.splitlines()[2] == f"{BADGE}({link})"
        assert install.source.splitlines()[-1].startswith('%pip install --quiet "kformer[plots')
        assert install.source.endswith('] @ git+https://github.com/owner/kformer"')
        assert "/first/" not in script.read_text()
    assert "git clone https://github.com/owner/kformer && cd kformer" in (copy / "README.md").read_text()
    settings = configparser.ConfigParser()
    settings.read(copy / "setup.cfg")
    assert settings["metadata"]["url"] == "https://github.com/owner/kformer"


def test_an_address_that_colab_cannot_open_is_refused(copy):
    before = (copy / "README.md").read_text()
    with pytest.raises(ValueError, match=r"Colab opens notebooks of https://github.com/OWNER/NAME. Received: ssh://"):
        write_address(copy, "ssh://example.org/kformer")
    assert (copy / "README.md").read_text() == before
