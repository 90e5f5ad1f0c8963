"""Recipes: published experiments, one YAML file each beside this module.

A recipe names a corpus, and gives the settings of model, training and search, with comments on their origin. The
command line takes it by `--recipe NAME`, or `--recipe FILE` for one of your own.
"""

import dataclasses
import pathlib
from typing import Any

from kformer.config import DecodingConfig, TrainingConfig, TransformerConfig, errors_name, read_parts
from kformer.wording import did_you_mean

FOLDER = pathlib.Path(__file__).parent
_PARTS: dict[str, Any] = {"transformer": TransformerConfig, "training": TrainingConfig, "decoding": DecodingConfig}


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A whole experiment.

    Attributes:
        corpus: a name for `kformer.data.load_corpus`.
        transformer, training: what is trained, and how.
        decoding: the search with which the result is evaluated.
    """

    corpus: str
    transformer: TransformerConfig
    training: TrainingConfig
    decoding: DecodingConfig


def recipe_names() -> list[str]:
    """Names of the recipes that come with kformer."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_recipe(name: str | pathlib.Path) -> Recipe:
    """A recipe by its name, or from a file.

    Args:
        name: one of `recipe_names()`, or a `.yaml`, `.yml` or `.json` file with `corpus: NAME` and the parts
            `transformer:`, `training:` and `decoding:`. Fields that are missing in it have the defaults of the
            configurations, not those of a size.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: No recipe has this name, or the file is no recipe.
    """
    path = pathlib.Path(name)
    if not path.suffix:
        if str(name) not in recipe_names():
            raise ValueError(
                f"There is no recipe {str(name)!r}. Choose one of {', '.join(recipe_names())}, or name a file of your "
                f"own that ends in .yaml.{did_you_mean([str(name)], recipe_names())}"
            )
        path = FOLDER / f"{name}.yaml"
    elif not path.is_file():
        raise FileNotFoundError(
            f"There is no file {path}. Name a recipe's file, or one of {', '.join(recipe_names())}."
        )
    values = read_parts(path, list(_PARTS), ["corpus"])
    if not isinstance(values.get("corpus"), str):
        raise ValueError(f"{path} has no `corpus:` with a name. A recipe has the parts corpus, {', '.join(_PARTS)}.")
    with errors_name(path):
        parts = {part: config.from_dict(values[part]) for part, config in _PARTS.items()}
    return Recipe(corpus=values["corpus"], **parts)
