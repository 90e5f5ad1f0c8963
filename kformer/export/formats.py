"""The formats in which trained models leave kformer. TensorFlow is not needed here."""

from typing import NamedTuple

from kformer.export.kinds import EXPORT_PRECISIONS
from kformer.wording import did_you_mean


class ExportFormat(NamedTuple):
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
    ExportFormat("saved_model", "kformer.export.saved_model:SavedModelTarget", EXPORT_PRECISIONS, is_served=True),
    ExportFormat(
        "ctranslate2",
        "kformer.export.ctranslate2:CTranslate2Target",
        ("float32", "float16", "int16", "int8"),  # its conversion to bfloat16 needs PyTorch
    ),
    ExportFormat("safetensors", "kformer.export.safetensors:SafetensorsTarget", ("float32",), needs_answers=False),
)
# By name, in the order in which messages and pages list them.
EXPORT_FORMATS: dict[str, ExportFormat] = {format.name: format for format in _FORMATS}


def check_format(name: str, precision: str) -> ExportFormat:
    """The format with this name.

    Raises:
        ValueError: There is no such format, or it does not have this precision.
    """
    if name not in EXPORT_FORMATS:
        raise ValueError(
            f"There is no format {name!r}. Choose one of {', '.join(EXPORT_FORMATS)}."
            f"{did_you_mean([name], EXPORT_FORMATS)}"
        )
    format = EXPORT_FORMATS[name]
    if precision not in format.precisions:
        raise ValueError(
            f"precision must be one of {', '.join(format.precisions)} in the format {name}. Received: {precision!r}."
        )
    return format
