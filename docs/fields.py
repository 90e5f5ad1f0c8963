"""The fields of the configurations as tables: names, types, defaults, and the comments beside them in the source."""

import ast
import inspect
from typing import NamedTuple

from kformer.config import DecodingConfig, TrainingConfig, TransformerConfig

HEAD = """# Fields of the configurations

A YAML file for `--config` has those of the model under `transformer`, and those of training under `training`. In Python
they are arguments of the classes. Each has a default.
"""


class Field(NamedTuple):
    """A field of a dataclass, as its source says."""

    name: str
    type: str
    default: str
    comment: str


def fields_of(config: type) -> list[Field]:
    """The fields of a dataclass with their comments: those above a field, and the one in its line."""
    source = inspect.getsource(config)
    lines = source.splitlines()
    tree = ast.parse(source).body[0]
    if not isinstance(tree, ast.ClassDef):
        raise TypeError(f"A field belongs to a class. Received: {config!r}.")
    return [
        Field(node.target.id, ast.unparse(node.annotation), ast.unparse(node.value), _comment(lines, node))
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None
    ]


def _comment(lines: list[str], node: ast.AnnAssign) -> str:
    first = node.lineno - 1
    above = []
    while lines[first - 1 - len(above)].lstrip().startswith("#"):
        above.insert(0, lines[first - 1 - len(above)].lstrip())
    beside = lines[first][node.end_col_offset :].strip()
    return " ".join(line.removeprefix("#").strip() for line in [*above, beside]).strip()


def page() -> str:
    """The page with the tables, in Markdown."""
    parts = [HEAD]
    for title, config in (("The model", TransformerConfig), ("Training", TrainingConfig), ("Decoding", DecodingConfig)):
        parts.append(f"## {title}: `{config.__name__}`\n\n| field | type | default | |\n| --- | --- | --- | --- |")
        for field in fields_of(config):
            kind, comment = (text.replace("|", "\\|") for text in (field.type, field.comment))
            parts[-1] += f"\n| `{field.name}` | {kind.replace(' ', '&nbsp;')} | `{field.default}` | {comment} |"
    return "\n\n".join(parts) + "\n"
