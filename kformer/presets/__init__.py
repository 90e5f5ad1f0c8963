"""Trained models that kformer brings, and how a run folder is made small enough to be passed on.

A preset is a small run folder (see `kformer.run`), so what takes a run takes it. Those that are shipped lie beside this
file, each in a folder of its name.
"""

from kformer.presets.folders import find_preset, load_weights, preset_names
from kformer.presets.packing import PackingReport, pack_run

__all__ = ["PackingReport", "find_preset", "load_weights", "pack_run", "preset_names"]
