"""What a person may say of a packed model."""

from collections.abc import Mapping
from typing import Any

from kformer.config import did_you_mean

# Nothing else in the folder of a packed model tells it.
ABOUT = ("description", "command", "scores", "licence", "provenance")


def check_about(about: Mapping[str, Any]) -> None:
    """Refuses names that are not in `ABOUT`.

    Raises:
        ValueError: There is one.
    """
    unknown = sorted(set(about) - set(ABOUT))
    if unknown:
        raise ValueError(
            f"Of a preset is said: {', '.join(ABOUT)}. Received: {', '.join(unknown)}. Rename or remove the unknown."
            f"{did_you_mean(unknown, ABOUT)}"
        )
