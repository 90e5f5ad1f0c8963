"""The configuration files for TensorFlow Serving in a model's base folder, such as that of `--model_config_file`."""

import pathlib
import re

from kformer.files.writing import write_text

# For each variant of an export, the sizes of the warm-up's requests. A server makes no larger batches. XLA compiles for
# each size, which takes seconds.
BATCH_SIZES = {"portable": (1, 2, 4, 8, 16, 32), "xla": (1, 8, 32)}
# A request that has waited this long in a queue is still answered within the 30 seconds that REST allows.
LONGEST_WAIT = 10  # seconds

_BATCHING = """\
# For --enable_batching and --batching_parameters_file. A thread that is free takes what waits, so that no request waits
# for others while a core has nothing to do. num_batch_threads is not set, so there is a thread for every core.
max_batch_size {{ value: {largest} }}
batch_timeout_micros {{ value: 0 }}
# On the machine of the export, one thread computes this many batches in {wait} seconds. Further requests are refused
# at once.
max_enqueued_batches {{ value: {queue} }}
"""
_ALLOWED = """\
# The variant xla compiles for each size, so that there must be few of them. Smaller batches are filled up.
{sizes}
"""
_MODELS = """\
# For --model_config_file. Mount this folder at /models/{name}.
model_config_list {{
  config {{
    name: "{name}"
    base_path: "/models/{name}"
    model_platform: "tensorflow"
  }}
}}
"""
_MONITORING = """\
# For --monitoring_config_file.
prometheus_config {
  enable: true
  path: "/monitoring/prometheus/metrics"
}
"""


def _model_name(base: pathlib.Path) -> str:
    """The name of the base folder, without characters that cannot stand in a model's URL or in this file."""
    return re.sub(r"[^\w.-]", "-", base.resolve().name)


def write_server_files(base: pathlib.Path, variant: str, batch_seconds: float) -> None:
    """Writes `batching.config`, `models.config` and `monitoring.config`, unless they exist.

    Args:
        base: The folder of the versions; its name is the model's, where it can stand in a URL.
        variant: Of the export, see `export_saved_model`.
        batch_seconds: How long a full batch takes.
    """
    queue = min(1000, max(1, round(LONGEST_WAIT / batch_seconds)))
    sizes = BATCH_SIZES[variant]
    batching = _BATCHING.format(largest=sizes[-1], wait=LONGEST_WAIT, queue=queue)
    if variant == "xla":
        batching += _ALLOWED.format(sizes="\n".join(f"allowed_batch_sizes: {size}" for size in sizes))
    files = {"batching": batching, "models": _MODELS.format(name=_model_name(base)), "monitoring": _MONITORING}
    for name, text in files.items():
        path = base / f"{name}.config"
        if not path.exists():
            write_text(path, text)
