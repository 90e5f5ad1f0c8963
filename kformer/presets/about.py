"""The facts that a user may give about a packed model."""

from collections.abc import Mapping
from typing import Any

from kformer.wording import did_you_mean

# No other file of a packed model has these facts.
ABOUT = ("description", "command", "scores", "licence", "provenance")


def check_about(about: Mapping[str, Any]) -> None:
    """Refuses names that are not in `ABOUT`.

    Raises:
        ValueError: There is such a name.
    """
    unknown = sorted(set(about) - set(ABOUT))
    if unknown:
        raise ValueError(
            f"The facts about a preset are: {', '.join(ABOUT)}. Received: {', '.join(unknown)}. "
            "Rename or remove the unknown ones."
            f"{did_you_mean(unknown, ABOUT)}"
        )
