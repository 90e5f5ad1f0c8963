"""Every field of the configurations says what it means, and the documentation has these words."""

import dataclasses
import pathlib
import sys
from typing import ClassVar

import pytest

from kformer.config import DecodingConfig, TrainingConfig, TransformerConfig
from kformer.config.base import Config
from kformer.config.fields import Field, fields_of, setting

sys.path.append(str(pathlib.Path(__file__).parents[2] / "docs"))
from fields import page

pytestmark = pytest.mark.tensorflow_only  # that is: once


@dataclasses.dataclass(frozen=True)
class Example(Config):
    panel: ClassVar[str] = "Examples"
    plain: int = setting(1, "A number.")
    chosen: str | None = setting(None, "A name.", ["a", "b"], "Names")


def test_a_field_knows_its_type_default_meaning_choices_and_panel():
    assert fields_of(Example) == (
        Field("plain", int, 1, "A number.", (), "Examples"),
        Field("chosen", str | None, None, "A name.", ("a", "b"), "Names"),
    )
    assert Example().plain == 1


@pytest.mark.parametrize("config", [TransformerConfig, TrainingConfig, DecodingConfig])
def test_every_field_is_there_and_explained(config):
    fields = fields_of(config)
    assert [field.name for field in fields] == [field.name for field in dataclasses.fields(config)]
    assert [field.name for field in fields if not (field.meaning[0].isalnum() and field.meaning.endswith("."))] == []
    assert all(f"| `{field.name}` |" in page() for field in fields)


def test_a_bar_does_not_divide_a_cell():
    assert r"| `num_key_value_heads` | int&nbsp;\|&nbsp;None | `None` | Number of heads of keys and values" in page()


def test_choices_are_told():
    assert "| `label_smoothing_form` | str | `'all'` | How labels are smoothed. all: epsilon" in page()
    assert "each wrong one. One of `all`, `others`. |" in page()
