"""What this machine can do at most, and how long a translation must take at least.

    python benchmarks/limits.py

Operations are multiplications and additions of matrix products with weights; bytes are the weights, which every step
of a decoder reads once for the whole batch.
"""

import subprocess
import sys
from typing import Any, NamedTuple

BYTES = {"float32": 4, "bfloat16": 2, "int8": 1}


class Limits(NamedTuple):
    """Measured peaks."""

    float32: float  # operations a second
    bfloat16: float
    int8: float
    bandwidth: float  # bytes a second, read from memory

    def operations(self, precision: str) -> float:
        return getattr(self, precision)


def measure(threads: int) -> Limits:
    """Measures in a process of its own, so that its threads and memory are gone afterwards."""
    found = subprocess.run([sys.executable, __file__, str(threads)], capture_output=True, text=True, check=True)
    return Limits(*map(float, found.stdout.split()))


def seconds(config: dict[str, Any], cell: Any, precision: str, limits: Limits, source_length: int) -> float:
    """The least time for a batch: encoder, keys and values of the cross-attention, then one step a target token.

    Args:
        config: of the Transformer.
        cell: has batch_size, beam_size and length.
        precision: of the products.
        limits: from `measure`.
        source_length: tokens of a source.
    """
    width, inner = config["d_model"], config["d_ff"]
    attention, feed_forward = 4 * width * width, 2 * width * inner
    encoder = config["num_encoder_layers"] * (attention + feed_forward)
    memory = config["num_decoder_layers"] * 2 * width * width
    step = config["num_decoder_layers"] * (2 * attention - 2 * width * width + feed_forward)
    step += config["target_vocab_size"] * width

    def least(weights: int, rows: int) -> float:
        return max(2 * weights * rows / limits.operations(precision), weights * BYTES[precision] / limits.bandwidth)

    once = least(encoder + memory, cell.batch_size * source_length)
    return once + cell.length * least(step, cell.batch_size * cell.beam_size)


def _measure_here(threads: int) -> Limits:
    import time

    import torch

    torch.set_num_threads(threads)

    def best(function: Any) -> float:
        times = []
        for _ in range(9):
            began = time.perf_counter()
            function()
            times.append(time.perf_counter() - began)
        return min(times)

    size = 2048
    a, b = torch.randn(size, size), torch.randn(size, size)
    halves = [a.bfloat16(), b.bfloat16()]
    quantized = [(matrix * 20).clamp(-127, 127).to(torch.int8) for matrix in (a, b)]
    products = {
        "float32": best(lambda: a @ b),
        "bfloat16": best(lambda: halves[0] @ halves[1]),
        "int8": best(lambda: torch._int_mm(*quantized)),
    }
    rates = {name: 2 * size**3 / took for name, took in products.items()}
    numbers = torch.zeros(2**27)  # 512 MiB, far beyond any cache
    bandwidth = numbers.nbytes / best(lambda: numbers.sum())
    return Limits(**rates, bandwidth=bandwidth)


if __name__ == "__main__":
    print(*_measure_here(int(sys.argv[1]) if len(sys.argv) > 1 else 2))
