"""Trained models that come with kformer, and how a run folder is made small enough to be passed on.

A preset is a small run folder (see `kformer.runs.folder`): every function that takes a run takes a preset. The shipped
presets lie beside this file, each in a folder of its name.

Packing needs Keras, finding does not: so `pack_run` loads when it is first used.
"""

from typing import TYPE_CHECKING, Any

from kformer.presets.catalog import find_preset, preset_names

if TYPE_CHECKING:
    from kformer.presets.packing import PackingReport, pack_run

__all__ = ["PackingReport", "find_preset", "pack_run", "preset_names"]


def __getattr__(name: str) -> Any:
    if name not in ("PackingReport", "pack_run"):
        raise AttributeError(f"module 'kformer.presets' has no attribute {name!r}; it has: {', '.join(__all__)}")
    from kformer.presets import packing

    return getattr(packing, name)
