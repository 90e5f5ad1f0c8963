"""Finds out whether the machine has a GPU and bfloat16 products."""

import pathlib
import platform

_FIRST_WITH_BFLOAT16 = 8  # NVIDIA's compute capability 8.0, "Ampere"


def resolve_precision(precision: str) -> str:
    """Resolves "auto": mixed_bfloat16 if the GPU (without a GPU, the CPU) has bfloat16 products, else float32."""
    if precision != "auto":
        return precision
    multiplies = gpu_multiplies_bfloat16() if has_gpu() else cpu_multiplies_bfloat16()
    return "mixed_bfloat16" if multiplies else "float32"


def has_gpu() -> bool:
    """Whether Keras's backend sees a GPU."""
    import keras  # imported here, because the checks of the CPU do without Keras

    return any("gpu" in device.lower() or "cuda" in device.lower() for device in keras.distribution.list_devices())


def gpu_multiplies_bfloat16() -> bool:
    """Whether all NVIDIA GPUs have bfloat16 products. Colab's T4, for example, has none."""
    return all(generation >= _FIRST_WITH_BFLOAT16 for generation in _cuda_generations())


def _cuda_generations() -> list[int]:
    """The first number of each NVIDIA GPU's compute capability."""
    import keras

    if keras.backend.backend() == "jax":
        import jax

        found = [getattr(device, "compute_capability", None) for device in jax.local_devices()]
        return [int(str(capability).split(".")[0]) for capability in found if capability]
    import tensorflow as tf

    details = map(tf.config.experimental.get_device_details, tf.config.list_physical_devices("GPU"))
    return [found["compute_capability"][0] for found in details if found.get("compute_capability")]


def cpu_multiplies_bfloat16() -> bool:
    """Whether the CPU has bfloat16 products. Linux lists them in /proc/cpuinfo; on other systems, False is returned."""
    flags = pathlib.Path("/proc/cpuinfo")
    if platform.system() != "Linux" or not flags.is_file():
        return False
    words = set(flags.read_text(encoding="utf-8", errors="replace").split())
    return bool(words & {"avx512_bf16", "amx_bf16"})
