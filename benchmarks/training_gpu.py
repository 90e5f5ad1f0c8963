"""How fast does one GPU train the paper's models, and which share of its matrix peak is that?

    KERAS_BACKEND=jax python benchmarks/training_gpu.py --output gpu.json
    KERAS_BACKEND=jax python benchmarks/training_gpu.py --sizes tiny --tokens 512 --lengths 16 --matrix 512   # on a CPU

One case takes about 50 seconds on an H200, most of them to compile. docs/wmt14.md has the figures of that card.

`model.fit` on Keras's JAX backend in mixed bfloat16, with the loss, metrics and optimizer of a run. It needs keras, jax
(for the GPU), numpy, PyYAML and this package's source, and no TensorFlow. Batches are made up: rows of one length that
fill the given number of tokens, without padding; a step takes as long as with text in the same shape. Every case runs
in a separate process, which first times products of large bfloat16 matrices. Their rate is the peak from which the
utilisation is computed. Operations are counted as in `common/flops.py`. Steps that compile are not timed.

There are two kinds of attention. `flash` is kformer's: Keras takes cuDNN's flash attention if that supports the shapes
(the table says whether it did). `xla` never takes flash attention.
"""

import argparse
import functools
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

ROOT = pathlib.Path(__file__).parents[1]
ATTENTIONS = ("flash", "xla")
SIZES = ("tiny", "base", "big")


def measure(case: dict[str, Any]) -> dict[str, Any]:
    """One case, in this process: `size`, `attention`, `length`, `tokens`, `steps`, `rounds` and `matrix`."""
    import jax
    import keras
    import numpy as np

    from benchmarks.common.flops import training_flops
    from kformer.config import TrainingConfig, TransformerConfig
    from kformer.losses import LabelSmoothedCrossEntropy
    from kformer.metrics import Perplexity, TokenAccuracy, TokenCount, TokenLoss
    from kformer.models import build_transformer
    from kformer.training.optimizers import build_optimizer

    if keras.backend.backend() != "jax":
        raise ValueError(
            f"This benchmark is for JAX. Received: the backend {keras.backend.backend()}. Set KERAS_BACKEND=jax."
        )
    peak = matrix_peak(case["matrix"])
    if case["attention"] == "xla":
        # The layers leave the choice to Keras, which has no setting for it.
        keras.ops.dot_product_attention = functools.partial(keras.ops.dot_product_attention, flash_attention=False)
    keras.utils.set_random_seed(1)
    vocabulary = {"source_vocab_size": 37000, "target_vocab_size": 37000} if case["size"] != "tiny" else {}
    config = TransformerConfig.of_size(case["size"], **vocabulary)
    model = build_transformer(config, dtype="mixed_bfloat16")
    training = TrainingConfig.of_size(case["size"], precision="mixed_bfloat16")
    # As `kformer.training.compile` does, which asks the task, whose module needs TensorFlow.
    metrics = [TokenLoss(), TokenAccuracy(), Perplexity(), TokenCount()]
    model.compile(build_optimizer(config.d_model, training), LabelSmoothedCrossEntropy(), metrics=metrics)

    length, rows = case["length"], max(1, case["tokens"] // case["length"])
    ids = np.random.default_rng(1).integers(4, config.target_vocab_size, (3, rows, length), dtype="int32")
    batch = ({"source": ids[0], "target_in": ids[1]}, ids[2])

    def batches() -> Iterator[Any]:
        while True:
            yield batch

    def fit(steps: int) -> None:
        model.fit(batches(), steps_per_epoch=steps, verbose=0)
        jax.block_until_ready([weight.value for weight in model.weights])

    fit(3)
    seconds = _times(functools.partial(fit, case["steps"]), case["rounds"])
    step = min(seconds) / case["steps"]
    rate = rows * training_flops(config, length, length) / step
    statistics = jax.devices()[0].memory_stats() or {}
    return {
        **case,
        "device": jax.devices()[0].device_kind,
        "rows": rows,
        "flash_attention": uses_flash_attention(config.num_heads, config.head_size, rows, length),
        "seconds_a_step": step,
        "seconds": seconds,
        "tokens_per_second": rows * length / step,
        "flops_per_second": rate,
        "peak_flops_per_second": peak,
        "utilisation": rate / peak,
        "peak_bytes": statistics.get("peak_bytes_in_use"),
    }


def matrix_peak(size: int, products: int = 20, rounds: int = 5) -> float:
    """Operations a second of products of bfloat16 matrices of size x size, the best of some rounds."""
    import jax
    import jax.numpy as jnp

    left, right = (jax.random.normal(jax.random.key(seed), (size, size), jnp.bfloat16) for seed in (0, 1))
    right = right * jnp.bfloat16(size**-0.5)  # keeps the numbers' size from product to product
    multiply = jax.jit(jnp.matmul)

    def run() -> None:
        result = left
        for _ in range(products):
            result = multiply(result, right)
        result.block_until_ready()

    run()
    return products * 2 * size**3 / min(_times(run, rounds))


def uses_flash_attention(num_heads: int, head_dim: int, rows: int, length: int) -> bool:
    """Whether attention of these shapes, with a mask and its gradient, is compiled to cuDNN's flash attention."""
    import jax
    import jax.numpy as jnp

    from kformer.layers.scaled_dot_product import scaled_dot_product_attention

    heads = jax.ShapeDtypeStruct((rows, num_heads, length, head_dim), jnp.bfloat16)
    mask = jax.ShapeDtypeStruct((rows, 1, 1, length), jnp.bool_)

    def loss(query: Any, key: Any, value: Any, mask: Any) -> Any:
        return scaled_dot_product_attention(query, key, value, mask).sum()

    return "__cudnn$fmha" in jax.jit(jax.grad(loss, (0, 1, 2))).lower(heads, heads, heads, mask).as_text()


def _times(function: Callable[[], None], rounds: int) -> list[float]:
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - began)
    return seconds


def in_a_process(case: dict[str, Any]) -> dict[str, Any]:
    """The answer of a separate process, so that the last case's memory is free again. A failed case says so."""
    command = [sys.executable, "-m", "benchmarks.training_gpu", "--case", json.dumps(case)]
    answer = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if answer.returncode:
        return {**case, "failed": answer.returncode}
    return json.loads(answer.stdout.splitlines()[-1])


def report(found: list[dict[str, Any]]) -> None:
    """Prints the table."""
    names = ("model", "rows x length", "attention", "ms a step", "target tokens/s", "TFLOP/s", "peak", "utilisation")
    print(f"\n| {' | '.join(names)} | peak GB |")
    print("|" + " --- |" * (len(names) + 1))
    for case in found:
        if "failed" in case:
            print(f"| {case['size']} | {case['tokens']} tokens of {case['length']} | {case['attention']} | failed |")
            continue
        attention = "cuDNN flash" if case["flash_attention"] else f"{case['attention']}, no flash kernel"
        memory = "" if case["peak_bytes"] is None else f"{case['peak_bytes'] / 1e9:.1f}"
        print(
            f"| {case['size']} | {case['rows']} x {case['length']} | {attention} | {1000 * case['seconds_a_step']:.1f} "
            f"| {case['tokens_per_second']:,.0f} | {case['flops_per_second'] / 1e12:.2f} "
            f"| {case['peak_flops_per_second'] / 1e12:.2f} | {case['utilisation']:.1%} | {memory} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["base", "big"], choices=SIZES)
    parser.add_argument("--attentions", nargs="+", default=list(ATTENTIONS), choices=ATTENTIONS)
    parser.add_argument("--lengths", nargs="+", type=int, default=[32, 64, 128], help="tokens of a row, on both sides")
    parser.add_argument("--tokens", type=int, default=25_000, help="of a batch, on each side")
    parser.add_argument("--steps", type=int, default=30, help="a round")
    parser.add_argument("--rounds", type=int, default=3, help="the best counts")
    parser.add_argument("--matrix", type=int, default=8192, help="size of the matrices that give the peak")
    parser.add_argument("--output", type=pathlib.Path, help="JSON of everything that was measured")
    parser.add_argument("--case", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case is not None:
        print(json.dumps(measure(arguments.case)))
        return
    fixed = {name: getattr(arguments, name) for name in ("tokens", "steps", "rounds", "matrix")}
    found = []
    for size in arguments.sizes:
        for length in arguments.lengths:
            for attention in arguments.attentions:
                found.append(in_a_process({"size": size, "length": length, "attention": attention, **fixed}))
                print(json.dumps(found[-1]), flush=True)
    report(found)
    if arguments.output:
        arguments.output.write_text(json.dumps({"date": time.strftime("%Y-%m-%d"), "cases": found}, indent=2) + "\n")


if __name__ == "__main__":
    os.environ.setdefault("KERAS_BACKEND", "jax")
    main()
