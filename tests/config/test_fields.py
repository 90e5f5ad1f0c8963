"""The documentation explains every field of the configurations, in the words of the comments beside the fields."""

import dataclasses
import pathlib
import sys

import pytest

from kformer.config import DecodingConfig, TrainingConfig, TransformerConfig

sys.path.append(str(pathlib.Path(__file__).parents[2] / "docs"))
from fields import Field, fields_of, page

pytestmark = pytest.mark.tensorflow_only  # that is: once


@dataclasses.dataclass
class Example:
    """A text."""

    plain: int = 1  # beside
    # above,
    # in two lines
    both: str | None = None  # and beside
    none: float = 2.5

    def method(self):
        local: int = 3  # not a field
        return local


def test_comments_above_and_beside_belong_to_a_field():
    assert fields_of(Example) == [
        Field("plain", "int", "1", "beside"),
        Field("both", "str | None", "None", "above, in two lines and beside"),
        Field("none", "float", "2.5", ""),
    ]


@pytest.mark.parametrize("config", [TransformerConfig, TrainingConfig, DecodingConfig])
def test_every_field_is_there_and_explained(config):
    fields = fields_of(config)
    assert [field.name for field in fields] == [field.name for field in dataclasses.fields(config)]
    assert [field.name for field in fields if not field.comment] == []
    assert all(f"| `{field.name}` |" in page() for field in fields)


def test_a_bar_does_not_divide_a_cell():
    assert r"| `num_key_value_heads` | int&nbsp;\|&nbsp;None | `None` | heads of keys and values" in page()
