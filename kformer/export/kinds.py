"""The kinds of exports that there are: precisions, variants, signatures.

Nothing here needs TensorFlow, so a command can refuse a wrong option before it starts TensorFlow.
"""

from collections.abc import Collection, Sequence

from kformer.runtime.signature_names import DEFAULT_SIGNATURE
from kformer.wording import did_you_mean

EXPORT_PRECISIONS = ("float32", "bfloat16", "int8")
VARIANTS = ("portable", "xla")
# An export has only those that are asked for.
MORE_SIGNATURES = (
    "n_best",
    "score",
    "known_tags",
    "translate_detailed",
    "translate_with_options",
    "generate_with_options",
)


def check_kind(precision: str, variant: str) -> None:
    """Refuses a precision or a variant that no export has.

    Raises:
        ValueError: There is no such precision or variant, or the two do not go together.
    """
    if precision not in EXPORT_PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(EXPORT_PRECISIONS)}. Received: {precision!r}.")
    if variant not in VARIANTS:
        raise ValueError(f"variant must be one of {', '.join(VARIANTS)}. Received: {variant!r}.")
    if variant == "xla" and precision != "float32":
        raise ValueError(f"The variant xla computes in float32. Received: {precision}. Choose the variant portable.")


def check_signatures(signatures: Sequence[str], variant: str, known: Collection[str] = MORE_SIGNATURES) -> None:
    """Refuses signatures that an export cannot have beside `serving_default`.

    Args:
        signatures: Names of signatures.
        variant: Of the export.
        known: Those that the model can have.

    Raises:
        ValueError: There is no such signature, or the variant has no other one.
    """
    for name in signatures:
        if name not in known:
            raise ValueError(
                f"There is no signature {name!r}. Beside {DEFAULT_SIGNATURE}, an export of this model may have: "
                f"{', '.join(known) or 'none'}.{did_you_mean([name], known)}"
            )
    if signatures and variant == "xla":
        raise ValueError(
            f"The variant xla has {DEFAULT_SIGNATURE} alone. Received: {', '.join(signatures)}. Choose the variant "
            "portable."
        )
