"""The formats in which trained models leave kformer. TensorFlow is not needed here."""

from typing import NamedTuple

from kformer.runtime.versions import EXPORT_PRECISIONS
from kformer.wording import did_you_mean


class Format(NamedTuple):
    """A format.

    Attributes:
        name: By which it is chosen.
        target: Module and name of its `ExportTarget`; `pkgutil.resolve_name` reads it when it is used.
        precisions: Number formats of the weights, the default first.
        is_served: Whether TensorFlow Serving runs it, so that it has variants and signatures.
        needs_answers: Whether its models answer texts. Others may also be masked language models.
    """

    name: str
    target: str
    precisions: tuple[str, ...]
    is_served: bool = False
    needs_answers: bool = True


_FORMATS = (
    Format("saved_model", "kformer.export.saved_model:SavedModelTarget", EXPORT_PRECISIONS, is_served=True),
    Format(
        "ctranslate2",
        "kformer.export.ctranslate2:CTranslate2Target",
        ("float32", "float16", "int16", "int8"),  # its conversion to bfloat16 needs PyTorch
    ),
    Format("safetensors", "kformer.export.safetensors:SafetensorsTarget", ("float32",), needs_answers=False),
)
# By name, in the order in which messages and pages list them.
FORMATS: dict[str, Format] = {format.name: format for format in _FORMATS}


def check_format(name: str, precision: str) -> Format:
    """The format with this name.

    Raises:
        ValueError: There is no such format, or it does not have this precision.
    """
    if name not in FORMATS:
        raise ValueError(
            f"There is no format {name!r}. Choose one of {', '.join(FORMATS)}.{did_you_mean([name], FORMATS)}"
        )
    format = FORMATS[name]
    if precision not in format.precisions:
        raise ValueError(
            f"precision must be one of {', '.join(format.precisions)} in the format {name}. Received: {precision!r}."
        )
    return format
