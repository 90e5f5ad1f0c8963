"""The file of an export that says how it was made."""

import json
import pathlib
from typing import Any

from kformer.runtime.file_limits import MOST_EXTRA_BYTES

# TensorFlow Serving ignores this folder of a SavedModel.
DESCRIPTION_FILE = "assets.extra/kformer.json"


def description(saved_model: str | pathlib.Path) -> dict[str, Any]:
    """How an export was made; empty for a SavedModel that kformer did not write."""
    path = pathlib.Path(saved_model, DESCRIPTION_FILE)
    if not path.is_file():
        return {}
    if path.stat().st_size > MOST_EXTRA_BYTES:
        raise ValueError(f"{path} may have {MOST_EXTRA_BYTES:,} bytes. Export the model again.")
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}. Export the model again.") from error
