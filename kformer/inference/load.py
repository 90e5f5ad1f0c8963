"""Loads a run folder or an exported SavedModel through TensorFlow's C API."""

import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kformer.config import DecodingConfig
from kformer.inference.saved_model_cache import saved_model_of
from kformer.runs.folder import RunFolder
from kformer.runtime.c_api import SavedModel, SavedModelError
from kformer.runtime.export_check import check_export
from kformer.runtime.export_description import description

if TYPE_CHECKING:
    from kformer.export.ctranslate2_engine import CTranslate2Engine


def load_saved_model(
    model: RunFolder | pathlib.Path,
    decoding: DecodingConfig | None,
    n_best: int,
    threads_per_operation: int | None,
    trust: bool,
    signatures: Sequence[str] = (),
) -> "SavedModel | CTranslate2Engine":
    """The SavedModel of a model from `find_model`; a run folder's is made first, and kept.

    Args:
        model: From `find_model`; `check_search` has accepted the search.
        decoding, n_best, threads_per_operation, trust: See `kformer.inference.Model`.
        signatures: What a run folder's SavedModel has beside `serving_default`.

    Raises:
        ValueError: A file is damaged, a SavedModel could do more than compute, or it does not take texts.
    """
    if isinstance(model, RunFolder):
        with saved_model_of(model, model.decoding_config(decoding), n_best, signatures) as kept:
            # This program has made it, and its checksums were compared.
            return _loaded(kept, threads_per_operation, True, "Remove that folder: it is made again")
    if description(model).get("format") == "ctranslate2":
        from kformer.export.ctranslate2_engine import CTranslate2Engine  # which needs Python's TensorFlow

        return CTranslate2Engine(model, threads=threads_per_operation)
    check_export(model, trust)
    return _loaded(model, threads_per_operation, trust, "Export the model again")


def _loaded(path: pathlib.Path, threads_per_operation: int | None, trust: bool, remedy: str) -> SavedModel:
    try:
        model = SavedModel(path, threads_per_operation, trust)
        model.text_input  # noqa: B018 (raises where the model takes something else than texts)
        return model
    except SavedModelError as error:
        reason = str(error).strip().splitlines()[0]  # The lines below name places in the graph.
        raise ValueError(f"{path} cannot be loaded: {reason}. {remedy}.") from error
