"""The fields of the configurations as tables: names, types, defaults, choices, and what they mean."""

from kformer.config import DecodingConfig, TrainingConfig, TransformerConfig
from kformer.config.fields import Field, fields_of

HEAD = """# Fields of the configurations

In Python they are arguments of the classes. `kformer train` has an option for each field of the model and of training,
such as `--norm-first` for `norm_first`, but not for what the tokenizers decide; that of the model's `max_length` is
`--transformer-max-length`. A YAML file for `--config` has the fields of the model under `transformer`, and those of
training under `training`. Each has a default.
"""


def page() -> str:
    """The page with the tables, in Markdown."""
    parts = [HEAD]
    for title, config in (("The model", TransformerConfig), ("Training", TrainingConfig), ("Decoding", DecodingConfig)):
        head = f"## {title}: `{config.__name__}`\n\n| field | type | default | |\n| --- | --- | --- | --- |"
        parts.append("\n".join([head, *map(_row, fields_of(config))]))
    return "\n\n".join(parts) + "\n"


def _row(field: Field) -> str:
    kind = " | ".join(one.__name__ for one in field.types).replace("NoneType", "None")
    kind = kind.replace(" ", "&nbsp;").replace("|", "\\|")
    choices = f" One of `{'`, `'.join(field.choices)}`." if field.choices else ""
    return f"| `{field.name}` | {kind} | `{field.default!r}` | {field.meaning}{choices} |"
