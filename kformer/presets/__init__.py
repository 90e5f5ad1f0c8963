"""Trained models that kformer brings, and how a run folder is made small enough to be passed on.

A preset is a small run folder (see `kformer.runs.folder`): every function that takes a run takes a preset. The shipped
presets lie beside this file, each in a folder of its name.
"""

from kformer.presets.catalog import find_preset, preset_names
from kformer.presets.packing import PackingReport, pack_run

__all__ = ["PackingReport", "find_preset", "pack_run", "preset_names"]
