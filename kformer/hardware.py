"""What the machine can do."""

import pathlib
import platform

import keras


def resolve_precision(precision: str) -> str:
    """ "auto" made concrete: mixed_bfloat16 on a GPU, or on a CPU with bfloat16 instructions; else float32."""
    if precision != "auto":
        return precision
    return "mixed_bfloat16" if has_gpu() or cpu_multiplies_bfloat16() else "float32"


def has_gpu() -> bool:
    """Whether Keras's backend sees a GPU."""
    return any("gpu" in device.lower() or "cuda" in device.lower() for device in keras.distribution.list_devices())


def cpu_multiplies_bfloat16() -> bool:
    """Whether the CPU has bfloat16 products: Linux says so in /proc/cpuinfo; elsewhere "no" is the safe answer."""
    flags = pathlib.Path("/proc/cpuinfo")
    if platform.system() != "Linux" or not flags.is_file():
        return False
    words = set(flags.read_text(encoding="utf-8", errors="replace").split())
    return bool(words & {"avx512_bf16", "amx_bf16"})
