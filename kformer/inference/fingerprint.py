"""Says whether two folders hold the same model."""

import hashlib
import json
import pathlib

from kformer.files.checksums import checksum
from kformer.runs.folder import RunFolder


def file_sums(model: RunFolder | pathlib.Path) -> dict[str, str]:
    """The checksums of all files that a model's answers depend on, by their names in its folder.

    Args:
        model: From `kformer.inference.find.find_model`.
    """
    if isinstance(model, RunFolder):
        folder = model.path
        files = [model.transformer_file, model.training_file, model.corpus_file, model.weights_file()]
        files += sorted(model.tokenizer_folder.rglob("*"))
    else:
        folder = model
        files = sorted(model.rglob("*"))
    return {str(file.relative_to(folder)): checksum(file) for file in files if file.is_file()}


def fingerprint(model: RunFolder | pathlib.Path) -> str:
    """A SHA-256 of these files."""
    return hashlib.sha256(json.dumps(file_sums(model), sort_keys=True).encode()).hexdigest()
